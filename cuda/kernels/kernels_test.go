package kernels

import (
	"strings"
	"testing"
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
