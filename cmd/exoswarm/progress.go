package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
)

// progress shows how a run goes: one line that is rewritten on a terminal, a line every few seconds
// elsewhere, or a JSON object a line.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	mode  string
	shown time.Time
	last  cpuagents.StreamProgress // as it was told
	wait  string                   // what the run waits for; empty: nothing
	rates []rateSample             // of the last rateOver, oldest first
	open  bool                     // the line on the terminal has no end yet
}

const plainEvery = 5 * time.Second

// rateOver is the time over which the rate of decisions is taken: the rate is the present one, not
// that of the whole run.
const rateOver = 5 * time.Second

// rateSample is how many decisions there were at a time.
type rateSample struct {
	at        time.Time
	decisions uint64
}

// rate adds a sample and returns decisions a second over the last rateOver. The sample before that
// time stays as the base.
func (p *progress) rate(now time.Time, decisions uint64) float64 {
	p.rates = append(p.rates, rateSample{now, decisions})
	for len(p.rates) > 2 && now.Sub(p.rates[1].at) >= rateOver {
		p.rates = p.rates[1:]
	}
	first := p.rates[0]
	if decisions < first.decisions { // another attempt at the job has begun anew
		p.rates = p.rates[len(p.rates)-1:]
		return 0
	}
	return float64(decisions-first.decisions) / max(now.Sub(first.at).Seconds(), 1e-3)
}

func newProgress(mode string, w io.Writer) (*progress, error) {
	switch mode {
	case "plain", "json", "none":
	case "auto":
		mode = "plain"
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			mode = "terminal"
		}
	default:
		return nil, command.Usage("--progress %q: use auto, plain, json or none", mode)
	}
	return &progress{w: w, mode: mode, rates: []rateSample{{at: time.Now()}}}, nil
}

func (p *progress) update(s cpuagents.StreamProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Decisions > p.last.Decisions {
		p.wait = ""
	}
	p.last = s
	p.show(false)
}

// waiting says what the run waits for, as often as that changes; empty: nothing. What is new is
// shown at once.
func (p *progress) waiting(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word, _, _ := strings.Cut(text, " ")
	isNew := !strings.HasPrefix(p.wait, word) || p.wait == ""
	if text == "" || text == p.wait {
		p.wait = text
		return
	}
	p.wait = text
	p.show(isNew)
}

// show writes the line; with atOnce it does not wait for the next one to be due. p.mu is held.
func (p *progress) show(atOnce bool) {
	s, now := p.last, time.Now()
	rate, wait := p.rate(now, s.Decisions), ""
	if p.wait != "" {
		wait = ", " + p.wait
	}
	line := fmt.Sprintf("%d series: %d rows read, %d decided (%.0f/s), %d rejected%s%s", s.Series, s.Observations,
		s.Decisions, rate, s.Rejected, s.Note(), wait)
	switch {
	case p.mode == "terminal":
		fmt.Fprintf(p.w, "\r\033[K%s", line)
		p.open = true
	case p.mode == "json":
		_ = json.NewEncoder(p.w).Encode(struct {
			cpuagents.StreamProgress
			Rate    float64 `json:"rate"`              // decisions a second, now
			Waiting string  `json:"waiting,omitempty"` // for what
		}{s, rate, p.wait})
	case p.mode == "plain" && (s.Done || atOnce || now.Sub(p.shown) >= plainEvery):
		fmt.Fprintln(p.w, line)
		p.shown = now
	}
}

func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLine()
	if p.mode == "json" {
		_ = json.NewEncoder(p.w).Encode(map[string]string{"note": text})
		return
	}
	fmt.Fprintln(p.w, text)
}

// job says under which id a run goes, so that its output can be fetched whatever becomes of this
// process. With printed the id stands on standard output besides.
func (p *progress) job(id string, printed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "json" {
		_ = json.NewEncoder(p.w).Encode(map[string]string{"job": id})
		return
	}
	if !printed {
		fmt.Fprintf(p.w, "job %s (exoswarm run --attach %s --output FILE takes it up again)\n", id, id)
	}
}

// outcome says in JSON what a run has found of its labels; the table says it in words.
func (p *progress) outcome(labels *report.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "json" && labels != nil {
		_ = json.NewEncoder(p.w).Encode(map[string]*report.Outcome{"labels": labels})
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLine()
}

func (p *progress) endLine() {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}

// mostRows is how many series the table lists.
const mostRows = 60

// printTable ends a run: what became of each series, those with the most anomalies first, and of
// all.
func printTable(w io.Writer, r *cpuagents.StreamResult, series []cpuagents.SeriesSummary, d *destination,
	labels *report.Outcome,
) {
	series = slices.Clone(series)
	slices.SortStableFunc(series, func(a, b cpuagents.SeriesSummary) int {
		return cmp.Compare(b.Anomalies, a.Anomalies)
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "observations\tdecisions\tanomalies\trejected\t  series")
	for i, s := range series {
		if i == mostRows {
			break
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t  %s\n", s.Observations, s.Decisions, s.Anomalies, s.Rejected,
			listing.Cell(s.Name))
	}
	_ = t.Flush()
	if more := len(series) - mostRows; more > 0 {
		fmt.Fprintf(w, "... and %d more series\n", more)
	}
	what := ""
	if r.Interrupted {
		what = " before the interruption"
	}
	fmt.Fprintf(w, "\n%d series, %d observations%s, %d decisions, %d anomalies, %d rejected rows%s\n", len(series),
		r.Observations, what, r.Decisions, r.Anomalies, r.Rejected, r.Note())
	if labels != nil {
		fmt.Fprintln(w, labels)
	}
	fmt.Fprintf(w, "%.2f s, %.0f observations/s, from reading a row to its decision p50 %.1f ms, p99 %.1f ms\n\n",
		r.Seconds, float64(r.Observations)/max(r.Seconds, 1e-9), r.LatencyP50, r.LatencyP99)
	fmt.Fprintf(w, "decisions  %s\n", d.output.name)
	switch {
	case r.Rejected > 0 && d.hasRejects:
		fmt.Fprintf(w, "rejects    %s\n", d.rejects.name)
	case r.Rejected > 0:
		fmt.Fprintln(w, "rejects    (name a file with --rejects to see them)")
	}
	if d.hasReport {
		fmt.Fprintf(w, "report     %s\n", d.report.name)
	}
}
