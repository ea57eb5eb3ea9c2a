package command

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// TestPrinter: a list is well-formed in every format, with no, one and many items, and a table of
// many is written as it comes.
func TestPrinter(t *testing.T) {
	type item struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	for _, format := range []string{"table", "json", "jsonl", "yaml"} {
		for _, n := range []int{0, 1, 450} {
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			ListFlag(flags)
			if err := flags.Set("output", format); err != nil {
				t.Fatalf("set -o %s: %v", format, err)
			}
			var b bytes.Buffer
			p, err := NewPrinter(&b, flags, "NAME", "N")
			if err != nil {
				t.Fatalf("begin a list as %s: %v", format, err)
			}
			for i := range n {
				if err := p.Item(item{"true", i}, "a\tb\nc", i); err != nil {
					t.Fatalf("item %d as %s: %v", i, format, err)
				}
			}
			if err := p.End(); err != nil || p.Len() != n {
				t.Fatalf("end a list as %s: error %v, length %d, want %d", format, err, p.Len(), n)
			}
			var got []item
			switch format {
			case "table":
				if lines := strings.Count(b.String(), "\n"); lines != n+1 {
					t.Errorf("a table of %d items has %d lines, want %d", n, lines, n+1)
				}
				continue
			case "json":
				err = json.Unmarshal(b.Bytes(), &got)
			case "jsonl":
				for dec := json.NewDecoder(&b); dec.More(); {
					var i item
					if err = dec.Decode(&i); err != nil {
						break
					}
					got = append(got, i)
				}
			case "yaml":
				err = yaml.Unmarshal(b.Bytes(), &got)
			}
			if err != nil || len(got) != n || n > 0 && got[n-1] != (item{"true", n - 1}) {
				t.Errorf("a list of %d items as %s is read as %d items, error %v", n, format, len(got), err)
			}
		}
	}
}

// TestFormat: a format that does not exist is an error of usage.
func TestFormat(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	ListFlag(flags)
	if err := flags.Set("output", "xml"); err != nil {
		t.Fatalf("set -o xml: %v", err)
	}
	if _, err := NewPrinter(io.Discard, flags, "NAME"); err == nil ||
		!strings.Contains(err.Error(), "use table, json, jsonl or yaml") {
		t.Errorf("-o xml: error %v, want the list of formats", err)
	}
}

// TestCell: foreign text is one line of a bounded length, and no format lets it control a terminal.
func TestCell(t *testing.T) {
	if got := Cell(strings.Repeat("x", 10*MaxCell)); len(got) > MaxCell+10 {
		t.Errorf("a long text has %d bytes in a table, want about %d", len(got), MaxCell)
	}
	const foreign = "a\x1b[2Jb\u009bc\nd"
	for _, format := range []string{"table", "json", "jsonl", "yaml"} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		ListFlag(flags)
		if err := flags.Set("output", format); err != nil {
			t.Fatalf("set -o %s: %v", format, err)
		}
		var b bytes.Buffer
		p, err := NewPrinter(&b, flags, "NAME")
		if err == nil {
			err = p.Item(map[string]string{"name": foreign}, foreign)
		}
		if err == nil {
			err = p.End()
		}
		if err != nil || strings.ContainsAny(b.String(), "\x1b\u009b") {
			t.Errorf("%s: %q, error %v; want no control characters", format, b.String(), err)
		}
	}
}

// TestSize: numbers of bytes have at most one digit behind the point.
func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 30: "1.0 GiB",
		1 << 60: "1024.0 PiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) is %q, want %q", n, got, want)
		}
	}
}
