package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// shelf is a checkpoint over a store whose medium can fail, with all that it tells its agent.
type shelf struct {
	*checkpoint
	disk        *disk
	opened      *brokenStore // the last one
	log         strings.Builder
	drops       int
	dropFail    error
	openFail    error
	saves       []error
	failedReads int
}

// brokenStore is a store whose calls can fail.
type brokenStore struct {
	pages.Store
	get, commit error
	commits     []string // notes that a commit came with
	closes      int
	slow        time.Duration // how long a commit takes at least
}

// Get implements tiers.Store.
func (s *brokenStore) Get(ctx context.Context, page uint64, dst []byte) error {
	if s.get != nil {
		return s.get
	}
	return s.Store.Get(ctx, page, dst)
}

// Commit implements tiers.Store.
func (s *brokenStore) Commit(ctx context.Context, note []byte) (uint64, error) {
	s.commits = append(s.commits, string(note))
	for begun := time.Now(); time.Since(begun) < s.slow; {
	}
	if s.commit != nil {
		return 0, s.commit
	}
	return s.Store.Commit(ctx, note)
}

// Close implements PageStore.
func (s *brokenStore) Close() error {
	s.closes++
	return s.Store.Close()
}

// newShelf opens a checkpoint over a disk.
func newShelf(t *testing.T, d *disk) *shelf {
	t.Helper()
	s := &shelf{disk: d}
	s.checkpoint = &checkpoint{
		open: func() (pages.Store, error) {
			if s.openFail != nil {
				return nil, s.openFail
			}
			s.opened = &brokenStore{Store: s.disk.open(t)}
			return s.opened, nil
		},
		drop: func() error {
			s.drops++
			if s.dropFail == nil {
				s.disk = newDisk()
			}
			return s.dropFail
		},
		saved:          func(err error, _ time.Duration) { s.saves = append(s.saves, err) },
		readFailed:     func() int { s.failedReads++; return s.failedReads },
		forgetFailures: func() { s.failedReads = 0 },
		log:            slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		swarm:          "this one", digest: "that", entries: 3, ticker: time.NewTicker(time.Hour), ended: time.Now(),
	}
	var err error
	if s.store, err = s.open(); err != nil {
		t.Fatalf("s.open: %v, want no error", err)
	}
	t.Cleanup(s.close)
	return s
}

// ticks is a log of n ticks.
func ticks(n int) *ledger {
	l := &ledger{}
	for i := range n {
		l.all = append(l.all, swarms.Entry{Seq: uint64(i + 1), Kind: swarms.EntryTick, Data: fmt.Appendf(nil,
			`{"v":1,"count":%d}`, i+1)})
	}
	return l
}

// agentsOf makes the agents of the tests of checkpoints.
func agentsOf(t *testing.T, d device.Device) state.State {
	t.Helper()
	p := openPaged(t, d, nil, pagedTexts["leaky"])
	testkit.Close(t, p)
	return p
}

// applied brings entries of a log into a State and its checkpoint.
func (s *shelf) apply(t *testing.T, p state.State, all ...swarms.Entry) {
	t.Helper()
	for _, e := range all {
		if _, err := p.Apply(t.Context(), e); err != nil {
			t.Fatalf("p.Apply: %v, want no error", err)
		}
		testkit.NoError(t, "s.applied", s.applied(t.Context(), p, e))
	}
}

