package cpuagents

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// orderedOutput writes decisions, series after series. They arrive with the series mixed, so they
// are first spooled to a file, and ordered at the end. The memory grows with the runs of decisions
// of a series and not with the input. The decisions of a job with a key are written as they come,
// without a spool; that is the order of the rows of each entity. Without an output it only counts.
// One goroutine uses it: it calls take for each batch, then finish, and close in any case.
type orderedOutput struct {
	counts    *counts
	explainer *explain.Explainer // nil for none
	incidents []explain.Incident // that have ended
	latency   latencies          // from the reading of a row to its decision here

	candidates int
	out        io.Writer // nil: there is no output
	enc        rows.Encoder
	pack       string
	packer     io.WriteCloser // of decisions in the order in which they come; nil for a spool
	pipe       *rows.Pipeline // encodes and writes them
	spool      *os.File
	w          *bufio.Writer
	at         int64      // bytes spooled
	pieces     [][]extent // by series
	line       []byte
}

// extent is a run of decisions of one series in the spool, in bytes.
type extent struct{ off, n int64 }

// newOrderedOutput returns the output of a stream into out, which may be nil. out stays the
// caller's: it is complete after finish, and the caller makes it visible or throws it away.
func newOrderedOutput(s *stream, out io.Writer) (*orderedOutput, error) {
	k := &orderedOutput{
		counts: s.counts, explainer: s.explainer, latency: newLatencies(), candidates: len(s.spec.Candidates), out: out,
	}
	if out == nil {
		return k, nil
	}
	var err error
	if k.enc, k.pack, err = rows.NewEncoder(s.spec.OutputFormat, s.layout()); err != nil {
		return nil, err
	}
	if s.entities != nil {
		return k, k.direct()
	}
	k.pieces = make([][]extent, len(s.series))
	if k.spool, err = s.agent.Files.Spool(); err != nil {
		return nil, err
	}
	k.w = bufio.NewWriterSize(k.spool, 1<<20)
	return k, nil
}

// take counts and spools one batch of decisions, which the caller does not change afterwards. It
// checks groups and candidates, because the batch comes from another process. Each batch is taken
// once and in the order of the log, so counts need no check for repetitions. After an error the
// output is not complete, and the caller must not call finish.
func (k *orderedOutput) take(d *batch.Decisions) error {
	if err := k.count(d); err != nil {
		return err
	}
	switch {
	case k.pipe != nil:
		if err := k.pipe.Add(d); err != nil {
			return access.IOError("write", "the output", err)
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

func (k *orderedOutput) count(d *batch.Decisions) error {
	now := time.Now().UnixNano()
	if err := k.counts.check(d, k.candidates); err != nil {
		return err
	}
	if k.explainer != nil {
		k.incidents = append(k.incidents, k.explainer.Explain(d)...)
	}
	k.counts.addDecisions(d)
	for _, read := range d.Read {
		k.latency.record(time.Duration(now - read))
	}
	if len(d.Read) > 0 {
		k.counts.metrics.decided(time.Duration(now - d.Read[0]))
	}
	return nil
}

// encodeWorkers is the goroutines that encode the decisions of a job with a key. Each of them takes
// about half a microsecond for a decision, as long as the goroutine that writes.
const encodeWorkers = 2

// direct begins an output that has the decisions in the order in which they come.
func (k *orderedOutput) direct() (err error) {
	k.w = bufio.NewWriterSize(k.out, 1<<20)
	if k.packer, err = rows.NewPacker(k.w, k.pack); err != nil {
		return err
	}
	if err := k.enc.Begin(k.packer); err != nil {
		return access.IOError("write", "the output", err)
	}
	k.pipe = rows.NewPipeline(k.enc, encodeWorkers)
	return nil
}

func (k *orderedOutput) end() (err error) {
	if k.pipe != nil {
		err = k.pipe.Close()
	}
	if err == nil {
		err = k.enc.End()
	}
	return packed(k.packer, k.w, err)
}

// packed ends the packing and the buffer of an output, whose encoding has ended with an error or
// nil.
func packed(p io.Closer, w *bufio.Writer, err error) error {
	if err = cmp.Or(err, p.Close()); err == nil {
		err = w.Flush()
	}
	if err != nil {
		return access.IOError("write", "the output", err)
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
	p, err := rows.NewPacker(w, k.pack)
	if err != nil {
		return err
	}
	return packed(p, w, k.encode(p))
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

// close releases the spool, and ends the goroutines. It does not close the output.
func (k *orderedOutput) close() {
	if k.pipe != nil {
		_ = k.pipe.Close() // finish has returned its error
	}
	if k.spool != nil {
		_ = k.spool.Close()
	}
}
