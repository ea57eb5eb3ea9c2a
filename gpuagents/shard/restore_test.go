package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// TestRestore: a checkpoint that belongs to the log, the swarm and the spec is gone on from, at its
// first entry and its last. Any other is thrown away, and the shard begins anew. What the queue or
// the device says is passed on, and costs no checkpoint.
func TestRestore(t *testing.T) {
	const at = 3
	d := launches.Host(t)
	gone := errors.New("the queue is away")
	type start struct {
		in       *ledger
		answered uint64
		short    int // how often the log's end is an earlier one
		s        *shelf
		cancel   context.CancelCauseFunc // ends the context of restore
	}
	renote := func(change func(p *position)) func(*testing.T, *start) {
		return func(t *testing.T, b *start) {
			var p position
			testkit.NoError(t, "json.Unmarshal", json.Unmarshal(b.s.store.Note(), &p))
			change(&p)
			if _, err := b.s.store.Commit(t.Context(), encoded(t, p)); err != nil {
				t.Fatalf("store.Commit: %v, want no error", err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		entry   int // of the checkpoint; 0: at
		change  func(t *testing.T, b *start)
		resumes bool
		err     error  // of the queue, the device or the medium: nothing is thrown away
		reason  string // why it is thrown away
	}{
		{name: "whole", resumes: true},
		{name: "of the first entry", entry: 1, resumes: true},
		{
			name: "of the last entry", change: func(_ *testing.T, b *start) {
				b.in.all, b.answered = b.in.all[:at],
					at
			},
			resumes: true,
		},
		{name: "at the base", change: func(_ *testing.T, b *start) { b.s.base = at }, resumes: true},
		{
			name: "before the base", change: func(_ *testing.T, b *start) { b.s.base = at + 1 },
			reason: "it is of log entry 3, and the log was trimmed to 4",
		},
		{
			name: "ahead of the answers", change: func(_ *testing.T, b *start) { b.answered = at - 1 },
			reason: "it is of log entry 3; the log has 5, and answers to 2",
		},
		{
			name: "ahead of the log", change: func(_ *testing.T, b *start) { b.in.all = b.in.all[:at-1] },
			reason: "it is of log entry 3; the log has 2, and answers to 5",
		},
		{name: "ahead of a leader that has not applied the log", change: func(_ *testing.T, b *start) {
			b.in.all, b.short, b.s.patience = b.in.all[:at], 3, time.Minute
		}, resumes: true},
		{
			name: "ahead of a log that stays short", change: func(_ *testing.T, b *start) {
				b.in.all, b.s.patience = b.in.all[:at-1], 3*shortPause
			},
			reason: "it is of log entry 3; the log has 2, and answers to 5",
		},
		{
			name: "an empty log", change: func(_ *testing.T, b *start) { b.in.all = nil },
			reason: "it is of log entry 3; the log has 0, and answers to 5",
		},
		{
			name: "of no entry", change: renote(func(p *position) { p.Entry = 0 }),
			reason: "it is of log entry 0; the log has 5",
		},
		{
			name: "an older version", change: renote(func(p *position) { p.Version = 1 }),
			reason: "it is of version 1, this program writes 2",
		},
		{
			name: "a newer version", change: renote(func(p *position) { p.Version = 3 }),
			reason: "it is of version 3, this program writes 2",
		},
		{
			name: "another swarm", change: renote(func(p *position) { p.Swarm = "that one" }),
			reason: "it is of another swarm of the same name, that one",
		},
		{
			name: "another digest", change: renote(func(p *position) { p.State = "else" }),
			reason: "it is of another spec",
		},
		{
			name: "another digest", change: renote(func(p *position) { p.Digest = "0" }),
			reason: "the log has another entry there",
		},
		{
			name: "another entry in the log", change: func(_ *testing.T,
				b *start,
			) {
				b.in.all[at-1].Data = []byte("x")
			},
			reason: "the log has another entry there",
		},
		{name: "no JSON", change: func(t *testing.T, b *start) {
			if _, err := b.s.store.Commit(t.Context(), []byte("{")); err != nil {
				t.Fatalf("store.Commit: %v, want no error", err)
			}
		}, reason: "its position is not JSON"},
		{name: "no note", change: func(t *testing.T, b *start) {
			b.s.disk = newDisk()
			b.s.close()
			b.s.store,
				_ = b.s.open()
		}},
		{name: "the log is away", change: func(_ *testing.T, b *start) { b.in.gone = gone }, err: gone},
		{
			name: "the entry cannot be read", change: func(_ *testing.T, b *start) { b.in.torn = at },
			err: jobs.ErrUnavailable,
		},
		{name: "the log cannot be read from there", change: func(_ *testing.T,
			b *start,
		) {
			b.in.unread = map[uint64]error{at: gone}
		}, err: gone},
		{
			name: "damaged", change: func(_ *testing.T, b *start) { b.s.opened.get = tiers.ErrCorrupt },
			reason: tiers.ErrCorrupt.Error(),
		},
		{
			name: "a medium that fails", change: func(_ *testing.T, b *start) { b.s.opened.get = tiers.ErrMedium },
			err: tiers.ErrMedium,
		},
		{name: "a medium that fails for the third time", change: func(_ *testing.T, b *start) {
			b.s.opened.get,
				b.s.failedReads = tiers.ErrMedium, 2
		}, reason: tiers.ErrMedium.Error()},
		{name: "a device that fails", change: func(_ *testing.T, b *start) {
			b.s.opened.get = fmt.Errorf("%w: %w",
				device.ErrLost, tiers.ErrCorrupt)
		}, err: gpubatch.ErrDevice},
		{name: "the agent drains", change: func(_ *testing.T, b *start) {
			b.cancel(jobs.ErrDrain)
		}, err: jobs.ErrDrain},
	} {
		t.Run(c.name, func(t *testing.T) {
			entry := c.entry
			if entry == 0 {
				entry = at
			}
			disk, before := newDisk(), agentsOf(t, d)
			first := newShelf(t, disk)
			testkit.NoError(t, "Open", before.Memory().Open(t.Context(), first.store))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b := &start{in: ticks(5), answered: 5, cancel: cancel}
			first.apply(t, before, b.in.all[:entry]...)
			if err := first.save(t.Context(), before); err != nil || first.stored != uint64(entry) {
				t.Fatalf("stored is entry %d: %v", first.stored, err)
			}
			want := contents(t, before.Memory())
			testkit.NoError(t, "Shut", before.Memory().Shut())
			first.close()

			b.s = newShelf(t, disk)
			if c.change != nil {
				c.change(t, b)
			}
			store, p := b.s.opened, agentsOf(t, d)
			w := &writer{out: &ledger{all: []swarms.Entry{{Seq: b.answered, Ref: b.answered}}}, answered: b.answered}
			if b.short > 0 { // the first end of both logs is one of a leader that has not applied everything
				b.in.short, w.answered = b.short, at-1
			}
			r, err := b.s.restore(ctx, p, b.in, w)
			if c.err != nil {
				if !errors.Is(err, c.err) || r != nil || b.s.drops != 0 || b.in.readers != 0 || b.s.resumed() ||
					store.closes != 0 {
					t.Errorf("%v, want %v; thrown away %d times, %d readers, closed %d times", err, c.err, b.s.drops,
						b.in.readers, store.closes)
				}
				return
			}
			testkit.NoError(t, "s.restore", err)
			if b.in.readers != 1 {
				t.Errorf("%d readers are open", b.in.readers)
			}
			next := r.(*ledgerReader).next
			r.Close()
			if c.resumes {
				if next != uint64(entry)+1 || b.s.stored != uint64(entry) || b.s.last.Seq != uint64(entry) ||
					!b.s.resumed() || b.s.drops != 0 {
					t.Errorf("reads from %d, stored is %d, last %d, thrown away %d times", next, b.s.stored,
						b.s.last.Seq, b.s.drops)
				}
				if got := contents(t, p.Memory()); string(got) != string(want) {
					t.Error("the pages differ from the stored pages")
				}
				return
			}
			if next != 1 || b.s.resumed() || slices.Contains(p.Memory().Made(), true) {
				t.Errorf("reads from %d, stored is %d, pages %v", next, b.s.stored, p.Memory().Made())
			}
			drops := map[bool]int{true: 1}[c.reason != ""]
			if b.s.drops != drops || drops == 1 && (store.closes != 1 || b.s.failedReads != 0 || b.s.opened == store) ||
				b.s.store == nil || !strings.Contains(b.s.log.String(), c.reason) {
				t.Errorf("thrown away %d times, closed %d times, want %d with %q:\n%s", b.s.drops, store.closes, drops,
					c.reason, &b.s.log)
			}
			b.s.apply(t, p, ticks(5).all[:3]...) // It goes on with an empty store.
			if b.s.stored != 3 {
				t.Errorf("stored is entry %d after the shard began anew", b.s.stored)
			}
		})
	}
}

// TestDiscard: a discarded store is closed and removed. The shard continues with an empty store, or
// without one if none can be opened.
func TestDiscard(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *shelf)
		store  bool
	}{
		"whole":    {func(*testing.T, *shelf) {}, true},
		"no store": {func(_ *testing.T, s *shelf) { s.close() }, true},
		// It was empty.
		"a medium that keeps nothing back": {func(_ *testing.T, s *shelf) { s.dropFail = errors.New("busy") }, true},
		"a medium that keeps pages": {func(t *testing.T, s *shelf) {
			s.dropFail = errors.New("busy")
			if err := s.store.Put(t.Context(), 0, 0, make([]byte, testPage), tiers.Kind{Elem: 4}); err != nil {
				t.Fatalf("store.Put: %v, want no error", err)
			}
			if _, err := s.store.Commit(t.Context(), []byte("{")); err != nil {
				t.Fatalf("store.Commit: %v, want no error", err)
			}
		}, false},
		"not to be opened": {func(_ *testing.T, s *shelf) { s.openFail = errors.New("locked") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, newDisk())
			c.change(t, s)
			s.failedReads = 2
			before, closed := s.opened, s.opened.closes
			had := s.store != nil
			s.discard(errors.New("the reason"))
			if s.drops != 1 || s.failedReads != 0 || before.closes != closed+map[bool]int{true: 1}[had] ||
				!strings.Contains(s.log.String(), "the reason") {
				t.Errorf("removed %d times, closed %d times, %d failedReads:\n%s", s.drops, before.closes,
					s.failedReads,
					&s.log)
			}
			if (s.store != nil) != c.store || c.store && len(s.store.Pages()) != 0 || !c.store && s.openFail == nil &&
				s.opened.closes != 1 {
				t.Errorf("a store: %v, closed %d times", s.store != nil, s.opened.closes)
			}
			if c.store == strings.Contains(s.log.String(), "no checkpoints of this shard") {
				t.Errorf("logged:\n%s", &s.log)
			}
		})
	}
}

