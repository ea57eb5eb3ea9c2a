package run

import (
	"context"
	"errors"
	"io"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// recordEvery is the time between two notes of how far the output is.
const recordEvery = 200 * time.Millisecond

// output is the sink of a detector: it writes decisions as NDJSON, and incidents. If they are
// regular files, what was written after the last note is removed when the detector continues, and
// written again. Notes are stored by a goroutine, one at a time.
type output struct {
	o      *detectOptions
	layout rows.Layout
	noted  *notes
	has    uint64 // the last answer that the files had at the start
	began  int64  // in Unix nanoseconds: rows that were read before are of an earlier process

	decisions place
	enc       rows.Encoder
	line      []byte
	incidents place
	records   *explain.Writer // of incidents; nil for none

	work    context.Context //nolint:containedctx // of Open, which ends after the last note
	reached uint64          // the last answer that is written
	kept    atomic.Uint64   // the answer of the last note
	note    time.Time       // when it was begun
	storing chan struct{}   // holds an element while a note is stored
	failed  error           // of the last note; guarded by storing

	hist   *hdrhistogram.Histogram // microseconds
	counts struct{ decisions, anomalies, dropped uint64 }
}

// newOutput returns the output of a detector, which was noted last.
func newOutput(o *detectOptions, layout rows.Layout, noted *notes) *output {
	w := &output{
		o: o, layout: layout, noted: noted, has: noted.last.Answer, began: time.Now().UnixNano(),
		enc: rows.NewNDJSONEncoder(layout), hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
		note: time.Now(), storing: make(chan struct{}, 1), reached: noted.last.Answer,
	}
	w.kept.Store(w.has)
	return w
}

// openWebhook returns the sink of --webhook. The process may reach the host of the URL, and no
// other.
func openWebhook(name string, spec sink.WebhookSpec, layout rows.Layout) (sink.Sink, error) {
	u, err := url.Parse(spec.URL)
	if err != nil || u.Host == "" {
		return nil, command.Usage("--webhook %q: write a URL such as https://alerts.example.org/exoswarm",
			redact.Secrets(spec.URL))
	}
	guard, err := access.NewGuard([]string{u.Host})
	if err != nil {
		return nil, command.Usage("--webhook: %v", err)
	}
	hook, err := sink.NewWebhook("detect-"+name, spec, layout, guard, nil)
	if err != nil {
		return nil, command.Usage("--webhook: %v", err)
	}
	return hook, nil
}

// Open implements sink.Sink: it opens the files, cuts them off where they were noted last, and
// notes them before the first decision is written. Without that note a process that is killed
// before its first record would leave decisions that the next process writes again.
func (w *output) Open(ctx context.Context, _ swarms.Log) (err error) {
	w.work = ctx
	if w.o.Output != "" || w.o.Anomalies == "" {
		if w.decisions, err = openPlace("--output", w.o.Output, w.o.Out, w.noted.last.decisions()); err != nil {
			return err
		}
	}
	if w.o.Anomalies != "" {
		if err := w.openIncidents(); err != nil {
			return err
		}
	}
	if w.decisions.file == nil && w.incidents.file == nil {
		return nil
	}
	now := w.state(w.has)
	if now == w.noted.last {
		return nil
	}
	return w.store(ctx, now)
}

// openIncidents opens the file of incidents. A new CSV file begins with a header.
func (w *output) openIncidents() (err error) {
	w.incidents, err = openPlace("--anomalies", w.o.Anomalies, w.o.Out, w.noted.last.incidents())
	if err != nil {
		return err
	}
	format := "ndjson"
	if w.o.Anomalies != "-" {
		if format, err = incidentFormat(w.o.Anomalies); err != nil {
			return err
		}
	}
	into := io.Writer(&w.incidents)
	if format == "csv" && w.incidents.size > 0 {
		into = &skipFirst{w: into}
	}
	w.records = explain.NewWriter(into, w.layout, format == "csv")
	return w.records.Flush()
}

// state returns a note of what the files have.
func (w *output) state(answer uint64) written {
	return written{Answer: answer, File: w.decisions.mark(), IncidentsFile: w.incidents.mark()}
}

// SendIncidents implements cpuagents.IncidentSink.
func (w *output) SendIncidents(answer uint64, ended []explain.Incident) error {
	if w.records == nil || answer <= w.has {
		return nil
	}
	for i := range ended {
		if err := w.records.Write(&ended[i]); err != nil {
			return err
		}
	}
	return w.records.Flush()
}

// Send implements sink.Sink.
func (w *output) Send(_ context.Context, answer uint64, d *batch.Decisions) error {
	if answer <= w.has {
		return nil
	}
	now := time.Now().UnixNano()
	w.line = w.line[:0]
	for i := range d.Len() {
		if rows.DropReason(d, i) != "" {
			w.counts.dropped++
		} else {
			w.counts.decisions++
		}
		anomaly := int(d.Decision[i]) == len(w.layout.Candidates)-1
		if anomaly {
			w.counts.anomalies++
		}
		if anomaly || w.o.All {
			w.line = w.enc.Spool(w.line, d, i)
		}
		if d.Read[i] >= w.began {
			_ = w.hist.RecordValue(min(max((now-d.Read[i])/1000, 1), w.hist.HighestTrackableValue()))
		}
	}
	if len(w.line) > 0 && w.decisions.w != nil {
		if _, err := w.decisions.Write(w.line); err != nil {
			return err
		}
	}
	w.reached = answer
	return w.record(false)
}

// Held implements sink.Holder: the decisions behind the last note are written again.
func (w *output) Held() uint64 {
	if kept := w.kept.Load(); w.reached > kept {
		return kept + 1
	}
	return 0
}

// End implements sink.Sink.
func (w *output) End(context.Context) error { return w.record(true) }

// record notes that all answers up to the last one are written, unless it did so lately. It does
// not wait for the disk, so it returns the error of the note before. With wait it returns when the
// note is stored.
func (w *output) record(wait bool) error {
	if !wait && time.Since(w.note) < recordEvery {
		return nil
	}
	if wait {
		w.storing <- struct{}{} // a note that is stored ends with its context
	} else {
		select {
		case w.storing <- struct{}{}:
		default:
			return nil
		}
	}
	now := w.state(w.reached)
	if w.failed != nil || w.reached == w.noted.last.Answer {
		defer func() { <-w.storing }()
		return w.failed
	}
	w.note = time.Now()
	store := func() error {
		defer func() { <-w.storing }()
		w.failed = w.store(w.work, now)
		return w.failed
	}
	if wait {
		return store()
	}
	go func() { _ = store() }() // close waits for it
	return nil
}

// store stores a note, after what it says is on the disk.
func (w *output) store(ctx context.Context, now written) error {
	if err := errors.Join(w.decisions.sync(), w.incidents.sync()); err != nil {
		return err
	}
	if err := w.noted.log.Add(ctx, now); err != nil {
		return err
	}
	w.noted.last = now
	w.kept.Store(now.Answer)
	return w.noted.log.Trim(ctx)
}

// close ends the notes, whose context has ended, and closes the files.
func (w *output) close() error {
	w.storing <- struct{}{}
	return errors.Join(w.decisions.close(), w.incidents.close())
}

// Close implements sink.Sink.
func (w *output) Close() { _ = w.close() }
