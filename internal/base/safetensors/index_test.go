package safetensors

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// index returns an index whose weight_map has the given members.
func index(members string) string {
	return `{"metadata":{"total_size":4},"weight_map":{` + members + `}}`
}

// badIndexes are indexes that are refused, and a part of the error.
var badIndexes = map[string]string{
	"":                                  "an object is expected",
	"[]":                                "an object is expected",
	"{}":                                "names 0 tensors",
	"{} {}":                             "more than spaces",
	`{"x":1}`:                           `key "x"`,
	`{"weight_map":1}`:                  "an object is expected",
	`{"weight_map":{},"weight_map":{}}`: "twice",
	index(`"a":1`):                      "tensor",
	index(`"":"a.safetensors"`):         "empty",
	index(`"a":"a.bin"`):                "use the name of a .safetensors file",
	index(`"a":"../a.safetensors"`):     "use the name",
	index(`"a":"/a.safetensors"`):       "use the name",
	index(`"a":".safetensors"`):         "use the name",
	index(`"a":"b\\a.safetensors"`):     "use the name",
	index(`"a":"a\u0000.safetensors"`):  "use the name",
	index(`"a\u0000":"a.safetensors"`):  "control",
	index(`"a":"a.safetensors","a":"b.safetensors"`): "twice",
	index(`"a":"a.safetensors"`) + "]":               "more than spaces",
	index(`"a":"a.safetensors"`)[:40]:                "EOF",
}

func TestParseIndex(t *testing.T) {
	got, err := ParseIndex([]byte(index(`"a":"x.safetensors","b":"y.safetensors"`)))
	if want := map[string]string{"a": "x.safetensors", "b": "y.safetensors"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("ParseIndex: %v, %v, want %v", got, err, want)
	}
	for data, want := range badIndexes {
		if _, err := ParseIndex([]byte(data)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseIndex of %q: %v, want an ErrFormat with %q", data, err, want)
		}
	}
	if _, err := ParseIndex(make([]byte, maxHeader+1)); !errors.Is(err, ErrFormat) {
		t.Errorf("ParseIndex of a large file: %v, want an ErrFormat", err)
	}
}

// FuzzParseIndex: any bytes are an ErrFormat, or names of files without a path.
func FuzzParseIndex(f *testing.F) {
	for data := range badIndexes {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := ParseIndex(data)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatalf("ParseIndex: %v, want an ErrFormat", err)
		}
		for name, file := range files {
			if name == "" || strings.ContainsAny(file, "/\\\x00") {
				t.Fatalf("tensor %q is in %q", name, file)
			}
		}
	})
}