// TestCheckpointCadence: a checkpoint is stored after a number of entries, and not sooner after the
// last one than its cost allows.
func TestCheckpointCadence(t *testing.T) {
	s, p, log := newShelf(t, newDisk()), agentsOf(t, launches.Host(t)), ticks(12)
	testkit.NoError(t, "Open", p.Memory().Open(t.Context(), s.store))
	at := func(stored uint64, commits int) {
		t.Helper()
		if s.stored != stored || len(s.opened.commits) != commits || len(s.saves) != commits {
			t.Errorf("stored is entry %d with %d commits, %d were told; want %d with %d", s.stored,
				len(s.opened.commits), len(s.saves), stored, commits)
		}
	}
	if s.due() != s.ticker.C || (*checkpoint)(nil).due() != nil || (&checkpoint{ticker: s.ticker}).due() != nil {
		t.Error("due is not the ticker's of a checkpoint with a store")
	}
	s.apply(t, p, log.all[:2]...)
	at(0, 0)
	s.failedReads = 2
	s.apply(t, p, log.all[2])
	at(3, 1)
	if want := (position{
		Version: 2, State: "that", Swarm: "this one", Entry: 3,
		Digest: digestOf(log.all[2]),
	}); s.opened.commits[0] != string(encoded(t, want)) || s.failedReads != 0 {
		t.Errorf("note %s, want %+v; %d failedReads", s.opened.commits[0], want, s.failedReads)
	}
	testkit.NoError(t, "joined errors", errors.Join(s.save(t.Context(), p), s.tick(t.Context(), p)))
	at(3, 1) // Nothing was applied since.
	s.cost, s.ended = time.Hour, time.Now().Add(-20*time.Hour+time.Minute)
	s.apply(t, p, log.all[3:7]...)
	at(3, 1)
	s.ended = time.Now().Add(-20*time.Hour - time.Minute)
	s.opened.slow = 2 * time.Millisecond
	begun := time.Now()
	s.apply(t, p, log.all[7])
	at(8, 2)
	if s.cost < s.opened.slow || s.cost > time.Since(begun) || s.ended.Before(begun.Add(s.opened.slow)) ||
		s.ended.After(time.Now()) {
		t.Errorf("it cost %v and ended %v after it began", s.cost, s.ended.Sub(begun))
	}
	s.opened.slow, s.cost = 0, 0
	s.apply(t, p, log.all[8:10]...)
	at(8, 2)
	testkit.NoError(t, "s.tick", s.tick(t.Context(), p))
	at(10, 3)

	for what, k := range map[string]*checkpoint{"none": nil, "no store": {entries: 1, last: swarms.Entry{Seq: 9}}} {
		if err := errors.Join(k.applied(t.Context(), p, log.all[11]), k.save(t.Context(), p), k.endDamaged(p,
			nil)); err != nil {
			t.Errorf("%s: errors.Join: %v, want no error", what, err)
		}
		if err := k.endDamaged(p, tiers.ErrCorrupt); !errors.Is(err, tiers.ErrCorrupt) {
			t.Errorf("%s: k.endDamaged: %v, want %v", what, err, tiers.ErrCorrupt)
		}
		if k.resumed() {
			t.Errorf("%s: resumed", what)
		}
	}
	if (&checkpoint{}).resumed() || !(&checkpoint{stored: 1}).resumed() {
		t.Error("resumed is not that something is stored")
	}
	(*checkpoint)(nil).close()
	before := s.opened
	s.close()
	s.close()
	if before.closes != 1 || s.store != nil {
		t.Errorf("the store was closed %d times", before.closes)
	}
}

