package detect

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// recordEvery is the time between two notes of how far the output is.
const recordEvery = 200 * time.Millisecond

// output writes decisions as NDJSON. If it is a regular file, what was written after the last note
// is removed when the detector goes on, and written again. One goroutine uses it but for the
// counts. Notes are stored by a goroutine, one at a time.
type output struct {
	w    io.Writer
	file *os.File // nil for a stream
	own  bool     // the file is to be closed
	all  bool     // all decisions, not only anomalies
	enc  encode.Encoder
	size int64
	note time.Time
	line []byte

	storing chan struct{} // holds an element while a note is stored
	failed  error         // of the last note; guarded by storing

	mu        sync.Mutex
	hist      *hdrhistogram.Histogram // microseconds
	decisions uint64
	anomalies uint64
	dropped   uint64
}

// openOutput opens the output, and cuts a file off where it was noted last.
func openOutput(o *Options, last written) (*output, error) {
	out := &output{
		w: o.Out, all: o.All, hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3), note: time.Now(),
		storing: make(chan struct{}, 1),
	}
	if o.Output != "" && o.Output != "-" {
		f, err := os.OpenFile(o.Output, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, command.Usage("detect: --output: %v", err)
		}
		out.w, out.file, out.own = f, f, true
	} else if f, ok := o.Out.(*os.File); ok {
		out.file = f
	}
	if out.file == nil {
		return out, nil
	}
	info, err := out.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		out.file = nil
		return out, nil //nolint:nilerr // it is written as a stream
	}
	now, err := identify(out.file, 0)
	if err != nil {
		return out, err
	}
	if now == last.File && info.Size() > last.Size {
		if err := out.file.Truncate(last.Size); err != nil {
			return out, command.Usage("detect: output: %v", err)
		}
	}
	out.size, err = out.file.Seek(0, io.SeekEnd)
	if err != nil {
		return out, fmt.Errorf("detect: output: %w", err)
	}
	return out, nil
}

// begin notes the file before the first decision is written to it. Without that note a process that
// is killed before its first record would leave decisions that the next process writes again.
func (w *output) begin(ctx context.Context, s *state) error {
	if w.file == nil {
		return nil
	}
	now := written{Answer: s.out.Answer, Size: w.size}
	var err error
	if now.File, err = identify(w.file, 0); err != nil || now == s.out {
		return err
	}
	if err := s.output.Add(ctx, now); err != nil {
		return err
	}
	s.out = now
	return nil
}

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
	if len(w.line) == 0 {
		return nil
	}
	n, err := w.w.Write(w.line)
	w.size += int64(n)
	if err != nil {
		return fmt.Errorf("detect: output: %w", err)
	}
	return nil
}

// record notes that all answers up to one are written, unless that was done lately. It does not wait
// for the disk, so an error is that of the note before. With wait it returns when the note is
// stored.
func (w *output) record(ctx context.Context, s *state, answer uint64, wait bool) error {
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
	now := written{Answer: answer, Size: w.size}
	if w.failed != nil || answer == s.out.Answer {
		defer func() { <-w.storing }()
		return w.failed
	}
	w.note = time.Now()
	store := func() error {
		defer func() { <-w.storing }()
		w.failed = w.store(ctx, s, now)
		return w.failed
	}
	if wait {
		return store()
	}
	go func() { _ = store() }() // close waits for it
	return nil
}

// store stores a note, after what it says is on the disk.
func (w *output) store(ctx context.Context, s *state, now written) error {
	if w.file != nil {
		if err := w.file.Sync(); err != nil {
			return fmt.Errorf("detect: output: %w", err)
		}
		var err error
		if now.File, err = identify(w.file, 0); err != nil {
			return err
		}
	}
	if err := s.output.Add(ctx, now); err != nil {
		return err
	}
	s.out = now
	return s.output.Trim(ctx)
}

// close ends the notes, whose context has ended, and closes a file of its own.
func (w *output) close() error {
	w.storing <- struct{}{}
	if !w.own {
		return nil
	}
	return w.file.Close()
}
