package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// spec has two jobs, one of a tenant.
const spec = `{"vote":{"candidates":["a","b"]},"jobs":{"retrain":{"pool":"cpu","kind":"k",` +
	`"spec":{"round":"$(round)","by":"$(winner)"},` +
	`"result_ttl_s":1},"page":{"pool":"cpu","kind":"k","spec":"$(decision)","tenant":"acme"}}}`

// create stores the record of a swarm with jobs.
func create(t testing.TB, c *natsq.Conn, nonce string) swarms.Swarm {
	t.Helper()
	s := swarms.Swarm{
		Version: jobs.Version, ID: "s", Name: "s", Spec: []byte(spec), Groups: 1, Nonce: nonce,
		Created: time.Now().UTC(),
	}
	if err := c.Swarms.CreateSwarm(t.Context(), s); err != nil {
		t.Fatalf("CreateSwarm: %v", err)
	}
	return s
}

// asked returns the emission that an entry makes by a rule.
func asked(s swarms.Swarm, name string, entry uint64, rule int) swarms.Emission {
	return swarms.Emission{
		Version: jobs.Version, Swarm: s.ID, Identity: s.Identity(), Name: name, Rule: rule, Entry: entry, Round: entry,
		Winner: "a", Candidates: []string{"a", "b"}, Votes: []uint64{2, 1},
	}
}

// queued returns the ids of the jobs in the queue of pool cpu, in order.
func queued(t *testing.T, c *natsq.Conn) (all []string) {
	t.Helper()
	if err := c.Queue.Jobs(t.Context(), jobs.PoolCPU, func(j jobs.Job) bool {
		all = append(all, j.ID)
		return true
	}); err != nil {
		t.Fatalf("Jobs: %v", err)
	}
	return all
}

// TestSubmitOnce: writers that each submit the jobs of the same log, from random places on and at
// the same time, through a gateway or themselves, have every job done once. Jobs end meanwhile, and
// their results expire. The twin is the log itself.
func TestSubmitOnce(t *testing.T) {
	t.Parallel()
	srv, _ := jobstest.InProcess(t, natsq.Connect)
	submitOnce(t, 30, func() *natsq.Conn { return jobstest.Open(t, srv, natsq.Connect) })
}

func submissions(c *natsq.Conn) *gateway.Submissions {
	return gateway.NewSubmissions(c.Conn, c.Queue, c.Swarms)
}

// submitOnce is TestSubmitOnce for a log of last entries.
func submitOnce(t *testing.T, last uint64, connect func() *natsq.Conn) {
	t.Helper()
	c := connect()
	s := create(t, c, swarms.NewNonce())
	const writers = 4
	via := connect()
	g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	defer g.Close()
	var mu sync.Mutex
	done := map[string]int{}
	jobstest.Work(t, connect().Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Concurrency: 1, Handlers: map[string]jobs.Handler{
			"k": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				done[j.ID+" "+string(j.Spec)]++
				return nil, nil
			},
		},
	})
	var all sync.WaitGroup
	for w := range writers {
		own := connect()
		submit := submissions(own).Submit
		if w%2 == 1 {
			submit = gateway.NewRules(own.Conn).Submit
		}
		all.Go(func() {
			replay(t, w, last, func(entry uint64, rule int) error {
				return submit(t.Context(), asked(s, "retrain", entry, rule))
			})
		})
	}
	all.Wait()
	testkit.Until(t, "all jobs end", func() bool { return len(queued(t, c)) == 0 })
	// The results expire, and with them all that the queue knows of the jobs.
	testkit.Until(t, "the results expire", func() bool {
		known, err := c.Queue.Known(t.Context(), s.JobID("", "retrain", last, 3))
		return err == nil && !known
	})
	for at := uint64(1); at <= last; at++ {
		if err := submissions(c).Submit(t.Context(), asked(s, "retrain", at, 3)); err != nil {
			t.Errorf("Submit again: %v", err)
		}
	}
	if left := queued(t, c); len(left) > 0 {
		t.Errorf("jobs %v were submitted again", left)
	}
	mu.Lock()
	defer mu.Unlock()
	for at := uint64(1); at <= last; at++ {
		for _, rule := range []int{1, 3} {
			of := fmt.Sprintf(`%s {"by":"a","round":"%d"}`, s.JobID("", "retrain", at, rule), at)
			if n := done[of]; n != 1 {
				t.Errorf("the job of entry %d and rule %d is done %d times", at, rule, n)
			}
		}
	}
	if len(done) != int(2*last) {
		t.Errorf("%d jobs are done, want %d", len(done), 2*last)
	}
}

