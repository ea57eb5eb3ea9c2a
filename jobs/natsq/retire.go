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

// retirer takes jobs that have their results out of the queue. An acknowledgement of one job is one
// write to disk on the server that is waited for, a purge of many is one too; so jobs that were
// fetched together leave by a purge, if they can, and by acknowledgements if not. Whatever a worker
// does not come to, the next delivery of the job does: it finds the result.
//
// A purge removes everything of a source up to a sequence number, so before it the retirer makes
// sure that all of it has a result. What a run holds it knows. That nothing is left before and
// between its runs it asks the server, where messages only disappear and never come in before
// others.
type retirer struct {
	c     *Conn
	log   *slog.Logger
	grace time.Duration // longestGrace or less
	// Of the loop alone:
	rest time.Time // no purge before
	slow bool      // the last one was slower than acknowledgements

	mu   sync.Mutex
	runs map[wire.Source][]*run // in order of their sequence numbers
	of   map[*nats.Msg]member
	over int // how many jobs are in the state over
	// Acknowledgements, by their subjects, of jobs that have results and are in no run: they go
	// with the next fetch or after a lull.
	alone []string

	wake  chan struct{}
	lull  *time.Timer
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// run is what one fetch got of one source without a gap: between its first and its last there is no
// job of the source that is not in it.
type run struct {
	jobs []fetched
	out  int // how many of them are in the state out
}

// fetched is what is kept of a delivery; its body is not.
type fetched struct {
	subject, reply string
	seq            uint64
	state          state
	since          time.Time // when it left the state out
}

type state uint8

const (
	out   state = iota // with the worker
	over               // has its result
	acked              // and was acknowledged
	left               // given back to the queue
)

type member struct {
	run *run
	i   int
}

const (
	// shortest run that is worth three round trips; jobs of a shorter one are acknowledged.
	shortest = 8
	// lull is how long an acknowledgement waits for the next fetch. The server takes the last job
	// out of a queue by removing a file and making another, before it stores the next job: sent at
	// once, that was 0.3 of the 1.2 ms of a job submitted as the one before it ended. When a fetch
	// has brought the next job, the queue is not empty, and what is left of it happens while that
	// is done.
	lull = 5 * time.Millisecond
	// longestGrace is how long a job with a result waits for those before it, or for its turn. Then
	// it is acknowledged. A sixth of a lease bounds it too, so that no lease ends meanwhile.
	longestGrace = time.Second
	// again is how soon the server is asked again about what is in the way.
	again = 20 * time.Millisecond
	// answer is how long the server may take over one pass; a worker that ends acknowledges then.
	answer = 2 * time.Second
)

// A purge looks at every subject that is queued, with the stream locked: 2.3 ms when a thousand
// are, 133 ms when 100,000 are (measured on two cores with a load of 30). So it takes a fifth of
// the time at most, and gets more jobs the longer it takes. When the jobs cannot wait for the next
// one, and single acknowledgements would have been as fast, twice in a row, there is none for
// twenty times as long: once is a disk that was busy.
const (
	share  = 4
	rare   = 20
	single = 250 * time.Microsecond // of the server for an acknowledgement: an fsync, 0.17 to 0.28 ms measured
)

// newRetirer makes a retirer whose loop does not run yet.
func (c *Conn) newRetirer(log *slog.Logger) *retirer {
	r := &retirer{
		c: c, log: log, grace: min(longestGrace, c.Lease/6), runs: map[wire.Source][]*run{}, of: map[*nats.Msg]member{},
		wake: make(chan struct{}, 1), lull: time.NewTimer(lull), stop: make(chan struct{}),
	}
	return r
}

// track notes what one fetch got of a source.
func (r *retirer) track(s wire.Source, msgs []*nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(msgs) > 0 {
		r.dismiss()
	}
	if len(msgs) < shortest {
		return
	}
	var cur *run
	var before nats.SequencePair
	first := 0
	end := func(i int) {
		if cur == nil || len(cur.jobs) < shortest {
			return
		}
		cur.out = len(cur.jobs)
		for j, m := range msgs[first:i] {
			r.of[m] = member{cur, j}
		}
		all := append(r.runs[s], cur)
		// Fetches of one worker may overtake each other.
		sort.Slice(all, func(a, b int) bool { return all[a].jobs[0].seq < all[b].jobs[0].seq })
		r.runs[s] = all
	}
	for i, m := range msgs {
		meta, err := m.Metadata()
		// A consumer hands everything out for the first time in order, and numbers what it hands
		// out: jobs that were handed out for the first time, one number after the other, have no
		// other job between them. That holds within one fetch only; between two, a server that has
		// crashed may have gone back in its numbers.
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

// retire takes a job that has its result out of the queue: at once, or within a moment when later.
func (r *retirer) retire(m *nats.Msg, later bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, tracked := r.of[m]
	switch {
	case !later:
		r.end(m, acked)
		return m.Ack()
	case tracked:
		r.end(m, over)
	default:
		if r.alone = append(r.alone, m.Reply); len(r.alone) == 1 {
			r.lull.Reset(lull)
		}
	}
	return nil
}

// dismiss acknowledges the jobs in no run. It must be called with mu held.
func (r *retirer) dismiss() {
	for _, reply := range r.alone {
		if err := r.c.NC.Publish(reply, []byte("+ACK")); err != nil {
			r.log.Warn("job not acknowledged; it will be given out again", "error", err)
		}
	}
	r.alone = r.alone[:0]
}

// leave notes that a job goes back to the queue. For one that is over it does nothing.
func (r *retirer) leave(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(m, left)
}

// end must be called with mu held.
func (r *retirer) end(m *nats.Msg, s state) {
	at, ok := r.of[m]
	if !ok {
		return
	}
	delete(r.of, m)
	f := &at.run.jobs[at.i]
	f.state, f.since = s, time.Now()
	at.run.out--
	if s == over {
		r.over++
	}
	if at.run.out == 0 || r.over == 1 { // a run to purge, or a clock to start
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *retirer) loop() {
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	defer r.lull.Stop()
	for {
		select {
		case <-r.wake:
		case <-late.C:
		case <-r.lull.C:
		case <-r.stop:
			r.pass(true)
			return
		}
		if r.pass(false) {
			late.Reset(again)
		}
	}
}

// pass purges what can be purged and acknowledges what is in no run or has waited too long, or all
// that is over when the worker ends; more says that jobs are left that are over.
func (r *retirer) pass(ending bool) (more bool) {
	r.mu.Lock()
	r.dismiss()
	sources := make([]wire.Source, 0, len(r.runs))
	for s := range r.runs {
		sources = append(sources, s)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answer)
	defer cancel()
	for _, s := range sources {
		if ctx.Err() == nil && (ending || time.Now().After(r.rest)) {
			if err := r.purge(ctx, s); err != nil {
				r.log.Warn("jobs that are done leave the queue one by one", "queue", s.Tail(), "error", err)
			}
		}
		r.acknowledge(s, ending)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over > 0
}

// purge removes the jobs of a source up to the first that may have no result.
func (r *retirer) purge(ctx context.Context, s wire.Source) error {
	upTo := uint64(0)
	for from := uint64(1); r.worth(s, from); from = upTo + 1 {
		first, err := r.c.NextOnce(ctx, wire.JobStream(s.Pool), s.Job("*"), from)
		if errors.Is(err, jobs.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		last, whole := r.reach(s, first)
		if last.seq == 0 {
			break
		}
		// A server that has lost the end of its stream gives the numbers out anew, so ask whether
		// that one is the same job still.
		if last.seq != first.Seq {
			m, err := r.c.GetOnce(ctx, wire.JobStream(s.Pool), map[string]any{"seq": last.seq})
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
	n, err := r.c.PurgeOnce(ctx, wire.JobStream(s.Pool), s.Job("*"), upTo+1)
	took := time.Since(began)
	r.rest = time.Now().Add(share * took)
	slow := took > max(r.grace/share, time.Duration(n)*single)
	if slow && r.slow {
		r.rest = time.Now().Add(rare * took)
	}
	r.slow = slow
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs[s] {
		for i := range run.jobs {
			if f := &run.jobs[i]; f.state == over && f.seq <= upTo {
				f.state = acked
				r.over--
			}
		}
	}
	return nil
}

// worth says whether there is a run from a sequence number on that a purge could take.
func (r *retirer) worth(s wire.Source, from uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs[s] {
		if run.out == 0 && run.jobs[len(run.jobs)-1].seq >= from {
			return true
		}
	}
	return false
}

// reach returns the last job up to which everything from first on has its result, the zero value
// when first has none as far as is known here. whole says that it is the last of its run.
func (r *retirer) reach(s wire.Source, first *natsconn.Message) (last fetched, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs[s] {
		i := sort.Search(len(run.jobs), func(i int) bool { return run.jobs[i].seq >= first.Seq })
		if run.out > 0 || i == len(run.jobs) || run.jobs[i].seq != first.Seq || run.jobs[i].subject != first.Subject {
			continue
		}
		for ; i < len(run.jobs) && (run.jobs[i].state == over || run.jobs[i].state == acked); i++ {
			last = run.jobs[i]
		}
		return last, i == len(run.jobs)
	}
	return last, false
}

// acknowledge ends the wait of the jobs of a source that have waited for the grace, or of all, and
// forgets the runs that are done with.
func (r *retirer) acknowledge(s wire.Source, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*run
	for _, run := range r.runs[s] {
		waiting := run.out
		for i := range run.jobs {
			f := &run.jobs[i]
			if f.state != over {
				continue
			}
			if !all && time.Since(f.since) < r.grace {
				waiting++
				continue
			}
			if err := r.c.NC.Publish(f.reply, []byte("+ACK")); err != nil {
				r.log.Warn("job not acknowledged; it will be given out again", "subject", f.subject, "error", err)
			}
			f.state = acked
			r.over--
		}
		if waiting > 0 {
			kept = append(kept, run)
		}
	}
	if r.runs[s] = kept; len(kept) == 0 {
		delete(r.runs, s)
	}
}

// close takes out what is over and ends the retirer. A second call does nothing.
func (r *retirer) close() {
	r.once.Do(func() { close(r.stop) })
	r.ended.Wait()
}
