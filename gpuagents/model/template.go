package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// Template reads the chat template of a language model as text; empty: it has none.
func Template(ctx context.Context, store snapshot.Store, m *Manifest) (text string, err error) {
	for i, f := range m.Files {
		name := Folder(m.Name) + "/" + f.Name
		switch f.Name {
		case GGUFName:
			var head *gguf.File
			var value any
			if head, err = m.headGGUF(ctx, store, i, name); err == nil {
				value, err = head.Get("tokenizer.chat_template")
			}
			text, _ = value.(string)
		case TemplateName:
			var data []byte
			if data, err = read(ctx, store, name, f.Bytes); err == nil && sum(data) != f.SHA256 {
				err = fmt.Errorf("%w: %s has another SHA-256 than the manifest says", ErrCorrupt, f.Name)
			}
			if err == nil {
				text, err = templateOf(data)
			}
		}
		if err != nil {
			return "", fmt.Errorf("model %s: chat template: %w", m.Name, err)
		}
	}
	return text, nil
}

// templateOf returns the chat template of a tokenizer_config.json: a text, or one of a list that is
// called default.
func templateOf(data []byte) (string, error) {
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Template == nil {
		return "", err
	}
	var text string
	if json.Unmarshal(config.Template, &text) == nil {
		return text, nil
	}
	var all []struct{ Name, Template string }
	if err := json.Unmarshal(config.Template, &all); err != nil {
		return "", err
	}
	for _, one := range all {
		if one.Name == "default" {
			return one.Template, nil
		}
	}
	return "", errors.New("chat_template is a list without one called default")
}
