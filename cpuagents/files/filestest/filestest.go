// Package filestest opens files for the tests of other packages.
package filestest

import (
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/files"
)

// Scratch returns Files without roots, with a scratch folder of their own.
func Scratch(t testing.TB) *files.Files {
	t.Helper()
	f, err := files.New(files.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("open the files: %v", err)
	}
	return f
}
