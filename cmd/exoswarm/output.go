package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/redact"
)

// outputFlag adds -o.
func outputFlag(f *pflag.FlagSet) { command.OutputFlag(f, "table", "json", "jsonl", "yaml") }

// printer writes a list of items in the format that the user chose, each as it comes, so that a
// long list needs no memory. A table shows the columns; the other formats show the whole item.
type printer struct {
	w      io.Writer
	format string
	table  *tabwriter.Writer
	n      int
}

// newPrinter starts a list with these columns.
func newPrinter(w io.Writer, f *pflag.FlagSet, columns ...string) (*printer, error) {
	if err := command.CheckOutput(f); err != nil {
		return nil, err
	}
	format, _ := f.GetString("output")
	p := &printer{w: w, format: format}
	if format == "table" {
		p.table = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(p.table, strings.Join(columns, "\t"))
	}
	return p, nil
}

// tableBlock is how many rows share their widths: a table of a million rows is written as it is
// read.
const tableBlock = 200

// item writes one item; row has its columns.
func (p *printer) item(v any, row ...any) error {
	p.n++
	if p.format == "table" {
		text := make([]string, len(row))
		for i, c := range row {
			text[i] = redact.Short(redact.Line(fmt.Sprint(c)), maxCell)
		}
		fmt.Fprintln(p.table, strings.Join(text, "\t"))
		if p.n%tableBlock == 0 {
			return p.table.Flush()
		}
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	data = escaped(data)
	switch {
	case p.format == "jsonl":
	case p.format == "json" && p.n == 1:
		data = append([]byte("[\n  "), data...)
	case p.format == "json":
		data = append([]byte(",\n  "), data...)
	default:
		return p.yaml(data)
	}
	if p.format == "jsonl" {
		data = append(data, '\n')
	}
	_, err = p.w.Write(data)
	return err
}

// maxCell bounds a column of a table, in bytes: names and errors of others may have megabytes.
const maxCell = 2000

// escaped writes the runes of JSON that would command a terminal as \uXXXX, which means the same.
// Encoding escapes only those below a space.
func escaped(data []byte) []byte {
	if !bytes.ContainsFunc(data, redact.Unsafe) {
		return data
	}
	var out bytes.Buffer
	for _, r := range string(data) {
		if redact.Unsafe(r) && r != '\n' {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// flush shows the rows so far, for a list that others wait for.
func (p *printer) flush() error {
	if p.format == "table" {
		return p.table.Flush()
	}
	return nil
}

// yaml writes an item by way of its JSON, so that the names of fields are those of the protocol.
func (p *printer) yaml(data []byte) error {
	var node yaml.Node // keeps the order of the fields
	if err := yaml.Unmarshal(data, &node); err != nil {
		return err
	}
	blockStyle(&node)
	out, err := yaml.Marshal([]*yaml.Node{node.Content[0]})
	if err != nil {
		return err
	}
	_, err = p.w.Write(escaped(out))
	return err
}

// blockStyle removes the JSON look of a node: braces, brackets and needless quotes.
func blockStyle(n *yaml.Node) {
	if n.Style = 0; strings.ContainsFunc(n.Value, redact.Unsafe) {
		n.Style = yaml.DoubleQuotedStyle // the only one with escapes
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// end closes the list.
func (p *printer) end() error {
	var err error
	switch {
	case p.format == "table":
		return p.table.Flush()
	case p.format == "json" && p.n == 0:
		_, err = io.WriteString(p.w, "[]\n")
	case p.format == "json":
		_, err = io.WriteString(p.w, "\n]\n")
	case p.format == "yaml" && p.n == 0:
		_, err = io.WriteString(p.w, "[]\n")
	}
	return err
}
