package runjob

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// progress shows the progress of a run: one line that is rewritten on a terminal, a line every few
// seconds elsewhere, or JSON lines. Its methods may be called from several goroutines.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	mode  string                   // terminal, plain, json or none
	shown time.Time                // when the last plain line was written
	last  cpuagents.StreamProgress // as it was told
	wait  string                   // what the run waits for; empty: nothing
	rates []rateSample             // of the last rateOver, oldest first
	open  bool                     // the line on the terminal has no end yet
}

// plainEvery is the time between two plain lines.
const plainEvery = 5 * time.Second

// rateOver is the time over which the rate of decisions is measured. It is not the rate of the
// whole run.
const rateOver = 5 * time.Second

// rateSample is the number of decisions at a time.
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
	if decisions < first.decisions { // another attempt at the job has started
		p.rates = p.rates[len(p.rates)-1:]
		return 0
	}
	return float64(decisions-first.decisions) / max(now.Sub(first.at).Seconds(), 1e-3)
}

// newProgress returns the progress on w, as the flag --progress says.
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

// waiting sets what the run waits for; empty: nothing. It shows a new reason at once, and news of
// the same reason when a line is due.
func (p *progress) waiting(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The first word, such as waiting or the name of an agent, identifies the reason.
	word, _, _ := strings.Cut(text, " ")
	isNew := !strings.HasPrefix(p.wait, word) || p.wait == ""
	if text == "" || text == p.wait {
		p.wait = text
		return
	}
	p.wait = text
	p.show(isNew)
}

// show writes the line, with atOnce also before the next one is due. p.mu is held.
func (p *progress) show(atOnce bool) {
	s, now := p.last, time.Now()
	rate, wait := p.rate(now, s.Decisions), ""
	if p.wait != "" {
		wait = ", " + p.wait
	}
	line := fmt.Sprintf("%d series: %d rows read, %d decided (%.0f/s), %d rejected%s%s", s.Series, s.Observations,
		s.Decisions, rate, s.Rejected, s.Note(), wait)
	if s.Entities > 0 {
		line = fmt.Sprintf("%d entities: %d rows read, %d decided (%.0f/s), %d rejected%s%s%s", s.Entities,
			s.Observations, s.Decisions, rate, s.Rejected, s.Keyless.Note(), s.Note(), wait)
	}
	switch {
	case p.mode == "terminal":
		fmt.Fprintf(p.w, "\r\033[K%s", line)
		p.open = true
	case p.mode == "json":
		s.Found = nil // it is for those who watch the cluster
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

// note writes a separate line.
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

// job shows the id of the job, by which its output can be fetched when this process has ended.
// printed says that the id goes to standard output too.
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

// outcome shows in JSON which labels the run has found; the table has the same in words.
func (p *progress) outcome(labels *report.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == "json" && labels != nil {
		_ = json.NewEncoder(p.w).Encode(map[string]*report.Outcome{"labels": labels})
	}
}

// end completes the line on a terminal.
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
