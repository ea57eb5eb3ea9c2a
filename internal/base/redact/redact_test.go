package redact

import (
	"strings"
	"testing"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "nats://h:4222": "nats://h:4222", "h": "h", "nats://u:p@h:1": "nats://h:1", "nats://tok@h": "nats://h",
		"tok@h:1":                       "h:1",
		"nats://u:p@a:1, tls://u:p@b:2": "nats://a:1,tls://b:2", "nats://u:p/x@h": "nats://h",
		"nats://u:p@q@h": "nats://h", "nats://[::1]:4222": "nats://[::1]:4222",
		"nats://u:half,way@h:1": Hidden + ",h:1", "nats://u:password": Hidden, "nats://u:1234567": Hidden,
		"nats://h/path@x": "nats://x",
	} {
		if got := URLs(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"none": "none", "a@b": "a@b", `parse "nats://u:p w@h": x`: `parse "nats://u:p w@h": x`,
		`at "postgres://u:p@h/db"`: `at "postgres://h/db"`,
		"x https://u:p@h/a, y":     "x https://h/a, y", "nats://u:p,q@h": "nats://h",
	} {
		if got := Secrets(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Words("a longword b abc", "longword", "abc"); got != "a "+Hidden+" b abc" {
		t.Error(got)
	}
}

func TestLines(t *testing.T) {
	if got := Line("a\x1b[2J\nb\u009b\u202e\tc\xff"); got != "a [2J b   c " {
		t.Errorf("%q", got)
	}
	if got := Lines("a\n\tb\r"); got != "a\n\tb " {
		t.Errorf("%q", got)
	}
	if got := Short(strings.Repeat("ä", 10), 5); got != "ää …" {
		t.Errorf("%q", got)
	}
}