// TestSpoiled: an error that says that the pages cannot be read discards the checkpoint and is
// passed on; any other error is only passed on.
func TestSpoiled(t *testing.T) {
	d := launches.Host(t)
	for _, c := range []struct {
		err   error
		drops int
	}{{nil, 0}, {tiers.ErrCorrupt, 1}, {tiers.ErrMedium, 0}, {gpubatch.ErrDevice, 0}, {jobs.ErrDrain, 0}} {
		s, p := newShelf(t, newDisk()), agentsOf(t, d)
		testkit.NoError(t, "Open", p.Memory().Open(t.Context(), s.store))
		before := s.opened
		if err := s.endDamaged(p, c.err); !errors.Is(err, c.err) || s.drops != c.drops || before.closes != c.drops ||
			(p.Memory().Pager() == nil) != (c.drops == 1) {
			t.Errorf("%v: %v, thrown away %d times, closed %d times", c.err, err, s.drops, before.closes)
		}
	}
}

// unrestored is a State that cannot be restored from its pages.
type unrestored struct{ state.State }

// restored implements state.State.
func (unrestored) Restored(context.Context) error { return tiers.ErrCorrupt }

// TestRestoreLetsGo: pages that were opened and are of no use are closed before their store is.
func TestRestoreLetsGo(t *testing.T) {
	d := launches.Host(t)
	s, p, log := newShelf(t, newDisk()), agentsOf(t, d), ticks(3)
	testkit.NoError(t, "Open", p.Memory().Open(t.Context(), s.store))
	s.apply(t, p, log.all...)
	if err := p.Memory().Shut(); err != nil || s.stored != 3 {
		t.Fatalf("stored is entry %d: %v", s.stored, err)
	}
	next, drop := agentsOf(t, d), s.drop
	s.drop = func() error {
		if next.Memory().Pager() != nil {
			t.Error("the store is closed below open pages")
		}
		return drop()
	}
	r, err := s.restore(t.Context(), unrestored{next}, log, &writer{answered: 3})
	if err != nil || s.drops != 1 {
		t.Fatalf("thrown away %d times: %v", s.drops, err)
	}
	r.Close()
}

