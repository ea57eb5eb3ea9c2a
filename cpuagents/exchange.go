package cpuagents

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// exchange is what the two goroutines of a run tell each other: numbers of batches, from 1. Rows go
// to the swarm through its log, and return as decisions.
type exchange struct {
	decided *statelog.Answered // batches whose decisions all sinks have taken
	ahead   chan struct{}      // read has grown, or the input has ended; collect alone receives

	mu    sync.Mutex
	sent  uint64                // batches in the logs
	read  uint64                // batches whose rows were read
	over  bool                  // the input has ended,
	total uint64                // and has this many batches
	plans map[uint64]*batchPlan // of unanswered batches, by number
}

func newExchange() *exchange {
	return &exchange{
		decided: statelog.NewAnswered(0), ahead: make(chan struct{}, 1), plans: map[uint64]*batchPlan{},
	}
}

// next returns the number of the batch whose decisions come next. Only collect changes it.
func (x *exchange) next() uint64 { return x.decided.Entry() + 1 }

// noteDecided notes that the sinks have the decisions of batch next.
func (x *exchange) noteDecided() { x.decided.Reach(x.next()) }

// room returns when fewer than feed.Unanswered batches before a number are unanswered. This bounds
// the memory of the swarm's log reader and the time between a row and its decision.
func (x *exchange) room(ctx context.Context, number uint64) error {
	return x.decided.Await(ctx, number-min(number, feed.Unanswered))
}

// noteSent notes that all batches up to a number are in the logs.
func (x *exchange) noteSent(number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = max(x.sent, number)
}

// due reports whether a batch is in the logs without an answer, and whether any batch has one.
func (x *exchange) due() (due, begun bool) {
	decided := x.decided.Entry()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent > decided, decided > 0
}

// noteRead notes that the rows of all batches up to a number were read.
func (x *exchange) noteRead(number uint64) {
	x.mu.Lock()
	x.read = number
	x.mu.Unlock()
	x.signalAhead()
}

// end notes that the input has ended, after a number of batches.
func (x *exchange) end(batches uint64) {
	x.mu.Lock()
	x.over, x.total = true, batches
	x.mu.Unlock()
	x.signalAhead()
}

// signalAhead does not block: a signal that was not received yet stands for this one too.
func (x *exchange) signalAhead() {
	select {
	case x.ahead <- struct{}{}:
	default:
	}
}

// awaitRead returns when the rows of a batch were read. An attempt that continues a job finds
// decisions in the log before it has read their rows again.
func (x *exchange) awaitRead(ctx context.Context, number uint64) error {
	for {
		x.mu.Lock()
		ready := number <= x.read
		x.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-x.ahead:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// allDecided reports whether the input has ended and each of its batches is decided.
func (x *exchange) allDecided() bool {
	decided := x.decided.Entry()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over && decided == x.total
}

// putPlan hands the plan of a batch to collect.
func (x *exchange) putPlan(number uint64, p *batchPlan) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plans[number] = p
}

// takePlan returns the plan of batch next; nil if its rows were not read yet.
func (x *exchange) takePlan() *batchPlan {
	number := x.next()
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.plans[number]
	delete(x.plans, number)
	return p
}
