// Command report measures the predictor and four published detectors on labelled streams, generated
// series, plants, quiet series and recorded telemetry, and writes the tables and the charts of
// docs/quality.md. The document states the protocol.
//
//	go run -C tools ./quality/report --doc ../docs/quality.md --charts ../docs/charts
//
// While parameters are chosen, --choose measures what may be looked at: the first half of the
// labelled streams, and generated series of other seeds without the families that are held back.
// It writes nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

type options struct {
	doc, charts string
	choose      bool
	agents      int
	each        int // series of a pair of family and incident
	opponents   bool
	quiet       int // series of a family
	seeds       int
	draws       int // of random parameters
	seed        uint64
	values      map[string]float64
	only        string // part to measure; empty: all
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := report(ctx, o, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

func parse(args []string) (*options, error) {
	o := options{values: map[string]float64{}}
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	f.StringVar(&o.doc, "doc", "", "document whose tables are replaced; empty: print them")
	f.StringVar(&o.charts, "charts", "", "folder for the charts; empty: none")
	f.StringVar(&o.only, "only", "", "part to measure: streams, generated, plants, quiet or recorded; empty: all")
	f.BoolVar(&o.choose, "choose", false, "measure only what parameters may be chosen on")
	f.IntVar(&o.agents, "agents", 256, "of a group")
	f.IntVar(&o.each, "each", 1, "generated series of each pair of family and incident")
	f.BoolVar(&o.opponents, "opponents", true, "measure the other detectors too")
	f.IntVar(&o.quiet, "quiet", 4, "quiet series of each family")
	f.IntVar(&o.seeds, "seeds", 5, "seeds of the swarm, for mean and deviation")
	f.IntVar(&o.draws, "draws", 16, "draws of random parameters")
	f.Uint64Var(&o.seed, "seed", 1000, "of the generated series; below 1,000 with --choose")
	f.Func("set", "parameter of the predictor, NAME=VALUE; may be repeated", func(s string) error {
		name, text, _ := strings.Cut(s, "=")
		v, err := strconv.ParseFloat(text, 64)
		o.values[name] = v
		return err
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.choose && o.seed >= 1000 {
		o.seed = 1
	}
	return &o, nil
}

// report measures everything, and writes blocks of text to the document, or to out.
func report(ctx context.Context, o *options, out, progress io.Writer) error {
	began := time.Now()
	m, err := newMeasurement(ctx, o)
	if err != nil {
		return err
	}
	var blocks []block
	for _, part := range []struct {
		name    string
		measure func() ([]block, error)
	}{
		{"streams", m.streams},
		{"generated", m.generated},
		{"plants", m.plants},
		{"quiet", m.quiet},
		{"recorded", m.recorded},
	} {
		if o.only != "" && o.only != part.name {
			continue
		}
		at := time.Now()
		some, err := part.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		blocks = append(blocks, some...)
		fmt.Fprintf(progress, "%s: %v\n", part.name, time.Since(at).Round(time.Second))
	}
	fmt.Fprintf(progress, "all: %v\n", time.Since(began).Round(time.Second))
	if o.doc == "" || o.choose {
		for _, b := range blocks {
			fmt.Fprintf(out, "## %s\n\n%s\n", b.name, b.text)
		}
		return nil
	}
	text, err := os.ReadFile(o.doc)
	if err != nil {
		return err
	}
	filled, rest, err := fill(string(text), blocks)
	if err != nil {
		return fmt.Errorf("%s: %w", o.doc, err)
	}
	for _, b := range rest {
		fmt.Fprintf(out, "## %s\n\n%s\n", b.name, b.text)
	}
	return os.WriteFile(o.doc, []byte(filled), 0o644)
}

// block is a text with a place in the document: between the comments "NAME" and "end of NAME".
type block struct{ name, text string }

var errPlace = errors.New("the place of a block has no end")

// fill replaces the text of every block that has a place, and returns the other blocks.
func fill(doc string, blocks []block) (filled string, rest []block, err error) {
	for _, b := range blocks {
		from, to := "<!-- "+b.name+" -->\n", "<!-- end of "+b.name+" -->"
		before, behind, ok := strings.Cut(doc, from)
		if !ok {
			rest = append(rest, b)
			continue
		}
		_, after, closed := strings.Cut(behind, to)
		if !closed {
			return "", nil, fmt.Errorf("%w: %q", errPlace, b.name)
		}
		doc = before + from + b.text + to + after
	}
	return doc, rest, nil
}

type table struct {
	strings.Builder
}

func newTable(head ...string) *table {
	var t table
	t.row(head...)
	t.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	return &t
}

func (t *table) row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func f1(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
func f2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
func f3(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func percent(part, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(of))
}
