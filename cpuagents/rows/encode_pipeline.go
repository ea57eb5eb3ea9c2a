package rows

import (
	"bytes"
	"sync"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// pipelineBatches is the batches that wait between the caller, the workers and the writer. Each is
// some megabytes with its lines.
const pipelineBatches = 4

// Pipeline writes batches of decisions of entities in the order in which it gets them. Workers
// encode several batches at the same time, and one goroutine writes them. The bytes do not depend
// on the workers. One goroutine uses it: it calls Add for each batch, and Close once.
type Pipeline struct {
	enc   Encoder
	work  chan *piece // to the workers
	order chan *piece // to the writer, after work
	free  chan []byte // buffers to use again
	all   sync.WaitGroup

	failed chan struct{} // closed when err is set
	err    error
	closed bool
}

// piece is a batch on its way. A worker puts its text into text, which has room for it.
type piece struct {
	d    *batch.Decisions
	text chan []byte
}

// NewPipeline starts a pipeline with a number of workers. The caller has called Begin of the
// encoder, and uses only its Spool until Close has returned.
func NewPipeline(enc Encoder, workers int) *Pipeline {
	p := &Pipeline{
		enc: enc, work: make(chan *piece, pipelineBatches), order: make(chan *piece, pipelineBatches),
		free: make(chan []byte, 2*pipelineBatches), failed: make(chan struct{}),
	}
	for range max(workers, 1) {
		p.all.Go(p.encode)
	}
	p.all.Go(p.write)
	return p
}

// Add hands a batch on, which must not change until Close returns. It waits while the batches
// before it are too many. It returns the error of writing this batch or an earlier one.
func (p *Pipeline) Add(d *batch.Decisions) error {
	next := &piece{d: d, text: make(chan []byte, 1)}
	select {
	case <-p.failed:
		return p.err
	case p.work <- next: // a worker never waits, so there is room at some time
	}
	p.order <- next // the writer takes all, also after an error
	return nil
}

func (p *Pipeline) encode() {
	for next := range p.work {
		var text []byte
		select {
		case text = <-p.free:
		default:
		}
		for i := range next.d.Group {
			text = p.enc.Spool(text, next.d, i)
		}
		next.text <- text
	}
}

// write writes batches in their order until there are no more. After an error it writes nothing.
func (p *Pipeline) write() {
	for next := range p.order {
		text := <-next.text
		if p.err == nil {
			if err := p.enc.Piece(0, bytes.NewReader(text)); err != nil {
				p.err = err
				close(p.failed)
			}
		}
		select {
		case p.free <- text[:0]:
		default:
		}
	}
}

// Close returns when all batches are written, with the error of the writer. A second call returns
// the same.
func (p *Pipeline) Close() error {
	if !p.closed {
		p.closed = true
		close(p.work)
		close(p.order)
		p.all.Wait()
	}
	return p.err
}