// TestStart: agents that have seen entries return to their initial state, over an empty store and
// without one.
func TestStart(t *testing.T) {
	d := launches.Host(t)
	for name, text := range pagedTexts {
		r := rand.New(rand.NewPCG(3, 4))
		used, fresh := openPaged(t, d, nil, text), openPaged(t, d, nil, text)
		var before, after []swarms.Entry
		for range 6 {
			before, after = append(before, randomEntry(t, r, text)), append(after, randomEntry(t, r, text))
		}
		applyAll(t, used, before)
		if _, err := (*checkpoint)(nil).start(t.Context(), used, ticks(1)); err != nil {
			t.Fatalf("start: %v, want no error", err)
		}
		want := applyAll(t, fresh, after)
		for i, got := range applyAll(t, used, after) {
			if got.Kind != want[i].Kind || string(got.Data) != string(want[i].Data) {
				t.Fatalf("%s: answer %d, %s, differs from new agents", name, i, got.Kind)
			}
		}
		if err := errors.Join(used.Close(), fresh.Close()); err != nil {
			t.Errorf("joined errors: %v, want no error", err)
		}
	}
	gone := errors.New("gone")
	p := agentsOf(t, d)
	if r, err := newShelf(t, newDisk()).start(t.Context(), p, &ledger{gone: gone}); r != nil || !errors.Is(err, gone) {
		t.Errorf("a log that is away: %v", err)
	}
}
