package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGenerated: the files of package lanes are generated from the present description.
func TestGenerated(t *testing.T) {
	for name, want := range files() {
		have, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil || string(have) != want {
			t.Errorf("%s is not of the present description: run go generate ./cuda/host/lanes (%v)", name, err)
		}
	}
}
