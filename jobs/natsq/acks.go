package natsq

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// ackBatcher removes the jobs of one worker from their queues. The acknowledgement of one job is
// one synced write of the server, and a purge of many jobs is one too. Jobs that one fetch brought
// leave by a purge where that is possible, else by acknowledgements. If the worker dies first, the
// next delivery of a job finds its result and removes it.
//
// A purge removes all jobs of a source up to a sequence number, so the batcher must know before
// that all of them have results. It knows the jobs of its runs. For the gaps before and between its
// runs it asks the leader of the stream, where jobs only disappear and never appear before others.
//
// The caller calls Track after each fetch, and then for each job of the fetch Done or Returned
// once. The methods may be called from several goroutines.
type ackBatcher struct {
	conn    *natsconn.Conn
	log     *slog.Logger
	maxWait time.Duration // longestWait or less
	// Only the loop uses these two.
	nextPurge time.Time // no purge before
	slow      bool      // the last purge was slower than acknowledgements

	mu      sync.Mutex
	runs    map[wire.Source][]*run // in the order of their sequence numbers
	members map[*nats.Msg]member
	done    int // how many jobs are in the state done
	// single are the acknowledgement subjects of jobs that have results and are in no run. They are
	// sent with the next fetch or after flushDelay.
	single []string

	wake  chan struct{}
	flush *time.Timer
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// run is a gapless part of one fetch: the source has no other job between its first and its last.
type run struct {
	jobs    []fetched
	running int // how many of the jobs are in the state running
}

// fetched is what the batcher keeps of a delivery. It does not keep the body.
type fetched struct {
	subject, reply string
	seq            uint64
	state          state
	since          time.Time // when it left the state running
}

// state is where a job is on its way out of the queue. It moves from running to another state, and
// from done to acked.
type state uint8

const (
	running  state = iota // the worker executes it
	done                  // it has its result
	acked                 // it is acknowledged or purged
	returned              // the worker gave it back to the queue
)

// member is the place of a job in its run.
type member struct {
	run *run
	i   int
}

const (
	// minRun is the shortest run that is worth the three round trips of a purge. The jobs of a
	// shorter one are acknowledged.
	minRun = 8
	// flushDelay is how long an acknowledgement waits for the next fetch. The server removes the
	// last job of a queue by removing a file and making another, before it stores the next job.
	// Sent at once, that took 0.3 of the 1.2 ms of a job that was submitted as the one before it
	// ended. After a fetch that brought the next job the queue is not empty, and the rest happens
	// while that job runs.
	flushDelay = 5 * time.Millisecond
	// longestWait is how long a job with a result waits for the jobs before it, or for the next
	// purge. Then it is acknowledged. A sixth of a lease bounds it too, so that no lease ends
	// meanwhile.
	longestWait = time.Second
	// retryDelay is the pause before the server is asked again which jobs prevent a purge.
	retryDelay = 20 * time.Millisecond
	// passTimeout bounds the requests of one pass. A batcher that is closed acknowledges after it.
	passTimeout = 2 * time.Second
)

// A purge reads every queued subject while it has the stream locked: 2.3 ms with a thousand
// subjects, 133 ms with 100,000 (measured on two cores with a load of 30). So purges take a fifth
// of the time at most, and a purge that takes longer removes more jobs. After two purges in a row
// that were slower than acknowledgements, and too slow for the jobs to wait for the next one, the
// pause is twenty times the time of the purge. One such purge may be due to a busy disk.
const (
	pauseFactor     = 4
	slowPauseFactor = 20
	ackTime         = 250 * time.Microsecond // of one acknowledgement: an fsync, measured 0.17 to 0.28 ms
)

func startAcks(c *natsconn.Conn, log *slog.Logger) *ackBatcher {
	b := newBatcher(c, log)
	b.ended.Go(b.loop)
	return b
}

func newBatcher(c *natsconn.Conn, log *slog.Logger) *ackBatcher {
	return &ackBatcher{
		conn: c, log: log, maxWait: min(longestWait, c.Lease/6), runs: map[wire.Source][]*run{},
		members: map[*nats.Msg]member{}, wake: make(chan struct{}, 1), flush: time.NewTimer(flushDelay),
		stop: make(chan struct{}),
	}
}

// Track records the deliveries that one fetch got from a source, in their order. A fetch without
// jobs changes nothing.
func (b *ackBatcher) Track(s wire.Source, msgs []*nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(msgs) > 0 {
		b.flushSingle()
	}
	if len(msgs) < minRun {
		return
	}
	var cur *run
	var before nats.SequencePair
	first := 0
	end := func(i int) {
		if cur == nil || len(cur.jobs) < minRun {
			return
		}
		cur.running = len(cur.jobs)
		for j, m := range msgs[first:i] {
			b.members[m] = member{cur, j}
		}
		all := append(b.runs[s], cur)
		// Fetches of one worker may overtake each other.
		sort.Slice(all, func(i, j int) bool { return all[i].jobs[0].seq < all[j].jobs[0].seq })
		b.runs[s] = all
	}
	for i, m := range msgs {
		meta, err := m.Metadata()
		// A consumer makes first deliveries in order, and numbers all deliveries. So between two
		// first deliveries with consecutive numbers there is no other job. This holds within one
		// fetch only, because a server that crashed between two fetches may have reused its
		// numbers.
		fresh := err == nil && meta.NumDelivered == 1
		if cur == nil || !fresh || meta.Sequence.Consumer != before.Consumer+1 ||
			meta.Sequence.Stream <= before.Stream {
			end(i)
			cur, first = nil, i
		}
		if !fresh {
			continue
		}
		if cur == nil {
			cur = &run{jobs: make([]fetched, 0, len(msgs)-i)}
		}
		cur.jobs = append(cur.jobs, fetched{subject: m.Subject, reply: m.Reply, seq: meta.Sequence.Stream})
		before = meta.Sequence
	}
	end(len(msgs))
}

// Done removes a job from the queue. The caller must have stored the result, and the dead letter if
// the job has one. With later the job leaves within the longest wait, otherwise at once, so that a
// redrive of the job does not find it in the queue.
func (b *ackBatcher) Done(m *nats.Msg, later bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, tracked := b.members[m]
	switch {
	case !later:
		b.end(m, acked)
		return m.Ack()
	case tracked:
		b.end(m, done)
	default:
		if b.single = append(b.single, m.Reply); len(b.single) == 1 {
			b.flush.Reset(flushDelay)
		}
	}
	return nil
}

// flushSingle acknowledges the jobs that are in no run. It must be called with mu held.
func (b *ackBatcher) flushSingle() {
	for _, reply := range b.single {
		if err := b.conn.NC.Publish(reply, []byte("+ACK")); err != nil {
			b.log.Warn("job not acknowledged; it will be given out again", "error", err)
		}
	}
	b.single = b.single[:0]
}

// Returned takes note that the worker gives a job back to the queue, or leaves it to its lease. For
// a job that is done it does nothing.
func (b *ackBatcher) Returned(m *nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(m, returned)
}

// end moves a job out of the state running. For a job that is in no run, or not running, it does
// nothing. It must be called with mu held.
func (b *ackBatcher) end(m *nats.Msg, s state) {
	at, ok := b.members[m]
	if !ok {
		return
	}
	delete(b.members, m)
	f := &at.run.jobs[at.i]
	f.state, f.since = s, time.Now()
	at.run.running--
	if s == done {
		b.done++
	}
	if at.run.running == 0 || b.done == 1 { // a run to purge, or a wait to begin
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// loop makes a pass after each event that may allow one, and every retryDelay while jobs wait.
func (b *ackBatcher) loop() {
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	defer b.flush.Stop()
	for {
		select {
		case <-b.wake:
		case <-late.C:
		case <-b.flush.C:
		case <-b.stop:
			b.pass(true)
			return
		}
		if b.pass(false) {
			late.Reset(retryDelay)
		}
	}
}

// pass purges the jobs that can be purged. It acknowledges the jobs that are in no run or have
// waited too long; at the end of the worker, all that are done. more reports whether jobs are left
// that are done.
func (b *ackBatcher) pass(ending bool) (more bool) {
	b.mu.Lock()
	b.flushSingle()
	sources := make([]wire.Source, 0, len(b.runs))
	for s := range b.runs {
		sources = append(sources, s)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), passTimeout)
	defer cancel()
	for _, s := range sources {
		if ctx.Err() == nil && (ending || time.Now().After(b.nextPurge)) {
			if err := b.purge(ctx, s); err != nil {
				b.log.Warn("jobs that are done leave the queue one by one", "queue", s.Tail(), "error", err)
			}
		}
		b.acknowledge(s, ending)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done > 0
}

// purge removes the jobs of a source up to the first that may have no result. It continues from run
// to run as long as the server has no other job before the next run.
func (b *ackBatcher) purge(ctx context.Context, s wire.Source) error {
	upTo := uint64(0)
	for from := uint64(1); b.purgeable(s, from); from = upTo + 1 {
		first, err := b.conn.NextOnce(ctx, s.Stream(), s.Job("*"), from)
		if errors.Is(err, jobs.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		last, whole := b.doneUpTo(s, first)
		if last.seq == 0 {
			break
		}
		// A server that lost the end of its stream gives the same numbers to other jobs, so the
		// last one must still be the same job.
		if last.seq != first.Seq {
			m, err := b.conn.GetOnce(ctx, s.Stream(), map[string]any{"seq": last.seq})
			if err != nil && !errors.Is(err, jobs.ErrNotFound) {
				return err
			}
			if err != nil || m.Subject != last.subject {
				break
			}
		}
		if upTo = last.seq; !whole {
			break
		}
	}
	if upTo == 0 {
		return nil
	}
	began := time.Now()
	n, err := b.conn.PurgeOnce(ctx, s.Stream(), s.Job("*"), upTo+1)
	took := time.Since(began)
	b.nextPurge = time.Now().Add(pauseFactor * took)
	slow := took > max(b.maxWait/pauseFactor, time.Duration(n)*ackTime)
	if slow && b.slow {
		b.nextPurge = time.Now().Add(slowPauseFactor * took)
	}
	b.slow = slow
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, run := range b.runs[s] {
		for i := range run.jobs {
			if f := &run.jobs[i]; f.state == done && f.seq <= upTo {
				f.state = acked
				b.done--
			}
		}
	}
	return nil
}

// purgeable reports whether all jobs of a run have ended whose last sequence number is at least
// from.
func (b *ackBatcher) purgeable(s wire.Source, from uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, run := range b.runs[s] {
		if run.running == 0 && run.jobs[len(run.jobs)-1].seq >= from {
			return true
		}
	}
	return false
}

// doneUpTo returns the last job of the run of first up to which all jobs from first on have their
// results. It returns the zero value if first is in no run, or in one with a running job. whole
// reports whether it is the last job of its run.
func (b *ackBatcher) doneUpTo(s wire.Source, first *natsconn.Message) (last fetched, whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, run := range b.runs[s] {
		i := sort.Search(len(run.jobs), func(i int) bool { return run.jobs[i].seq >= first.Seq })
		if run.running > 0 || i == len(run.jobs) || run.jobs[i].seq != first.Seq ||
			run.jobs[i].subject != first.Subject {
			continue
		}
		for ; i < len(run.jobs) && (run.jobs[i].state == done || run.jobs[i].state == acked); i++ {
			last = run.jobs[i]
		}
		return last, i == len(run.jobs)
	}
	return last, false
}

// acknowledge acknowledges the jobs of a source that have waited for maxWait, or all that are done,
// and forgets the runs whose jobs have all left.
func (b *ackBatcher) acknowledge(s wire.Source, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []*run
	for _, run := range b.runs[s] {
		waiting := run.running
		for i := range run.jobs {
			f := &run.jobs[i]
			if f.state != done {
				continue
			}
			if !all && time.Since(f.since) < b.maxWait {
				waiting++
				continue
			}
			if err := b.conn.NC.Publish(f.reply, []byte("+ACK")); err != nil {
				b.log.Warn("job not acknowledged; it will be given out again", "subject", f.subject, "error", err)
			}
			f.state = acked
			b.done--
		}
		if waiting > 0 {
			kept = append(kept, run)
		}
	}
	if b.runs[s] = kept; len(kept) == 0 {
		delete(b.runs, s)
	}
}

// Close removes all jobs that are done and waits for the loop. A second call does nothing.
func (b *ackBatcher) Close() {
	b.once.Do(func() { close(b.stop) })
	b.ended.Wait()
}
