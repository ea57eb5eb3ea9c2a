package gateway_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// emission returns the emission that an entry makes by a rule.
func emission(name string, entry uint64, rule int) swarms.Emission {
	return swarms.Emission{
		Version: jobs.Version, Swarm: "s", Identity: "s@1", Name: name, Rule: rule, Entry: entry, Round: entry,
		Winner: "a", Candidates: []string{"a", "b"}, Votes: []uint64{2, 1},
	}
}

// entries returns the entries of the emissions of a name; "": of all.
func entries(t *testing.T, c *natsq.Conn, name string) (all []uint64) {
	t.Helper()
	if err := gateway.NewEmissions(c.Conn).List(t.Context(), "s", name, 0, func(e gateway.StoredEmission) bool {
		all = append(all, e.Entry)
		return true
	}); err != nil {
		t.Fatalf("List: %v", err)
	}
	return all
}

// replay calls do for two rules of each entry of a log of last entries, as writer number w that
// begins again from earlier checkpoints.
func replay(t *testing.T, w int, last uint64, do func(entry uint64, rule int) error) {
	r := rand.New(rand.NewPCG(25, uint64(w)))
	for entry := uint64(1); entry <= last; {
		for _, rule := range []int{1, 3} {
			if err := do(entry, rule); err != nil {
				t.Errorf("entry %d, rule %d: %v", entry, rule, err)
				return
			}
		}
		if r.IntN(4) == 0 {
			entry -= min(entry-1, uint64(r.IntN(10)))
			continue
		}
		entry++
	}
}

// TestEmitOnce: writers that each emit the same log, from random places on and at the same time,
// store every emission once and in order. The twin is the log itself.
func TestEmitOnce(t *testing.T) {
	s, c := jobstest.InProcess(t, natsq.Connect)
	const last, writers = 30, 4
	var all sync.WaitGroup
	for w := range writers {
		own := jobstest.Open(t, s, natsq.Connect)
		all.Go(func() {
			replay(t, w, last, func(entry uint64, rule int) error {
				return gateway.NewEmissions(own.Conn).Emit(t.Context(), "s", emission("news", entry, rule))
			})
		})
	}
	all.Wait()
	var want []uint64
	for at := uint64(1); at <= last; at++ {
		want = append(want, at, at)
	}
	if got := entries(t, c, "news"); !slices.Equal(got, want) {
		t.Errorf("entries %v, want each twice", got)
	}
}

// TestEmitAgain: a swarm of the same key and another identity emits from its first entry on, names
// do not concern one another, and a list begins behind a number.
func TestEmitAgain(t *testing.T) {
	_, c := jobstest.InProcess(t, natsq.Connect)
	emit := func(e swarms.Emission) {
		t.Helper()
		if err := gateway.NewEmissions(c.Conn).Emit(t.Context(), "s", e); err != nil {
			t.Fatalf("Emit: %v", err)
		}
	}
	emit(emission("a", 7, 1))
	emit(emission("b", 5, 1))
	emit(emission("a", 6, 9))
	later := emission("a", 2, 1)
	later.Identity = "s@2"
	emit(later)
	emit(later)
	if got := entries(t, c, "a"); !slices.Equal(got, []uint64{7, 2}) {
		t.Errorf("entries of a: %v, want 7 and 2", got)
	}
	if got := entries(t, c, ""); !slices.Equal(got, []uint64{7, 5, 2}) {
		t.Errorf("entries: %v, want 7, 5 and 2", got)
	}
	var first gateway.StoredEmission
	if err := gateway.NewEmissions(c.Conn).List(t.Context(), "s", "", 1, func(e gateway.StoredEmission) bool {
		first = e
		return false
	}); err != nil {
		t.Fatalf("List: %v", err)
	}
	if first.Name != "b" || first.Seq != 2 || first.Time.IsZero() || first.Votes[0] != 2 {
		t.Errorf("behind the first: %+v", first)
	}
}

// TestFollow: what is emitted later is told, and the end of the context is no error.
func TestFollow(t *testing.T) {
	_, c := jobstest.InProcess(t, natsq.Connect)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for at := range uint64(2) {
		if err := gateway.NewEmissions(c.Conn).Emit(ctx, "s", emission("a", at+1, 1)); err != nil {
			t.Fatalf("Emit: %v", err)
		}
	}
	var got []uint64
	if err := gateway.NewEmissions(c.Conn).Follow(ctx, "s", "a", 0, func(e gateway.StoredEmission) bool {
		if got = append(got, e.Entry); e.Entry == 2 {
			if err := gateway.NewEmissions(c.Conn).Emit(ctx, "s", emission("a", 3, 1)); err != nil {
				t.Errorf("Emit: %v", err)
			}
		}
		if e.Entry == 3 {
			cancel()
		}
		return true
	}); err != nil || !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("Follow: %v, entries %v, want 1 to 3", err, got)
	}
}

// TestEmitFails: without the stream the error names the emission.
func TestEmitFails(t *testing.T) {
	s := jobstest.Start(t, server.Options{Dir: t.TempDir()})
	c := jobstest.Open(t, s, natsq.Connect)
	if err := jobstest.Open(t, s, natsconn.Open).JS.DeleteStream(t.Context(), "EXO_DECISIONS"); err != nil {
		t.Fatalf("DeleteStream: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := gateway.NewEmissions(c.Conn).Emit(ctx, "s", emission("a", 1, 1))
	if err == nil || errors.Is(err, jobs.ErrFenced) {
		t.Errorf("Emit: %v, want a failure", err)
	}
}