// pausing is a queue whose first call of Prepare runs a function.
type pausing struct {
	gateway.RuleQueue
	once func()
}

func (p *pausing) Prepare(ctx context.Context, j jobs.Job) (*nats.Msg, jobs.Job, error) {
	if once := p.once; once != nil {
		p.once = nil
		once()
	}
	return p.RuleQueue.Prepare(ctx, j)
}

// TestSubmitOvertaken: a process stops after it has read the last mark. Meanwhile another one
// submits the same job, which ends and leaves nothing in the queue, and the next one. The first
// submits nothing.
func TestSubmitOvertaken(t *testing.T) {
	t.Parallel()
	_, c := jobstest.InProcess(t, natsq.Connect)
	s := create(t, c, swarms.NewNonce())
	for _, before := range []uint64{0, 1} { // marks
		first, next := asked(s, "retrain", 2*before+1, 1), asked(s, "retrain", 2*before+2, 1)
		late := gateway.NewSubmissions(c.Conn, &pausing{c.Queue, func() {
			for _, e := range []swarms.Emission{first, next} {
				if err := submissions(c).Submit(t.Context(), e); err != nil {
					t.Fatalf("Submit: %v", err)
				}
				j, err := c.Queue.Find(t.Context(), s.JobID("", "retrain", e.Entry, 1))
				if err == nil {
					err = c.Queue.Withdraw(t.Context(), j)
				}
				if err != nil {
					t.Fatalf("withdraw the job: %v", err)
				}
			}
		}}, c.Swarms)
		if err := late.Submit(t.Context(), first); err != nil {
			t.Errorf("Submit: %v", err)
		}
		if got := queued(t, c); len(got) > 0 {
			t.Errorf("jobs %v were submitted again", got)
		}
	}
}

// TestSubmitOfSwarms: jobs of several names do not concern one another, a job of a tenant is one of
// that tenant, a swarm that is gone submits nothing, and a later one of the same id begins anew.
func TestSubmitOfSwarms(t *testing.T) {
	t.Parallel()
	_, c := jobstest.InProcess(t, natsq.Connect)
	for _, nonce := range []string{"aaaaaaaa", "bbbbbbbb", ""} { // the last as in an earlier version
		s := create(t, c, nonce)
		submit := func(e swarms.Emission) error {
			return submissions(c).Submit(t.Context(), e)
		}
		for _, e := range []swarms.Emission{
			asked(s, "retrain", 7, 1), asked(s, "page", 5, 2), asked(s, "page", 5, 2), asked(s, "retrain", 6, 9),
			asked(s, "retrain", 7, 1),
		} {
			if err := submit(e); err != nil {
				t.Fatalf("Submit: %v", err)
			}
		}
		want := []string{s.JobID("", "retrain", 7, 1), s.JobID("acme", "page", 5, 2)}
		if got := queued(t, c); !slices.Equal(got, want) {
			t.Fatalf("jobs %v, want %v", got, want)
		}
		j, err := c.Queue.Find(t.Context(), want[1])
		if err != nil || j.Tenant != "acme" {
			t.Errorf("Find: %+v, error %v, want tenant acme", j, err)
		}
		if err := submit(asked(s, "other", 8, 1)); jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("an unknown job: error %v, want invalid", err)
		}
		other := asked(s, "retrain", 8, 1)
		if other.Winner = "../x"; jobs.AsError(submit(other)).Code != jobs.CodeInvalid {
			t.Error("a winner that is no candidate is not refused")
		}
		if err := c.Swarms.RemoveSwarm(t.Context(), s); err != nil {
			t.Fatalf("RemoveSwarm: %v", err)
		}
		if err := submit(asked(s, "retrain", 9, 1)); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("a swarm that is gone: error %v, want ErrNotFound", err)
		}
		if _, err := c.Last(t.Context(), "EXO_WAIT", "exo.fired.>"); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("marks are left: error %v, want ErrNotFound", err)
		}
		for _, id := range want {
			if j, err = c.Queue.Find(t.Context(), id); err == nil {
				err = c.Queue.Withdraw(t.Context(), j)
			}
			if err != nil {
				t.Fatalf("withdraw %s: %v", id, err)
			}
		}
	}
}

