package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// ListFlag adds the flag -o to a command, which chooses the format of New: table, json, jsonl or
// yaml.
func ListFlag(f *pflag.FlagSet) { OutputFlag(f, "table", "json", "jsonl", "yaml") }

// Printer writes the items of one list, each when Item is called: a long list needs no memory. A
// table shows the columns of an item; the other formats show the whole item. One goroutine uses a
// Printer. The caller ends the list with End, also when Item has failed before.
type Printer struct {
	w      io.Writer
	format string
	table  *tabwriter.Writer
	n      int // items so far
}

// NewPrinter starts a list on w with the titles of its columns, in the format of the flag of Flag.
// It fails with an error of usage for any other format.
func NewPrinter(w io.Writer, f *pflag.FlagSet, columns ...string) (*Printer, error) {
	if err := CheckOutput(f); err != nil {
		return nil, err
	}
	format, _ := f.GetString("output")
	p := &Printer{w: w, format: format}
	if format == "table" {
		p.table = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(p.table, strings.Join(columns, "\t"))
	}
	return p, nil
}

// tableBlock is the number of rows that share their widths. Between blocks, rows are written, so a
// table of a million rows is written while it is read.
const tableBlock = 200

// Item writes one item: v in the formats of programs, row in a table. A column is one line, of up
// to MaxCell bytes, without characters that control a terminal.
func (p *Printer) Item(v any, row ...any) error {
	p.n++
	if p.format == "table" {
		text := make([]string, len(row))
		for i, c := range row {
			text[i] = Cell(fmt.Sprint(c))
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

// MaxCell bounds a column of a table in bytes: names and errors that other users chose may have
// megabytes.
const MaxCell = 2000

// Cell returns a text as a table shows it: one line of up to MaxCell bytes, without characters that
// control a terminal.
func Cell(text string) string { return redact.Short(redact.Line(text), MaxCell) }

// Len returns the number of items so far.
func (p *Printer) Len() int { return p.n }

// escaped replaces the runes of JSON that control a terminal by \uXXXX, which means the same. The
// encoder escapes only those below a space.
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

// Flush writes the rows so far, for a list that grows while the reader waits.
func (p *Printer) Flush() error {
	if p.format == "table" {
		return p.table.Flush()
	}
	return nil
}

// yaml writes an item by its JSON, so that fields have the names of the protocol.
func (p *Printer) yaml(data []byte) error {
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

// End completes the list.
func (p *Printer) End() error {
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

// Size returns a number of bytes for people, such as 512 B or 1.5 GiB.
func Size(n int64) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < 5 {
		v /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, " KMGTP"[unit])
}

// Count returns a number with its noun, as in 1 anomaly or 2 anomalies.
func Count[N int | int64 | uint64 | uint32](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
