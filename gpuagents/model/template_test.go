package model

import (
	"strings"
	"testing"
)

// TestTemplateOf: a tokenizer_config.json has a chat template as a text, or in a list, or none.
func TestTemplateOf(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `{"chat_template": null}`: "", `{"chat_template": "{{ x }}"}`: "{{ x }}",
		`{"chat_template": [{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]}`: "b",
		`{"chat_template": [{"name": "tools", "template": "a"}]}`:                                       "error: chat_",
		`{"chat_template": 1}`: "error: json", `[]`: "error: json",
	} {
		got, err := templateOf([]byte(text))
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
