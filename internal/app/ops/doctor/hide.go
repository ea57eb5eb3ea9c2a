package doctor

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// quoted matches what a message quotes: errors quote values of rows, specs and headers.
var quoted = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|'[^']*'")

// hide returns a message without the values that it quotes and without the secrets of URLs.
func hide(text string) string {
	return quoted.ReplaceAllString(redact.Secrets(text), `"`+redact.Hidden+`"`)
}

// hideLines applies hide to each string of each line of JSON. A line that is no JSON is left out.
func hideLines(data []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		var v any
		if json.Unmarshal(line, &v) != nil {
			continue
		}
		clean, err := json.Marshal(hideValue(v))
		if err != nil {
			continue
		}
		out.Write(clean)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func hideValue(v any) any {
	switch v := v.(type) {
	case string:
		return hide(v)
	case []any:
		for i := range v {
			v[i] = hideValue(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = hideValue(v[k])
		}
	}
	return v
}
