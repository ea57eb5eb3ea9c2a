package kernels

import (
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
	if made := ptxTexts.Names(ptxFile); len(made) != len(Names()) {
		t.Errorf("%d kernels have a PTX, want %d: run go generate ./cuda/kernels", len(made), len(Names()))
	}
	for _, name := range Names() {
		s, _ := Lookup(name)
		text, ok := PTX(name)
		if head, _, _ := strings.Cut(text, "\n"); !ok || head != PTXHeader(s) {
			t.Errorf("the PTX of %s is not of the present source: run go generate ./cuda/kernels", name)
		}
	}
}

// TestDamagedArchive: an archive that is cut off or changed has kernels with their whole text or
// without one, and no call panics.
func TestDamagedArchive(t *testing.T) {
	want := map[string]string{}
	for _, name := range ptxTexts.Names(ptxFile) {
		want[name], _ = PTX(name)
	}
	half := len(ptxFile) / 2
	for _, damaged := range []string{"", "no archive", ptxFile[:half], ptxFile[:len(ptxFile)-1], ptxFile[1:]} {
		var a Archive
		for _, name := range a.Names(damaged) {
			if text, _ := a.PTX(damaged, name); text != want[name] {
				t.Errorf("%d of %d bytes: kernel %s has another text", len(damaged), len(ptxFile), name)
			}
		}
	}
}
