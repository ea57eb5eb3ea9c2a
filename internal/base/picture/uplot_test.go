package picture

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// TestFiles: the files are unchanged from the package uPlot 1.6.32, and the script makes no HTML or
// script of text.
func TestFiles(t *testing.T) {
	for name, c := range map[string][2]string{
		"uPlot.iife.min.js": {UPlotJS, "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"},
		"uPlot.min.css":     {UPlotCSS, "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"},
		"uPlot.LICENSE":     {UPlotLicense, "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"},
	} {
		if sum := sha256.Sum256([]byte(c[0])); hex.EncodeToString(sum[:]) != c[1] {
			t.Errorf("%s has the hash %x", name, sum)
		}
	}
	for _, bad := range []string{"innerHTML", "eval(", "new Function"} {
		if strings.Contains(UPlotJS, bad) {
			t.Errorf("the script uses %s", bad)
		}
	}
}
