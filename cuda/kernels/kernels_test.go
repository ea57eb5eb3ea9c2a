package kernels

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

func TestSources(t *testing.T) {
	for _, name := range Names() {
		s, ok := Lookup(name)
		if !ok || s.Name != name || s.File == "" || len(s.Params) == 0 {
			t.Errorf("%s: incomplete", name)
		}
		if !strings.Contains(s.Code, `extern "C"`) || !strings.Contains(s.Code, name+"(") {
			t.Errorf("%s: the source has no such extern \"C\" function", name)
		}
		if strings.Contains(s.Code, `#include "`) {
			t.Errorf("%s: an include is not resolved", name)
		}
	}
}

// The signature in Go is the one in the source, where it is written out there.
func TestSignatures(t *testing.T) {
	for _, name := range Names() {
		s, _ := Lookup(name)
		params, code, err := device.ParseKernel(name, s.Code)
		if err != nil {
			if !strings.Contains(s.Code, name+"(GEMM_PARAMS(") {
				t.Error(err)
			}
			continue
		}
		if err := device.CheckDeclared(name, s.Params, params); err != nil || code != s.Code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The embedded PTX must be of the sources that stand beside it.
func TestPTXIsCurrent(t *testing.T) {
	files, err := fs.Glob(ptxFiles, "ptx/*.ptx")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(Names()) {
		t.Errorf("%d files for %d kernels: run go generate ./cuda/kernels", len(files), len(Names()))
	}
	for _, name := range Names() {
		s, _ := Lookup(name)
		text, ok := PTX(name)
		if head, _, _ := strings.Cut(text, "\n"); !ok || head != PTXHeader(s) {
			t.Errorf("ptx/%s.ptx is not of the present source: run go generate ./cuda/kernels", name)
		}
	}
}
