package strictyaml

import (
	"strings"
	"testing"
)

type inner struct {
	Kind string `yaml:"kind"`
	Size Size   `yaml:"size" zero:"default"`
}

type outer struct {
	Name  string  `yaml:"name"`
	Cell  inner   `yaml:"cell"`
	Items []inner `yaml:"items"`
	Count int     `yaml:"count"`

	Parts  []uint8          `yaml:"parts"`
	Limits map[string]*int  `yaml:"limits"`
	Named  map[string]inner `yaml:"named"`
	Rate   float64          `yaml:"rate"`
	Any    any              `yaml:"any"`
}

func TestDecode(t *testing.T) {
	var o outer
	err := Decode("a.yaml", []byte("name: x\ncell: {kind: k, size: 2MiB}\nitems:\n- kind: a\n- size: 12\n"), &o)
	if err != nil || o.Name != "x" || o.Cell.Size != 2<<20 || len(o.Items) != 2 || o.Items[1].Size != 12 {
		t.Fatalf("%+v, %v", o, err)
	}
	err = Decode("a.yaml", []byte("count: 1000000\nparts: [2.0, 3]\nlimits: {a: -4}\nnamed: {a: {kind: k}}\n"), &o)
	if err != nil || o.Count != 1e6 || o.Parts[0] != 2 || *o.Limits["a"] != -4 || o.Named["a"].Kind != "k" {
		t.Fatalf("%+v, %v", o, err)
	}
	// A text may look like a number, and a number may be 0, or have an exponent where it may have a
	// fraction.
	err = Decode("a.yaml", []byte("name: 0100\ncount: 0\nrate: 1e-3\nany: {a: [], b: 0}\n"), &o)
	if err != nil || o.Name != "0100" || o.Count != 0 || o.Rate != 1e-3 {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"nam: x\n": `a.yaml:1: unknown key "nam": did you mean "name"? Valid keys: any, cell, count, ` +
			`items, limits, name, named, parts, rate`,

		"name: x\ncell:\n  kid: k\n": `a.yaml:3: unknown key "cell.kid": did you mean "cell.kind"? Valid keys under ` +
			`cell: kind, size`,
		"items:\n- kind: a\n- syze: 1": `a.yaml:3: unknown key "items.syze": did you mean "items.size"? Valid keys ` +
			`under items: kind, size`,
		"name: x\nname: y\n": `a.yaml:2: key "name" is given twice`,
		"count: many\n":      "a.yaml: line 1: cannot unmarshal",

		"name: x\ncount: 6.5\n": "a.yaml:2: count is 6.5: write a whole number",
		"count: .nan\n":         "a.yaml:1: count is .nan: write a whole number",
		"count: 1e30\n":         "a.yaml:1: count is 1e30: write a whole number",
		"count: 1e3\n": "a.yaml:1: count is 1e3: write a whole number without an exponent, " +
			"as in 1000",
		"count: 01000\n": "a.yaml:1: count is 01000: write it with decimal digits, " +
			"without leading zeros",
		"count: 0x3e8\n":                    "a.yaml:1: count is 0x3e8: write it with decimal digits",
		"count: 1_000\n":                    "a.yaml:1: count is 1_000: write it with decimal digits",
		"count: 0o17\n":                     "a.yaml:1: count is 0o17: write it with decimal digits",
		"count:\n":                          "a.yaml:1: count has no value: write one, or leave the key out",
		"count: ~\n":                        "a.yaml:1: count has no value",
		"limits: {a: 010}\n":                "a.yaml:1: limits.a is 010: write it with decimal digits",
		"parts: []\n":                       "a.yaml:1: parts is an empty list: write an element, or leave the key out",
		"parts: [1, 0x2]\n":                 "a.yaml:1: parts is 0x2: write it with decimal digits",
		"rate: 0_1.5\n":                     "a.yaml:1: rate is 0_1.5: write it with decimal digits",
		"any: {a: [1, 010]}\n":              "a.yaml:1: any.a is 010: write it with decimal digits",
		"cell: {size: 010}\n":               "a.yaml:1: cell.size is 010: write it with decimal digits",
		"cell: {size: 010KiB}\n":            `a.yaml: line 1: size "010KiB": write a number with KiB`,
		"cell:\n  size: 0\n":                "a.yaml:2: cell.size is 0: write a value above it, or leave the key out",
		"cell: {size: 0KiB}\n":              "a.yaml:1: cell.size is 0: write a value above it",
		"parts: [1,\n 2.5]\n":               "a.yaml:2: parts is 2.5: write a whole number",
		"limits: {a: 1, b: 0.1}\n":          "a.yaml:1: limits.b is 0.1: write a whole number",
		"a: &a 1.5\ncount: *a\n":            `a.yaml:1: unknown key "a"`,
		"name: &a 1.5\ncount: *a\n":         "a.yaml:1: count is 1.5: write a whole number",
		"named:\n  a: {kind: k, syze: 1}\n": `a.yaml:2: unknown key "named.a.syze": did you mean "named.a.size"?`,

		"cell: {size: 2 parsecs}\n": `a.yaml: line 1: size "2 parsecs": write a number with KiB, MiB or GiB, as ` +
			`in 2MiB`,
		"":                               "a.yaml: EOF",
		"- a\n":                          "a.yaml:1: a mapping of keys to values is expected",
		"name: x\n---\nname: y\n":        "a.yaml: more than one document",
		"name: [x\n":                     "a.yaml: line",
		"name: \"x\n":                    "a.yaml: ",
		"cell: {size: 99999999999GiB}\n": `a.yaml: line 1: size "99999999999GiB"`,
	} {
		var o outer
		err := Decode("a.yaml", []byte(text), &o)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestLine(t *testing.T) {
	data := []byte("name: x\ncell:\n  kind: k\n")
	if got := Line(data, "cell", "kind"); got != 3 {
		t.Errorf("cell.kind is on line %d", got)
	}
	if got := Line(data, "cell", "nothing"); got != 2 {
		t.Errorf("a missing key below cell is on line %d", got)
	}
	if got := Line(data, "nothing"); got != 0 {
		t.Errorf("a missing key is on line %d", got)
	}
}

// FuzzDecode: no text makes it panic or hang.
func FuzzDecode(f *testing.F) {
	f.Add("name: x\ncell: &a {kind: k}\nitems: [*a, *a]\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(_ *testing.T, text string) {
		var o outer
		_ = Decode("a.yaml", []byte(text), &o)
	})
}
