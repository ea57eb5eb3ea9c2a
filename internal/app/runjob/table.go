package runjob

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// mostRows bounds the series of the table.
const mostRows = 60

// printTable prints the counts of each series, those with the most anomalies first, the sums, the
// first rejected row, and the files of the output.
func printTable(w io.Writer, r *cpuagents.StreamResult, series []cpuagents.SeriesSummary, d *userfile.Destination,
	h *report.Header, firstReject string,
) {
	what, one := "series", "series"
	if len(h.Keys) > 0 {
		what, one = "entities", "entity"
	}
	series = slices.Clone(series)
	slices.SortStableFunc(series, func(a, b cpuagents.SeriesSummary) int {
		return cmp.Compare(b.Anomalies, a.Anomalies)
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "observations\tdecisions\tanomalies\trejected\t  "+one)
	for i, s := range series {
		if i == mostRows {
			break
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t  %s\n", s.Observations, s.Decisions, s.Anomalies, s.Rejected,
			command.Cell(s.Name))
	}
	_ = t.Flush()
	if more := len(series) - mostRows; more > 0 {
		fmt.Fprintf(w, "... and %d more %s\n", more, what)
	}
	ended := ""
	if r.Interrupted {
		ended = " before the interruption"
	}
	fmt.Fprintf(w, "\n%d %s, %s%s, %s, %s, %s%s%s\n", len(series), what,
		command.Count(r.Observations, "observation", "observations"), ended,
		command.Count(r.Decisions, "decision", "decisions"),
		command.Count(r.Anomalies, "anomaly", "anomalies"), command.Count(r.Rejected, "rejected row", "rejected rows"),
		r.Keyless.Note(), r.Note())
	if r.Rejected > 0 && firstReject != "" {
		fmt.Fprintf(w, "the first rejected row is of %s\n", firstReject)
	}
	if r.Early > 0 {
		fmt.Fprintf(w, "warning: %d rows have numbers for timestamps that mean times before 1990, as seconds since "+
			"1970: if they are none, set csv.time, as in csv.time: excel for the days of spreadsheets\n", r.Early)
	}
	short := 0
	for _, s := range series {
		if s.Observations < userfile.SampleMinRows {
			short++
		}
	}
	if 2*short >= len(series) && short > 0 {
		fmt.Fprintf(w, "warning: %d of %d %s have fewer than %d rows, too few to learn what is normal: check key "+
			"in the specification, or give more rows\n", short, len(series), what, userfile.SampleMinRows)
	}
	if h.Labels != nil {
		fmt.Fprintln(w, h.Labels)
	}
	fmt.Fprintf(w, "%.2f s, %.0f observations/s, from reading a row to its decision p50 %.1f ms, p99 %.1f ms\n\n",
		r.Seconds, float64(r.Observations)/max(r.Seconds, 1e-9), r.LatencyP50, r.LatencyP99)
	if d.HasOutput() {
		fmt.Fprintf(w, "decisions  %s\n", d.Output())
	}
	if d.AnomaliesPath() != "" {
		fmt.Fprintf(w, "incidents  %s\n", d.AnomaliesPath())
	}
	switch {
	case r.Rejected > 0 && d.RejectsPath() != "":
		fmt.Fprintf(w, "rejects    %s\n", d.RejectsPath())
	case r.Rejected > 0:
		fmt.Fprintln(w, "rejects    (name a file with --rejects to see them)")
	}
	if d.ReportPath() != "" {
		fmt.Fprintf(w, "report     %s\n", d.ReportPath())
	}
}
