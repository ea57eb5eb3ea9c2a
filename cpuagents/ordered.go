package cpuagents

import (
	"bufio"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// orderedOutput writes decisions, series after series. They arrive with the series mixed, so they
// are first spooled to a file, and ordered at the end. The memory grows with the runs of decisions
// of a series and not with the input. The decisions of a job with a key are written as they come,
// without a spool; that is the order of the rows of each entity. Without an output it only counts.
// One goroutine uses it: it calls take for each batch, then finish, and close in any case.
type orderedOutput struct {
	s      *stream
	out    io.Writer // nil: there is no output
	enc    encode.Encoder
	pack   string
	packer io.WriteCloser   // of decisions in the order in which they come; nil for a spool
	pipe   *encode.Pipeline // encodes and writes them
	spool  *os.File
	w      *bufio.Writer
	at     int64      // bytes spooled
	pieces [][]extent // by series
	line   []byte
	hist   *hdrhistogram.Histogram // microseconds
}

// extent is a run of decisions of one series in the spool, in bytes.
type extent struct{ off, n int64 }

// newOrderedOutput returns the output of a stream into out, which may be nil. out stays the
// caller's: it is complete after finish, and the caller makes it visible or throws it away.
func newOrderedOutput(s *stream, out io.Writer) (*orderedOutput, error) {
	k := &orderedOutput{
		s:    s,
		out:  out,
		hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
	}
	if out == nil {
		return k, nil
	}
	var err error
	if k.enc, k.pack, err = encode.New(s.spec.OutputFormat, s.layout()); err != nil {
		return nil, err
	}
	if s.entities != nil {
		return k, k.direct()
	}
	k.pieces = make([][]extent, len(s.series))
	if k.spool, err = s.Files.Spool(); err != nil {
		return nil, err
	}
	k.w = bufio.NewWriterSize(k.spool, 1<<20)
	return k, nil
}

// take counts and spools one batch of decisions, which the caller does not change afterwards. It checks
// groups and candidates, because the batch comes from another process. Each batch is taken once and
// in the order of the log, so counts need no check for repetitions. After an error the output is
// not complete, and the caller must not call finish.
func (k *orderedOutput) take(d *batch.Decisions) error {
	if err := k.count(d); err != nil {
		return err
	}
	switch {
	case k.pipe != nil:
		if err := k.pipe.Add(d); err != nil {
			return fault.IO("write", "the output", err)
		}
	case k.spool != nil:
		for i := range d.Group {
			if err := k.keep(d, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// count checks and counts a batch, and explains it. Nothing is encoded under the lock.
func (k *orderedOutput) count(d *batch.Decisions) error {
	now := time.Now().UnixNano()
	candidates := len(k.s.spec.Candidates)
	if d.Candidates != candidates {
		return jobs.Errorf(
			jobs.CodeInvalid, "decisions between %d candidates, the spec names %d", d.Candidates, candidates,
		)
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	for i, g := range d.Group {
		if int(g) >= len(k.s.summary) || d.Decision[i] != batch.NoDecision && int(d.Decision[i]) >= candidates {
			return jobs.Errorf(
				jobs.CodeInvalid, "decision %d: group %d and candidate %d are not of this swarm", i, g, d.Decision[i],
			)
		}
	}
	if k.s.explainer != nil {
		k.s.incidents = append(k.s.incidents, k.s.explainer.Explain(d)...)
	}
	for i, g := range d.Group {
		sum := &k.s.summary[g]
		if !sum.count(d, i) {
			sum.Decisions++
			k.s.state.Decisions++
		} else {
			k.s.state.count(d, i)
		}
		if int(d.Decision[i]) == candidates-1 {
			sum.Anomalies++
		}
		// A value beyond the histogram's hour counts as an hour.
		_ = k.hist.RecordValue(min(max((now-d.Read[i])/1000, 1), k.hist.HighestTrackableValue()))
	}
	if len(d.Read) > 0 {
		k.s.Metrics.decided(time.Duration(now - d.Read[0]))
	}
	return nil
}

// encodeWorkers is the goroutines that encode the decisions of a job with a key. Each of them takes
// about half a microsecond for a decision, as long as the goroutine that writes.
const encodeWorkers = 2

// direct begins an output that has the decisions in the order in which they come.
func (k *orderedOutput) direct() (err error) {
	k.w = bufio.NewWriterSize(k.out, 1<<20)
	if k.packer, err = encode.NewPacker(k.w, k.pack); err != nil {
		return err
	}
	if err := k.enc.Begin(k.packer); err != nil {
		return fault.IO("write", "the output", err)
	}
	k.pipe = encode.NewPipeline(k.enc, encodeWorkers)
	return nil
}

// end completes such an output.
func (k *orderedOutput) end() (err error) {
	if k.pipe != nil {
		err = k.pipe.Close()
	}
	if err == nil {
		err = k.enc.End()
	}
	if cerr := k.packer.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = k.w.Flush()
	}
	if err != nil {
		return fault.IO("write", "the output", err)
	}
	return nil
}

// keep spools decision i. Consecutive decisions of one series become one extent, so a batch of one
// series costs 16 bytes of memory, however many decisions it has.
func (k *orderedOutput) keep(d *batch.Decisions, i int) error {
	g := d.Group[i]
	k.line = k.enc.Spool(k.line[:0], d, i)
	n := int64(len(k.line))
	if _, err := k.w.Write(k.line); err != nil {
		return files.ScratchError("write", "the spool of decisions", err)
	}
	if p := k.pieces[g]; len(p) > 0 && p[len(p)-1].off+p[len(p)-1].n == k.at {
		p[len(p)-1].n += n
	} else {
		k.pieces[g] = append(p, extent{k.at, n})
	}
	k.at += n
	return nil
}

// finish writes the spool to the output, series after series. It reads the spool once, with a
// buffer of a megabyte, so its memory does not grow with the decisions.
func (k *orderedOutput) finish() error {
	if k.out == nil {
		return nil
	}
	if k.packer != nil {
		return k.end()
	}
	if err := k.w.Flush(); err != nil {
		return files.ScratchError("write", "the spool of decisions", err)
	}
	w := bufio.NewWriterSize(k.out, 1<<20)
	p, err := encode.NewPacker(w, k.pack)
	if err != nil {
		return err
	}
	err = k.encode(p)
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fault.IO("write", "the output", err)
	}
	return nil
}

// encode writes the document: the runs of each series in the order in which they were spooled.
func (k *orderedOutput) encode(w io.Writer) error {
	if err := k.enc.Begin(w); err != nil {
		return err
	}
	for series, pieces := range k.pieces {
		for _, p := range pieces {
			if err := k.enc.Piece(series, io.NewSectionReader(k.spool, p.off, p.n)); err != nil {
				return err
			}
		}
	}
	return k.enc.End()
}

// latency returns a percentile of the latencies in milliseconds. It is the time from the reading of
// a row to its decision here, with three digits.
func (k *orderedOutput) latency(percent float64) float64 {
	return float64(k.hist.ValueAtPercentile(percent)) / 1000
}

// close releases the spool, and ends the goroutines. It does not close the output.
func (k *orderedOutput) close() {
	if k.pipe != nil {
		_ = k.pipe.Close() // finish has returned its error
	}
	if k.spool != nil {
		_ = k.spool.Close()
	}
}
