package bulk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// testLogs are the logs of one shard.
type testLogs struct {
	base, last uint64
	gone       bool
	err        error
}

func (l *testLogs) Kept(context.Context, string, int) (uint64, bool, error) {
	return l.base, l.gone, l.err
}
func (l *testLogs) Last(context.Context, string, int) (uint64, error) { return l.last, l.err }

// TestSweep: a payload stays until the log is trimmed behind its entry.
func TestSweep(t *testing.T) {
	s := aSpool(t, nil)
	known, unknown := put(t, s, []byte("one")), put(t, s, []byte("two"))
	if err := s.Appended(known, 5); err != nil {
		t.Fatal(err)
	}
	l := &testLogs{last: 9}
	w, now := newSweeper(s, l), time.Now()
	there := func(when string, after time.Duration, want ...swarms.Bulk) {
		t.Helper()
		all, err := w.sweep(t.Context(), now.Add(after))
		if !errors.Is(err, l.err) {
			t.Fatalf("%s: %v", when, err)
		}
		if all.payloads != len(want) {
			t.Errorf("%s: %d payloads are counted, want %d", when, all.payloads, len(want))
		}
		ids, err := s.ids()
		if err != nil || len(ids) != len(want) {
			t.Fatalf("%s: %d payloads, want %d, %v", when, len(ids), len(want), err)
		}
		for _, b := range want {
			if f, _, err := s.open(b.ID); err != nil {
				t.Fatalf("%s: %v", when, err)
			} else if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	there("at the begin", 0, known, unknown)
	l.base = 4
	there("before the entry", 0, known, unknown)
	l.base, l.err = 5, errors.New("away")
	there("while the server is away", 0, known, unknown)
	l.err = nil
	there("at the entry", 0, unknown)
	l.base = 100
	there("of an entry that is not known", settleAfter-time.Minute, unknown)
	l.base = 8
	there("when it gets the end of the log", settleAfter+time.Minute, unknown)
	there("behind that", settleAfter+time.Minute, unknown)
	l.base = 9
	there("at the end of the log", settleAfter+time.Minute)
	late := put(t, s, []byte("three"))
	l.gone = true
	there("without the swarm", 0, late)
	there("some time later", goneAfter-1, late)
	l.gone = false
	there("with the swarm again", goneAfter, late)
	l.gone = true
	there("without it for the second time", goneAfter, late)
	there("some time later", 2*goneAfter-1, late)
	there("a long time later", 2*goneAfter)
}

// TestSweepDamaged: a file without a head is of a writer that writes, or was killed.
func TestSweepDamaged(t *testing.T) {
	mem := vfs.NewMem(0)
	s := aSpool(t, mem)
	b := put(t, s, []byte("one"))
	if err := mem.FlipBit(s.file(b.ID), 70); err != nil {
		t.Fatal(err)
	}
	w, now := newSweeper(s, &testLogs{}), time.Now()
	for _, after := range []time.Duration{0, settleAfter - 1, settleAfter} {
		if _, err := w.sweep(t.Context(), now.Add(after)); err != nil {
			t.Fatal(err)
		}
		ids, err := s.ids()
		if gone := len(ids) == 0; err != nil || gone != (after == settleAfter) {
			t.Errorf("after %v: %v, %v", after, ids, err)
		}
	}
}

// TestServerSweeps: the goroutine of the server sweeps and ends.
func TestServerSweeps(t *testing.T) {
	s := aSpool(t, nil)
	srv := serve(t, s, nil)
	b := put(t, s, []byte("one"))
	if err := s.Appended(b, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		srv.Sweep(ctx, &testLogs{base: 1}, time.Millisecond)
	}()
	wait(t, "the sweep", func() bool { ids, err := s.ids(); return err == nil && len(ids) == 0 })
	cancel()
	<-ended
}
