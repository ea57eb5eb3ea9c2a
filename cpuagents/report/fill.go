package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/picture"
)

// fill writes the page with its parts in place of their marks. It does not use html/template: that
// package looks up methods by name, so that the linker keeps every exported method of every type of
// the command (tools/size).
//
// Text passes through html.EscapeString. Data passes through json.Marshal, which escapes <, > and
// &.
func fill(w io.Writer, h Header, features []string, drawn []*chart) error {
	names, err := json.Marshal(append([]string{}, features...))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	index, err := json.Marshal(indexOf(drawn))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	head, tail, _ := strings.Cut(page, "{{data}}")
	replace := strings.NewReplacer(
		"{{title}}", html.EscapeString(h.Title),
		"{{plot.css}}", picture.UPlotCSS,
		"{{page.css}}", pageCSS,
		"{{summary}}", summary(h, len(drawn)),
		"{{key}}", key(h, features),
		"{{entities}}", h.plural(),
		"{{plot.js}}", picture.UPlotJS,
		"{{features}}", string(names),
		"{{index}}", string(index),
		"{{page.js}}", pageJS,
	)
	out := bufio.NewWriterSize(w, 1<<16)
	if _, err := replace.WriteString(out, head); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	// One line per chart, so that the page parses only what it draws.
	for _, c := range drawn {
		data, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if _, err := out.Write(append(data, '\n')); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if _, err := replace.WriteString(out, tail); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// entry is an entity in the index of the page, which the overview and the list are made of. It has
// the same place in the index as its chart.
type entry struct {
	Name      string       `json:"n"`
	Rows      uint64       `json:"r"`
	Count     uint64       `json:"c"` // anomalies
	Score     float64      `json:"s"` // the highest one
	Labels    int          `json:"l,omitempty"`
	Found     int          `json:"f,omitempty"`
	Incidents [][2]float64 `json:"i,omitempty"` // begin and end
	Range     [2]float64   `json:"t"`           // of the times; 0 without rows
}

func indexOf(drawn []*chart) []entry {
	all := make([]entry, len(drawn))
	for i, c := range drawn {
		e := entry{Name: c.Name, Rows: c.Rows, Count: c.Count, Labels: len(c.Labels)}
		for _, l := range c.Labels {
			if l.Found {
				e.Found++
			}
		}
		for _, s := range c.Score {
			e.Score = max(e.Score, s)
		}
		for _, s := range c.Spans {
			if s.Incident {
				e.Incidents = append(e.Incidents, [2]float64{s.Begin, s.End})
			}
		}
		if len(c.Spans) == 0 {
			for _, a := range c.Anomalies {
				e.Incidents = append(e.Incidents, [2]float64{a.X, a.X})
			}
		}
		if n := len(c.X); n > 0 {
			e.Range = [2]float64{c.X[0], c.X[n-1]}
		}
		all[i] = e
	}
	return all
}

func (h *Header) plural() string {
	if len(h.Keys) > 0 {
		return "entities"
	}
	return "series"
}

func summary(h Header, series int) string {
	var b strings.Builder
	r := &h.Result
	item := func(format string, args ...any) { fmt.Fprintf(&b, "\n<span>"+format+"</span>", args...) }
	item("<b>%d</b> %s", series, h.plural())
	item("<b>%d</b> observations", r.Observations)
	item("<b>%d</b> %s", r.Anomalies, html.EscapeString(h.Anomaly))
	if r.Seconds > 0 { // unknown for decisions of an earlier run
		item("<b>%d</b> rejected rows", r.Rejected)
	}
	if r.Sum() > 0 {
		item("<b>%d</b> late, <b>%d</b> duplicate observations dropped", r.Late, r.Duplicates)
	}
	if r.Seconds > 0 {
		item("<b>%.0f</b> observations/s", float64(r.Observations)/max(r.Seconds, 1e-9))
		item("read to decision p50 <b>%.1f ms</b>, p99 <b>%.1f ms</b>", r.LatencyP50, r.LatencyP99)
	}
	if h.Labels != nil {
		item("%s", h.Labels)
	}
	if r.Interrupted {
		b.WriteString("\n" + `<span class="warn">interrupted: only the rows read before</span>`)
	}
	b.WriteString("\n")
	return b.String()
}

func key(h Header, features []string) string {
	var b strings.Builder
	for i, name := range features {
		fmt.Fprintf(&b, `<i class="f%d"></i> %s `, i%8, html.EscapeString(name))
	}
	fmt.Fprintf(&b, `<i class="s"></i> score, 0 to 1 <i class="a"></i> %s`,
		html.EscapeString(h.Anomaly))
	if h.Normal != "" {
		b.WriteString(` <i class="o"></i> incident <i class="q"></i> suspicious`)
	}
	b.WriteString(` <i class="e"></i> expected band &nbsp; drag to zoom all charts, double-click to reset`)
	if h.Labels != nil {
		b.WriteString("\n" + `<i class="l"></i> labelled and found <i class="m"></i> labelled and missed`)
	}
	if more := len(h.Features) - len(features); more > 0 {
		fmt.Fprintf(&b, "\n&nbsp; %d more features are in the output", more)
	}
	return b.String()
}