// TestCheckpointFails: a checkpoint waits for the answers, a store that fails leaves the last one
// good and the pages dirty, and a device that fails is an error.
func TestCheckpointFails(t *testing.T) {
	s, p, log := newShelf(t, newDisk()), agentsOf(t, launches.Host(t)), ticks(6)
	testkit.NoError(t, "Open", p.Memory().Open(t.Context(), s.store))
	late := errors.New("no answer")
	s.answered = func(context.Context) error { return late }
	for _, e := range log.all[:3] {
		if _, err := p.Apply(t.Context(), e); err != nil {
			t.Fatalf("p.Apply: %v, want no error", err)
		}
		err := s.applied(t.Context(), p, e)
		if (e.Seq == 3) != errors.Is(err, late) {
			t.Errorf("entry %d: %v", e.Seq, err)
		}
	}
	if s.stored != 0 || len(s.opened.commits)+len(s.saves) != 0 {
		t.Errorf("stored is entry %d", s.stored)
	}
	asked := 0
	s.answered = func(context.Context) error { asked++; return nil }
	s.failedReads = 1
	full := fmt.Errorf("the disk: %w", tiers.ErrFull)
	s.opened.commit = full
	if err := s.save(t.Context(), p); err != nil || s.stored != 0 || len(s.saves) != 1 ||
		!errors.Is(s.saves[0], full) || s.failedReads != 1 || asked != 1 {
		t.Errorf("a full disk: %v; stored is entry %d, told %v, %d failedReads", err, s.stored, s.saves, s.failedReads)
	}
	if !slices.Contains(p.Memory().Dirty(), true) {
		t.Error("no page is dirty behind a checkpoint that failed")
	}
	s.opened.commit = fmt.Errorf("%w: gone", gpubatch.ErrDevice)
	if err := s.save(t.Context(), p); !errors.Is(err, gpubatch.ErrDevice) ||
		!strings.HasPrefix(err.Error(), "checkpoint: ") ||
		s.stored != 0 || len(s.saves) != 1 {
		t.Errorf("a device that fails: %v; stored is entry %d, told %v", err, s.stored, s.saves)
	}
	s.opened.commit = nil
	if err := s.save(t.Context(), p); err != nil || s.stored != 3 || len(s.saves) != 2 || s.saves[1] != nil ||
		s.failedReads != 0 || slices.Contains(p.Memory().Dirty(), true) {
		t.Errorf("in order again: %v; stored is entry %d, told %v, %d failedReads", err, s.stored, s.saves,
			s.failedReads)
	}
}

// TestWorthless: a checkpoint is given up at once where it is damaged, at the third failure of its
// medium, and never for the device's or another reason.
func TestWorthless(t *testing.T) {
	var all readFailures
	one, other := ID{"a", 1}, ID{"a", 2}
	k := &checkpoint{readFailed: func() int { return all.add(one) }, forgetFailures: func() { all.forget(one) }}
	medium := fmt.Errorf("read: %w", tiers.ErrMedium)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{tiers.ErrCorrupt, true},
		{tiers.ErrLost, true},
		{fmt.Errorf("%w: %w", gpubatch.ErrDevice, tiers.ErrCorrupt), false},
		{fmt.Errorf("%w: %w", gpubatch.ErrDevice, tiers.ErrMedium), false},
		{errors.New("other"), false},
		{context.Canceled, false},
		{medium, false},
		{errors.New("other"), false},
		{
			medium,
			false,
		},
		{medium, true},
		{medium, true},
	} {
		if got := k.unusable(c.err); got != c.want {
			t.Errorf("%v: %v after %d failedReads", c.err, got, all.of[one])
		}
	}
	if all.of[one] != 4 || all.add(other) != 1 {
		t.Errorf("failedReads %v", all.of)
	}
	k.forgetFailures()
	if k.unusable(medium) || all.of[one] != 1 || all.of[other] != 1 {
		t.Errorf("failedReads %v after they were forgotten", all.of)
	}
}

// TestDigest: an entry's digest depends on its number, kind, reference and data, and on where one
// ends and the next begins.
func TestDigest(t *testing.T) {
	seen := map[string]swarms.Entry{}
	for _, e := range []swarms.Entry{
		{},
		{Seq: 1},
		{Ref: 1},
		{Kind: "a"},
		{Data: []byte("a")},
		{Data: []byte("b")},
		{Kind: "a", Data: []byte("b")},
		{Kind: "ab"},
		{Seq: 1, Kind: "a", Ref: 2, Data: []byte("c")},
		{Seq: 12, Kind: "a"},
		{Seq: 1, Kind: "a", Ref: 2, Data: []byte("d")},
		{
			Seq: 1, Kind: "a", Ref: 3,
			Data: []byte("c"),
		},
		{Seq: 2, Kind: "a", Ref: 2, Data: []byte("c")},
	} {
		d := digestOf(e)
		if other, is := seen[d]; is || len(d) != 64 || d != digestOf(e) {
			t.Errorf("%+v and %+v: %s", e, other, d)
		}
		seen[d] = e
	}
}
