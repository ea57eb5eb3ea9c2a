package report

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/exoswarm/exoswarm/internal/uplot"
)

// fill writes the page with its parts in place of their marks. It does not use html/template: that
// package looks up methods by name, so that the linker keeps every exported method of every type of
// the command (internal/size).
//
// Text passes through html.EscapeString. Data passes through json.Marshal, which escapes <, > and
// &.
func fill(w io.Writer, h Header, features []string, series int, drawn []*chart) error {
	data, err := json.Marshal(drawn)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	names, err := json.Marshal(append([]string{}, features...))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = strings.NewReplacer(
		"{{title}}", html.EscapeString(h.Title),
		"{{plot.css}}", uplot.CSS,
		"{{page.css}}", pageCSS,
		"{{summary}}", summary(h, series),
		"{{key}}", key(h, features, series, len(drawn)),
		"{{plot.js}}", uplot.JS,
		"{{features}}", string(names),
		"{{data}}", string(data),
		"{{page.js}}", pageJS,
	).WriteString(w, page)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// plural returns the word for the charts of a run.
func (h *Header) plural() string {
	if len(h.Keys) > 0 {
		return "entities"
	}
	return "series"
}

// summary returns the line of totals as HTML.
func summary(h Header, series int) string {
	var b strings.Builder
	r := &h.Result
	item := func(format string, args ...any) { fmt.Fprintf(&b, "\n<span>"+format+"</span>", args...) }
	item("<b>%d</b> %s", series, h.plural())
	item("<b>%d</b> observations", r.Observations)
	item("<b>%d</b> %s", r.Anomalies, html.EscapeString(h.Anomaly))
	item("<b>%d</b> rejected rows", r.Rejected)
	if r.Sum() > 0 {
		item("<b>%d</b> late, <b>%d</b> duplicate observations dropped", r.Late, r.Duplicates)
	}
	item("<b>%.0f</b> observations/s", float64(r.Observations)/max(r.Seconds, 1e-9))
	item("read to decision p50 <b>%.1f ms</b>, p99 <b>%.1f ms</b>", r.LatencyP50, r.LatencyP99)
	if h.Labels != nil {
		item("%s", h.Labels)
	}
	if r.Interrupted {
		b.WriteString("\n" + `<span class="warn">interrupted: only the rows read before</span>`)
	}
	b.WriteString("\n")
	return b.String()
}

// key returns the legend of the charts as HTML.
func key(h Header, features []string, series, drawn int) string {
	var b strings.Builder
	for i, name := range features {
		fmt.Fprintf(&b, `<i class="f%d"></i> %s `, i, html.EscapeString(name))
	}
	fmt.Fprintf(&b, `<i class="s"></i> score, 0 to 1 <i class="a"></i> %s &nbsp; drag to zoom, double-click to reset`,
		html.EscapeString(h.Anomaly))
	if h.Labels != nil {
		b.WriteString("\n" + `<i class="l"></i> labelled and found <i class="m"></i> labelled and missed`)
	}
	if drawn < series {
		fmt.Fprintf(&b, "\n&nbsp; the %d %s with the most anomalies are drawn", drawn, h.plural())
	}
	if more := len(h.Features) - len(features); more > 0 {
		fmt.Fprintf(&b, "\n&nbsp; %d more features are in the output", more)
	}
	return b.String()
}
