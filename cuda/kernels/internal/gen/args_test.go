package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCurrent: the files are what the command makes of the present sources, with the arguments of
// the comments that call it.
func TestCurrent(t *testing.T) {
	files, err := filepath.Glob("../../*/args.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	call := regexp.MustCompile(`(?m)^//go:generate go run .*internal/gen (.*)$`)
	for _, file := range append(files, "../../args.go") {
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources, err := filepath.Glob(filepath.Dir(file) + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			m := call.FindSubmatch(text)
			if m == nil {
				continue
			}
			args := strings.Fields(string(m[1]))
			want, err := generateArgs(filepath.Dir(file), args[0], args[1:])
			if err != nil || !bytes.Equal(have, want) {
				t.Errorf("%s is not of the present sources (%v): run go generate ./cuda/kernels/...", file, err)
			}
		}
	}
}
