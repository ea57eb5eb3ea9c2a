// Package strictyaml decodes YAML into structs. It refuses keys that the structs do not have, with
// the line and the nearest key.
package strictyaml

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Decode reads the one document in data into out, a pointer to a struct with yaml tags. file is the
// name that errors begin with. A key that out has no field for, a duplicate key, a value of the
// wrong type, an empty document and a second document are errors.
func Decode(file string, data []byte, out any) error {
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return fmt.Errorf("%s: %s", file, message(err))
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s:1: a mapping of keys to values is expected", file)
	}
	if dec.Decode(new(yaml.Node)) == nil {
		return fmt.Errorf("%s: more than one document", file)
	}
	if err := check(doc.Content[0], reflect.TypeOf(out).Elem(), ""); err != nil {
		return fmt.Errorf("%s:%w", file, err)
	}
	if err := doc.Decode(out); err != nil {
		return fmt.Errorf("%s: %s", file, message(err))
	}
	return nil
}

var lineInText = regexp.MustCompile(`^line (\d+): `)

// message puts what the YAML library says into the form of our own errors.
func message(err error) string {
	var te *yaml.TypeError
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if errors.As(err, &te) && len(te.Errors) > 0 {
		text = te.Errors[0]
	}
	return lineInText.ReplaceAllString(text, "line $1: ")
}

// scalar refuses a value that the library reads in another way than its author means: no value, an
// octal number, and for an integer a fraction, an exponent, or a value beyond 2^63, which is cut.
func scalar(n *yaml.Node, t reflect.Type, path string) error {
	name, tag := strings.TrimSuffix(path, "."), n.ShortTag()
	if tag == "!!null" && t.Kind() != reflect.Interface {
		return fmt.Errorf("%d: %s has no value: write one, or leave the key out", n.Line, name)
	}
	if t.Kind() == reflect.String || tag != "!!int" && tag != "!!float" {
		return nil
	}
	if !dialect.Plain(n.Value) {
		return fmt.Errorf("%d: %s is %s: write it with decimal digits, without leading zeros", n.Line, name, n.Value)
	}
	if k := t.Kind(); k < reflect.Int || k > reflect.Uint64 || tag != "!!float" ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return nil
	}
	if v, err := dialect.Float(n.Value, 64); err != nil || v != math.Trunc(v) || math.Abs(v) >= 1<<63 {
		return fmt.Errorf("%d: %s is %s: write a whole number", n.Line, name, n.Value)
	} else if strings.ContainsAny(n.Value, "eE") {
		return fmt.Errorf("%d: %s is %s: write a whole number without an exponent, as in %.0f",
			n.Line, name, n.Value, v)
	}
	return nil
}

// isZero reports whether a scalar is a number, a size or a duration of 0.
func isZero(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && zeroPattern.MatchString(n.Value)
}

var zeroPattern = regexp.MustCompile(`^[-+]?0+(\.0*)?\s*[A-Za-zµ]*$`)

// elements returns the type of the values of a list or a map. It is the type of any value for a
// type that reads itself.
func elements(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
			return t.Elem()
		}
	}
	return reflect.TypeFor[any]()
}

// check compares a node with the type that it will fill. A field with the tag zero:"default"
// refuses the number 0, which would silently be the default.
func check(n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode:
		return scalar(n, t, path)
	case n.Kind == yaml.SequenceNode:
		if len(n.Content) == 0 && t.Kind() == reflect.Slice {
			return fmt.Errorf("%d: %s is an empty list: write an element, or leave the key out", n.Line,
				strings.TrimSuffix(path, "."))
		}
		for _, c := range n.Content {
			if err := check(c, elements(t), path); err != nil {
				return err
			}
		}
		return nil
	case n.Kind == yaml.MappingNode && t.Kind() != reflect.Struct:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := check(n.Content[i+1], elements(t), path+n.Content[i].Value+"."); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
		return nil
	}
	fields, defaults := map[string]reflect.Type{}, map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			fields[name], defaults[name] = t.Field(i).Type, t.Field(i).Tag.Get("zero") == "default"
		}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		ft, ok := fields[key.Value]
		if !ok {
			return fmt.Errorf("%d: unknown key %q: did you mean %q? Valid keys%s: %s",
				key.Line, path+key.Value, path+Nearest(key.Value, names(fields)), under(path),
				strings.Join(names(fields), ", "))
		}
		if seen[key.Value] {
			return fmt.Errorf("%d: key %q is given twice", key.Line, path+key.Value)
		}
		seen[key.Value] = true
		if defaults[key.Value] && isZero(n.Content[i+1]) {
			return fmt.Errorf("%d: %s is 0: write a value above it, or leave the key out for the default", key.Line,
				path+key.Value)
		}
		if err := check(n.Content[i+1], ft, path+key.Value+"."); err != nil {
			return err
		}
	}
	return nil
}

func under(path string) string {
	if path == "" {
		return ""
	}
	return " under " + strings.TrimSuffix(path, ".")
}

func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Nearest returns the valid name with the smallest edit distance to name, the first in order among
// equals; empty when there are none.
func Nearest(name string, valid []string) string {
	best, at := "", -1
	for _, v := range valid {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(v)); at < 0 || d < at {
			best, at = v, d
		}
	}
	return best
}

// Line finds the line of a key, given as names from the outside in, for errors that are found after
// decoding. It is 0 if the key is not there.
func Line(data []byte, path ...string) int {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return 0
	}
	n, line := doc.Content[0], 0
	for _, name := range path {
		found := false
		for i := 0; i+1 < len(n.Content) && !found; i += 2 {
			if n.Kind == yaml.MappingNode && n.Content[i].Value == name {
				line, n, found = n.Content[i].Line, n.Content[i+1], true
			}
		}
		if !found {
			return line
		}
	}
	return line
}

// Size is a number of bytes that YAML writes as a number or with a unit: 2MiB, 64KiB, 1GiB.
type Size int64

// UnmarshalYAML reads the forms that Size documents.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := ParseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = Size(v)
	return nil
}

// String returns the size with the largest unit that gives a whole number: 2MiB. UnmarshalYAML
// reads it.
func (s Size) String() string {
	v, unit := int64(s), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v == 0 || v%1024 != 0 {
			break
		}
		v, unit = v/1024, u
	}
	return strconv.FormatInt(v, 10) + unit
}

// Duration is a time that YAML writes with a unit: 500ms, 5s, 1m30s. JSON has it as a number of
// nanoseconds.
type Duration time.Duration

// UnmarshalYAML reads the form that Duration documents.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: duration %q: write a number with ms, s, m or h, as in 5s", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// ParseSize reads a number of bytes with an optional unit B, KiB, MiB, GiB or TiB.
func ParseSize(text string) (int64, error) {
	digits := strings.TrimSpace(text)
	unit := int64(1)
	for name, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(digits, name); ok {
			digits, unit = strings.TrimSpace(rest), size
			break
		}
	}
	digits = strings.TrimSuffix(digits, "B")
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !dialect.Plain(digits) || v < 0 || v > (1<<62)/unit {
		return 0, fmt.Errorf("size %q: write a number with KiB, MiB or GiB, as in 2MiB", text)
	}
	return v * unit, nil
}
