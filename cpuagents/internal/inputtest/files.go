// Package inputtest opens files and reads rows in the tests of packages above rows and files.
package inputtest

import (
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/files"
)

// Scratch returns Files without roots, with a temporary scratch folder.
func Scratch(t testing.TB) *files.Files {
	t.Helper()
	f, err := files.New(files.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("open the files: %v", err)
	}
	return f
}
