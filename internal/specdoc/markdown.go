package specdoc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// width is where lines of documents wrap.
const width = 120

// Markdown returns the reference of docs/spec.md: its part behind the introduction.
func Markdown() string {
	var b strings.Builder
	b.WriteString("## Keys\n\n")
	for i := range keys {
		k := &keys[i]
		wrap(&b, "- **`"+k.Path+"`**: "+k.Facts()+". "+k.Doc, "  ")
	}
	b.WriteString("\n## Parameters of the cells\n")
	for _, c := range allCells() {
		fmt.Fprintf(&b, "\n### %s\n\n", c.title())
		wrap(&b, sentence(c.doc), "")
		if len(c.names) > 0 {
			wrap(&b, "Candidates: `"+strings.Join(c.names, "`, `")+"`.", "")
		}
		if len(c.params) == 0 {
			b.WriteString("\nIt has no parameters.\n")
			continue
		}
		b.WriteString("\n| parameter | default | range | meaning |\n|---|---|---|---|\n")
		for _, p := range c.params {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, number(p.Default), bounds(p), p.Doc)
		}
	}
	return b.String()
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

// wrap writes a paragraph in lines of at most width characters. The lines after the first begin with
// indent.
func wrap(b *strings.Builder, text, indent string) {
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len([]rune(word)) > width:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len([]rune(word))
	}
	b.WriteByte('\n')
}
