package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// openStore opens an empty store.
func openStore(t testkit.Failer) Store {
	fs := tierstest.NewMem(0)
	s, err := pagestore.Open(pagestore.Options{
		FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: testPage,
		Tiers: []pagestore.Tier{{Dir: "/nvme", Capacity: 64 << 20, SegmentBytes: 1 << 20}},
	})
	testkit.NoError(t, "pagestore.Open", err)
	return s
}

// pagesAs is the content of page i of a memory in a version.
func pagesAs(i int, version uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%07d %07d ", i, version), testPage/16)
}

// sharer is a memory that shares a budget, with the content that it should have.
type sharer struct {
	*Memory
	store Store
	now   map[int]uint64 // versions of pages
}

// newSharer opens a memory over its own store.
func newSharer(t testkit.Failer, m *Memory) *sharer {
	s := &sharer{Memory: m, store: openStore(t), now: map[int]uint64{}}
	testkit.NoError(t, "m.Open", m.Open(context.Background(), s.store))
	return s
}

// step writes a new version to some pages as kernels do: in frames of pinned sets.
func (s *sharer) step(ctx context.Context, numbers []uint64, version uint64) error {
	sets := s.PlanSets(numbers, make([]uint32, s.Count()))
	return s.Each(ctx, sets, Random, func(i int) error {
		for _, page := range sets[i].Pages {
			at := s.Frame(int(page))
			content := pagesAs(int(page), version)
			if at>>31 != 0 {
				copy(s.Pinned().Bytes()[int64(at&(1<<31-1))*testPage:], content)
			} else if err := s.Arena().Write(int64(at)*testPage, content); err != nil {
				return err
			}
			s.now[int(page)] = version
		}
		s.MarkDirty(sets[i].Pages)
		return nil
	})
}

// check compares every page.
func (s *sharer) check(ctx context.Context) error {
	buf := make([]byte, testPage)
	for page := range s.Count() {
		want := make([]byte, testPage)
		if v, is := s.now[page]; is {
			want = pagesAs(page, v)
		}
		if err := s.Read(ctx, uint64(page), buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, want) {
			return fmt.Errorf("page %d has %q, want %q", page, buf[:16], want[:16])
		}
	}
	return nil
}

// close closes both.
func (s *sharer) close() error { return errors.Join(s.Close(), s.store.Close()) }

// TestShareProperty: shards start, step, give, take and end in random order. Each finds its pages
// as it has left them, none has less than its least, the bytes add up, and a new shard gets its
// least as soon as the others have given what they were asked for.
func TestShareProperty(t *testing.T) {
	d := launches.Host(t)
	ctx := t.Context()
	testkit.Checks(t, 20)
	rapid.Check(t, func(t *rapid.T) {
		const most = 5 // shards
		device := rapid.IntRange(2*most, 40).Draw(t, "frames")
		host := rapid.IntRange(0, 30).Draw(t, "host frames")
		b := NewBudget(int64(device*testPage), int64(host*testPage)).WithAges(time.Hour, time.Hour)
		var all []*sharer
		defer func() {
			for _, s := range all {
				if err := s.close(); err != nil {
					t.Errorf("close: %v, want no error", err)
				}
			}
		}()
		version := uint64(0)
		one := func() *sharer {
			if len(all) == 0 {
				t.Skip("no shard")
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "shard")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				onDevice, inHost := b.Left()
				for _, s := range all {
					if s.Frames() < min(s.Count(), minFrames) || s.allocation.frames != s.Frames() ||
						s.allocation.hostFrames != s.hostFrames() {
						t.Fatalf("%d frames, in the budget %d; in host memory %d, in the budget %d", s.Frames(),
							s.allocation.frames, s.hostFrames(), s.allocation.hostFrames)
					}
					onDevice, inHost = onDevice+s.allocation.DeviceBytes, inHost+s.allocation.HostBytes
				}
				if onDevice != int64(device*testPage) || inHost != int64(host*testPage) {
					t.Fatalf("%d and %d bytes of %d and %d", onDevice, inHost, device*testPage, host*testPage)
				}
			},
			"begin": func(t *rapid.T) {
				if len(all) == most {
					t.Skip("enough")
				}
				n := rapid.IntRange(1, 60).Draw(t, "pages")
				m, err := NewMemory(d, b, 0, testPage, n)
				var short *Shortage
				for tries := 0; errors.As(err, &short) && tries < 3; tries++ {
					b.mu.Lock()
					b.all[short.of] = struct{}{} // as Await does
					b.ask()
					b.mu.Unlock()
					for _, s := range all {
						select {
						case <-s.Asked():
							testkit.NoError(t, "s.Give", s.Give(ctx))
						default:
						}
					}
					b.mu.Lock()
					delete(b.all, short.of)
					b.mu.Unlock()
					eager := *b
					eager.eager = tries > 0
					m, err = NewMemory(d, &eager, 0, testPage, n)
				}
				if err != nil {
					t.Fatalf("NewMemory of %d pages beside %d shards: %v, want no error", n, len(all), err)
				}
				all = append(all, newSharer(t, m))
			},
			"step": func(t *rapid.T) {
				s := one()
				numbers := rapid.SliceOfNDistinct(rapid.Uint64Range(0, uint64(s.Count()-1)), 1, min(s.Count(), 20),
					rapid.ID[uint64]).Draw(t, "pages")
				version++
				end := s.Use()
				testkit.NoError(t, "s.step", s.step(ctx, numbers, version))
				s.allocation.moved = s.allocation.moved.Add(-time.Hour)
				testkit.NoError(t, "the end of a batch", end(ctx))
			},
			"give": func(t *rapid.T) {
				testkit.NoError(t, "s.Give", one().Give(ctx))
			},
			"rest": func(*rapid.T) { s := one(); s.allocation.used = s.allocation.used.Add(-time.Hour) },
			"checkpoint": func(t *rapid.T) {
				testkit.NoError(t, "s.Checkpoint", one().Checkpoint(ctx, []byte("note")))
			},
			"check": func(t *rapid.T) {
				if err := one().check(ctx); err != nil {
					t.Fatalf("%v", err)
				}
			},
			"end": func(t *rapid.T) {
				s := one()
				if err := errors.Join(s.check(ctx), s.close()); err != nil {
					t.Fatalf("%v", err)
				}
				for i := range all {
					if all[i] == s {
						all = append(all[:i], all[i+1:]...)
						break
					}
				}
			},
		})
	})
}

