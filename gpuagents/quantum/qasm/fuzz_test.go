package qasm_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

// FuzzParse: any text is a valid circuit or an Error with a place in the text.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.qasm")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	refused, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		f.Fatal(err)
	}
	for text := range strings.SplitSeq(string(refused), "\n=>") {
		if strings.Contains(text, "1e9") { // a million operations, which TestRefused makes
			continue
		}
		f.Add(text[strings.IndexByte(text, '\n')+1:])
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := qasm.Parse(text)
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			return
		}
		var place *qasm.Error
		if !errors.As(err, &place) || place.Line < 1 || place.Line > strings.Count(text, "\n")+1 || place.Column < 1 {
			t.Fatalf("the error has no place: %v", err)
		}
	})
}
