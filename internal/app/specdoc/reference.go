package specdoc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// width is where lines wrap.
const width = 100

// Reference describes keys and parameters of cells. about is a key, whose keys below it are
// described too, or the name of a cell; empty for all. It returns false if there is neither.
func Reference(about string) (string, bool) {
	var b strings.Builder
	for i := range keys {
		k := &keys[i]
		if about != "" && k.Path != about && !strings.HasPrefix(k.Path, about+".") {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", k.Path, k.Facts())
		wrap(&b, "    "+k.Doc, "    ")
	}
	for _, c := range allCells() {
		if about != "" && c.kind != about {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "cell %s\n", c.title())
		wrap(&b, "    "+sentence(c.doc), "    ")
		if len(c.names) > 0 {
			wrap(&b, "    Candidates: "+strings.Join(c.names, ", ")+".", "    ")
		}
		for _, p := range c.params {
			wrap(&b, fmt.Sprintf("    %s: %s (%s): %s", p.Name, number(p.Default), bounds(p), p.Doc), "        ")
		}
	}
	return b.String(), b.Len() > 0
}

// Facts returns the type, the range, the default and the scope of a key in a few words.
func (k *Key) Facts() string {
	parts := []string{string(k.Kind)}
	switch {
	case len(k.Values) > 0:
		parts[0] = "`" + strings.Join(k.Values, "`, `") + "`"
	case k.Kind == Code:
		parts[0] = "text of several lines"
	case k.Min != "" && k.Max != "":
		parts[0] += ", " + k.Min + " to " + k.Max + k.elements()
	case k.Max != "":
		parts[0] += ", at most " + k.Max + k.elements()
	case k.Min != "":
		parts[0] += ", at least " + k.Min + k.elements()
	}
	if k.Required {
		parts = append(parts, "required")
	}
	if k.Default != "" {
		parts = append(parts, "default `"+k.Default+"`")
	}
	if k.Scope != All {
		parts = append(parts, "for "+scopes[k.Scope])
	}
	return strings.Join(parts, "; ")
}

// scopes are the words for a scope in a document.
var scopes = map[Scope]string{
	Groups: "`addressed: group`", Agents: "`addressed: agent`", Custom: "`cell.kind: custom`", Keyed: "a `key`",
	GRUGroups: "`cell.kind: gru` with `addressed: group`",
	Trained:   "`cell.kind: gru`, `quantum` or `transformer` with `addressed: agent`",
	Quantum:   "`cell.kind: quantum` with `addressed: agent`",
	Language:  "`cell.kind: transformer` with `addressed: agent`",

	Izhikevich: "`cell.kind: izhikevich`", Lattice: "`cell.kind: custom` with `addressed: agent`",
}

func (k *Key) elements() string {
	if k.Kind == Texts || k.Kind == OneOrAll || k.Kind == Jobs {
		return " of them"
	}
	return ""
}

func (c *cell) title() string {
	if c.agents {
		return "`" + c.kind + "`, addressed: agent"
	}
	return "`" + c.kind + "`"
}

// sentence returns text with a capital and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func bounds(p cells.Param) string {
	text := number(p.Min) + " to " + number(p.Max)
	if p.Integer {
		text += ", whole"
	}
	return text
}

// wrap writes a paragraph in lines of at most width characters. The first line keeps its indent,
// and each further line begins with indent.
func wrap(b *strings.Builder, text, indent string) {
	words := strings.Fields(text)
	line := text[:len(text)-len(strings.TrimLeft(text, " "))] + words[0]
	for _, word := range words[1:] {
		if len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(line + "\n")
			line = indent + word
			continue
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