// TestSubmitFull: a tenant without room gets the job when it has room, and the gateway is asked
// until then.
func TestSubmitFull(t *testing.T) {
	t.Parallel()
	srv, c := jobstest.InProcess(t, natsq.Connect)
	s := create(t, c, swarms.NewNonce())
	via := jobstest.Open(t, srv, natsq.Connect)
	g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatalf("Serve: %v", err)
	}
	defer g.Close()
	if err := c.Control.LimitTenant(t.Context(), "acme", jobs.Limits{Queued: new(1)}); err != nil {
		t.Fatalf("LimitTenant: %v", err)
	}
	if err := gateway.NewRules(c.Conn).Submit(t.Context(), asked(s, "page", 1, 1)); err != nil {
		t.Fatalf("Submit: %v", err)
	}
	if err := submissions(c).Submit(t.Context(), asked(s, "page", 2, 1)); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("Submit: %v, want ErrFull", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := gateway.NewRules(c.Conn).Submit(ctx, asked(s, "page", 2, 1)); err == nil {
		t.Error("a job without room is submitted")
	}
	second := make(chan error, 1)
	go func() { second <- gateway.NewRules(c.Conn).Submit(t.Context(), asked(s, "page", 2, 1)) }()
	first, err := c.Queue.Find(t.Context(), s.JobID("acme", "page", 1, 1))
	if err == nil {
		err = c.Queue.Withdraw(t.Context(), first)
	}
	if err != nil {
		t.Fatalf("withdraw the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("Submit: %v", err)
	}
	if got, want := queued(t, c), []string{s.JobID("acme", "page", 2, 1)}; !slices.Equal(got, want) {
		t.Errorf("jobs %v, want %v", got, want)
	}
}

// TestSubmitByHand: a job of the same id that waits already counts as the job of the rule.
func TestSubmitByHand(t *testing.T) {
	t.Parallel()
	_, c := jobstest.InProcess(t, natsq.Connect)
	s := create(t, c, swarms.NewNonce())
	far := jobs.Job{
		Version: jobs.Version, ID: "far", Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1"),
		NotBefore: time.Now().Add(time.Hour),
	}
	own := jobs.Job{
		Version: jobs.Version, ID: s.JobID("", "retrain", 1, 1), Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1"),
		After: []string{"far"},
	}
	for _, j := range []jobs.Job{far, own} {
		if err := c.Queue.Submit(t.Context(), j); err != nil {
			t.Fatalf("Submit: %v", err)
		}
	}
	for range 2 {
		if err := submissions(c).Submit(t.Context(), asked(s, "retrain", 1, 1)); err != nil {
			t.Errorf("Submit: %v", err)
		}
	}
	if got := queued(t, c); !slices.Equal(got, []string{own.ID, far.ID}) {
		t.Errorf("jobs %v, want the two by hand", got)
	}
}
