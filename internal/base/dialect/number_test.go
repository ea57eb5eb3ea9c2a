package dialect

import (
	"math"
	"testing"
)

func TestFloat(t *testing.T) {
	for text, want := range map[string]float64{
		"1": 1, "-1.5": -1.5, "+2e3": 2000, ".5": 0.5, "5.": 5, "007": 7, "inf": math.Inf(1), "1E-2": 0.01,
	} {
		if v, err := Float(text, 64); err != nil || v != want {
			t.Errorf("%q is %v, %v; want %v", text, v, err, want)
		}
	}
	for _, text := range []string{"1_000", "0x1p4", "0X1P4", "0x1F", "1_0e3", "", "1,5", "1 000", "0b1", "0o7", "_1"} {
		if v, err := Float(text, 64); err == nil {
			t.Errorf("%q is the number %v", text, v)
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "10": true, "-3": true, "1.5": true, "1e3": true, ".5": true,
		"0.25": true, ".inf": true, "-.inf": true,
		"010": false, "0x3e8": false, "0o17": false, "0b1": false, "1_000": false,
		"00": false, "-01": false, "1_0.5": false,
	} {
		if Plain(text) != want {
			t.Errorf("Plain(%q) is %v", text, !want)
		}
	}
}