// TestAwait: a shard waits until another has given frames, and the hot pages of the other shard
// stay on the device. It waits no longer than its context, and not for shards that cannot give.
func TestAwait(t *testing.T) {
	d, ctx := launches.Host(t), t.Context()
	b := NewBudget(16*testPage, 0)
	m, err := NewMemory(d, b, 0, testPage, 40)
	testkit.NoError(t, "NewMemory", err)
	large := newSharer(t, m)
	defer func() {
		if err := large.close(); err != nil {
			t.Errorf("close: %v, want no error", err)
		}
	}()
	hot := []uint64{1, 3, 5}
	if err := errors.Join(large.step(ctx, []uint64{0, 1, 2, 3, 4, 5, 6, 7}, 1), large.step(ctx, hot, 2)); err != nil {
		t.Fatalf("step: %v, want no error", err)
	}
	_, err = NewMemory(d, b, 0, testPage, 4)
	var short *Shortage
	if !errors.As(err, &short) {
		t.Fatalf("a second shard: %v, want a Shortage", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := b.Await(ended, short); !errors.Is(err, context.Canceled) {
		t.Errorf("Await after the end of its context: %v, want %v", err, context.Canceled)
	}
	var work sync.WaitGroup
	work.Go(func() {
		select {
		case <-large.Asked():
			if err := large.Give(ctx); err != nil {
				t.Errorf("Give: %v, want no error", err)
			}
		case <-ctx.Done():
		}
	})
	again, err := b.Await(ctx, short)
	work.Wait()
	testkit.NoError(t, "Await", err)
	small, err := NewMemory(d, again, 0, testPage, 4)
	testkit.NoError(t, "NewMemory after Await", err)
	defer func() {
		if err := small.Close(); err != nil {
			t.Errorf("small.Close: %v, want no error", err)
		}
	}()
	if small.Frames() != 4 {
		t.Errorf("%d frames, want 4", small.Frames())
	}
	places := make([]pager.Place, 8)
	large.Pager().Places(0, places)
	for _, page := range hot {
		if places[page].Tier != onDevice {
			t.Errorf("page %d, used last, is in tier %d", page, places[page].Tier)
		}
	}
	if err := large.check(ctx); err != nil {
		t.Errorf("%v", err)
	}
	// Without a store below nothing is given, and the refusal is at once.
	lone := NewBudget(4*testPage, 0)
	first, err := NewMemory(d, lone, 0, testPage, 4)
	testkit.NoError(t, "NewMemory", err)
	defer func() {
		if err := first.Close(); err != nil {
			t.Errorf("first.Close: %v, want no error", err)
		}
	}()
	if _, err := NewMemory(d, lone, 0, testPage, 4); !errors.As(err, &short) {
		t.Errorf("beside a shard that is not open: %v, want a Shortage", err)
	}
	testkit.NoError(t, "first.Open", first.Open(ctx, nil))
	if _, err := NewMemory(d, lone, 0, testPage, 4); err == nil || errors.As(err, &short) && short.of.of == lone {
		t.Errorf("beside a shard that cannot give: %v, want a refusal", err)
	}
}
