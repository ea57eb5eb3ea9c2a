package specdoc

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// Explain returns a specification as YAML with all defaults filled in. A comment behind each value
// that the file does not set says so. text is the file that spec was parsed from. The result parses
// to the same specification. Its last lines are comments with the memory that the swarm takes.
func Explain(spec *swarm.Spec, text []byte) (string, error) {
	e := explainer{text: text}
	e.section("", reflect.ValueOf(spec).Elem(), spec)
	if err := e.memory(spec); err != nil {
		return "", err
	}
	return e.b.String(), nil
}

type explainer struct {
	b    strings.Builder
	text []byte
}

// section writes the keys directly below a path, which ends with a dot or is empty.
func (e *explainer) section(below string, v reflect.Value, spec *swarm.Spec) {
	indent := strings.Repeat("  ", strings.Count(below, "."))
	for i := range keys {
		k := &keys[i]
		name, ok := strings.CutPrefix(k.Path, below)
		if !ok || strings.Contains(name, ".") {
			continue
		}
		field := fieldOf(v, name)
		switch {
		case k.Path == "cell.params" && spec.Cell.Kind == cells.LifeName: // it has none
		case k.Path == "cell.params":
			e.params(indent, spec)
		case k.Kind == Section:
			if k.Path == "observations" && spec.Topology().ByAgent ||
				field.IsZero() && slices.Contains(optional, k.Path) {
				continue
			}
			fmt.Fprintf(&e.b, "%s%s:\n", indent, name)
			e.section(k.Path+".", field, spec)
		case k.Kind == Jobs:
			e.jobs(spec)
		case k.Path == "seed" || !field.IsZero():
			e.line(indent, k, field)
		}
	}
}

// optional are sections without defaults, which are left out where they are not written.
var optional = []string{
	"csv", "cell.hear", "cell.embed", "neighbours", "neighbours.space", "neighbours.random", "neighbours.ring",
	"knowledge", "fleet", "train",
}

func (e *explainer) line(indent string, k *Key, field reflect.Value) {
	if k.Kind == Types || k.Kind == Code {
		fmt.Fprintf(&e.b, "%s%s:", indent, k.Name())
		if k.Kind == Code {
			fmt.Fprintf(&e.b, " |\n")
			for line := range strings.Lines(field.String()) {
				e.b.WriteString(strings.TrimRight(indent+"  "+line, " \n") + "\n")
			}
			return
		}
		e.b.WriteByte('\n')
		for it := field.MapRange(); it.Next(); {
			fmt.Fprintf(&e.b, "%s  %s: %s\n", indent, it.Key(), quoted(it.Value().String()))
		}
		return
	}
	e.write(indent, k.Name(), yamlValue(field), strictyaml.Line(e.text, strings.Split(k.Path, ".")...) > 0, "")
}

// jobs writes the jobs of rules in the order of their names, each as JSON, which is YAML.
func (e *explainer) jobs(spec *swarm.Spec) {
	for i, name := range slices.Sorted(maps.Keys(spec.Jobs)) {
		if i == 0 {
			e.b.WriteString("jobs:\n")
		}
		if data, err := json.Marshal(spec.Jobs[name]); err == nil { // the parser has done so
			fmt.Fprintf(&e.b, "  %s: %s\n", name, data)
		}
	}
}

func (e *explainer) write(indent, name, value string, set bool, doc string) {
	line := indent + name + ": " + value
	var notes []string
	if !set {
		notes = append(notes, "default")
	}
	if doc != "" {
		notes = append(notes, doc)
	}
	if len(notes) > 0 {
		line = fmt.Sprintf("%-34s # %s", line, strings.Join(notes, "; "))
	}
	e.b.WriteString(line + "\n")
}

// params writes the parameters of the cell, those with defaults too, with their meanings.
func (e *explainer) params(indent string, spec *swarm.Spec) {
	fmt.Fprintf(&e.b, "%sparams:\n", indent)
	done := map[string]bool{}
	for _, c := range allCells() {
		if c.kind != spec.Cell.Kind || c.agents != spec.Topology().ByAgent {
			continue
		}
		for _, p := range c.params {
			v, set := spec.Cell.Params[p.Name]
			if !set {
				v = p.Default
			}
			done[p.Name] = true
			doc := p.Doc
			if (p.Name == "alarm" || p.Name == "suspect") && derived(spec) {
				doc = "does not count: alarms_per_day or false_alarm_rate decides"
			}
			e.write(indent+"  ", p.Name, number(v), set, doc)
		}
	}
	for name, v := range spec.Cell.Params {
		if !done[name] {
			doc := "of the step"
			if spec.Cell.Kind == cells.QuantumName {
				doc = "of the circuit"
			}
			e.write(indent+"  ", name, number(v), true, doc)
		}
	}
}

// derived reports whether alarm and suspect of a specification follow from a rate of false alarms.
func derived(spec *swarm.Spec) bool {
	return spec.Cell.Params["alarms_per_day"] > 0 || spec.Cell.Params["false_alarm_rate"] > 0
}

// memory writes how much state the swarm has.
func (e *explainer) memory(spec *swarm.Spec) error {
	bound, err := spec.Fit()
	if err != nil {
		return fmt.Errorf("cell of a specification: %w", err)
	}
	layout, err := bound.Layout(int(spec.PageSize))
	if err != nil {
		return fmt.Errorf("pages of a specification: %w", err)
	}
	fmt.Fprintf(&e.b, "\n# A page of %s holds %d groups of %d agents.\n", spec.PageSize, layout.Slots, layout.Agents)
	groups, of := spec.Groups(), "groups"
	if groups == 0 && len(spec.Key) > 0 {
		groups, of = spec.MaxEntities, "entities"
	}
	if groups > 0 {
		pages := (int64(groups) + int64(layout.Slots) - 1) / int64(layout.Slots)
		fmt.Fprintf(&e.b, "# %d %s need %d pages: %s of state, on the device or in the tiers.\n", groups, of, pages,
			bytesText(pages*int64(layout.PageBytes)))
	}
	if beside := state.BesideBytes(spec); beside > 0 {
		fmt.Fprintf(&e.b, "# Agents that have neighbours are all on one device. Ticks need %s there beside the "+
			"pages.\n", bytesText(beside))
	}
	return nil
}

func bytesText(n int64) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < 4 {
		v, unit = v/1024, unit+1
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
}

// fieldOf returns the field with a name in YAML.
func fieldOf(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// yamlValue returns a value as YAML in one line.
func yamlValue(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case strictyaml.Duration:
		return time.Duration(x).String()
	case strictyaml.Size:
		return x.String()
	case dialect.Forms:
		return list(x)
	case []string:
		return list(x)
	case string:
		return quoted(x)
	case *bool:
		return strconv.FormatBool(*x)
	default:
		return fmt.Sprint(x)
	}
}

func list(texts []string) string {
	parts := make([]string, len(texts))
	for i, t := range texts {
		parts[i] = quoted(t)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// quoted returns a text as YAML: plain where no reader takes it for something else.
func quoted(text string) string {
	const plainRunes = "_-./0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plain := strings.Trim(text, plainRunes) == ""
	first := byte(' ')
	if text != "" {
		first = text[0]
	}
	letter := first >= 'a' && first <= 'z' || first >= 'A' && first <= 'Z'
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		letter = false
	}
	if plain && letter {
		return text
	}
	return strconv.Quote(text)
}
