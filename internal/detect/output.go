package detect

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// recordEvery is the time between two notes of how far the output is.
const recordEvery = 200 * time.Millisecond

// output writes decisions as NDJSON. If it is a regular file, what was written after the last note
// is removed when the detector goes on, and written again. One goroutine uses it but for the
// counts. Notes are stored by a goroutine, one at a time.
type output struct {
	place
	all   bool // all decisions, not only anomalies
	enc   encode.Encoder
	note  time.Time
	noted *notes
	line  []byte

	reached atomic.Uint64 // the place of the last answer that is written

	incidents place
	records   *explain.Writer // of incidents; nil for none

	storing chan struct{} // holds an element while a note is stored
	failed  error         // of the last note; guarded by storing

	mu        sync.Mutex
	hist      *hdrhistogram.Histogram // microseconds
	decisions uint64
	anomalies uint64
	dropped   uint64
}

// openOutput opens the output, and cuts a file off where it was noted last.
func openOutput(o *Options, noted *notes) (*output, error) {
	out := &output{
		all: o.All, hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3), note: time.Now(), noted: noted,
		storing: make(chan struct{}, 1),
	}
	if o.Output == "" && o.Anomalies != "" {
		return out, nil
	}
	var err error
	out.place, err = openPlace("--output", o.Output, o.Out, noted.last.decisions())
	return out, err
}

// begin notes the file before the first decision is written to it. Without that note a process that
// is killed before its first record would leave decisions that the next process writes again.
func (w *output) begin(ctx context.Context) error {
	if w.file == nil && w.incidents.file == nil {
		return nil
	}
	now := w.state(w.noted.last.Answer)
	if now == w.noted.last {
		return nil
	}
	return w.store(ctx, now)
}

// state returns a note of what the files have.
func (w *output) state(answer uint64) written {
	return written{Answer: answer, File: w.mark(), IncidentsFile: w.incidents.mark()}
}

// sync stores the files on the disk.
func (w *output) sync() error { return errors.Join(w.place.sync(), w.incidents.sync()) }

// write writes a batch of decisions. own is false for one that an earlier process has read.
func (w *output) write(d *batch.Decisions, candidates int, own bool) error {
	now := time.Now().UnixNano()
	w.line = w.line[:0]
	w.mu.Lock()
	for i := range d.Len() {
		if d.Decision[i] != batch.NoDecision && int(d.Decision[i]) >= candidates {
			w.mu.Unlock()
			return jobs.Errorf(jobs.CodeInvalid, "candidate %d of %d", d.Decision[i], candidates)
		}
		if encode.DropReason(d, i) != "" {
			w.dropped++
		} else {
			w.decisions++
		}
		anomaly := int(d.Decision[i]) == candidates-1
		if anomaly {
			w.anomalies++
		}
		if anomaly || w.all {
			w.line = w.enc.Spool(w.line, d, i)
		}
		if own {
			_ = w.hist.RecordValue(min(max((now-d.Read[i])/1000, 1), w.hist.HighestTrackableValue()))
		}
	}
	w.mu.Unlock()
	if len(w.line) == 0 || w.w == nil {
		return nil
	}
	_, err := w.Write(w.line)
	return err
}

// record notes that all answers up to one are written, unless that was done lately. It does not wait
// for the disk, so an error is that of the note before. With wait it returns when the note is
// stored.
func (w *output) record(ctx context.Context, answer uint64, wait bool) error {
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
	now := w.state(answer)
	if w.failed != nil || answer == w.noted.last.Answer {
		defer func() { <-w.storing }()
		return w.failed
	}
	w.note = time.Now()
	store := func() error {
		defer func() { <-w.storing }()
		w.failed = w.store(ctx, now)
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
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.noted.log.Add(ctx, now); err != nil {
		return err
	}
	w.noted.last = now
	return w.noted.log.Trim(ctx)
}

// close ends the notes, whose context has ended, and closes a file of its own.
func (w *output) close() error {
	w.storing <- struct{}{}
	return errors.Join(w.place.close(), w.incidents.close())
}
