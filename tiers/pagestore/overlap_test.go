package pagestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// moment is a point in a call of the store at which a test does something else: the next call of
// the medium that matches.
type moment struct {
	at   atomic.Pointer[func(tierstest.Op) bool]
	do   func() error
	fail atomic.Pointer[func(tierstest.Op) bool] // fails every call that matches
}

// next has do run inside the next call of the medium that matches, once. The call fails with what
// do returns.
func (m *moment) next(matches func(tierstest.Op) bool, do func() error) {
	m.do = do
	m.at.Store(&matches)
}

// over is a file system whose calls have the moment.
func (m *moment) over(fs vfs.FS) vfs.FS {
	return &tierstest.Inject{FS: fs, Before: func(op tierstest.Op) error {
		if matches := m.at.Load(); matches != nil && (*matches)(op) && m.at.CompareAndSwap(matches, nil) {
			if err := m.do(); err != nil {
				return err
			}
		}
		if matches := m.fail.Load(); matches != nil && (*matches)(op) {
			return syscall.EIO
		}
		return nil
	}}
}

// failing has every call of the medium fail that matches, until mend.
func (m *moment) failing(matches func(tierstest.Op) bool) { m.fail.Store(&matches) }

func (m *moment) mend() { m.fail.Store(nil) }

func (m *moment) came() bool { return m.at.Load() == nil }

func recordIn(dir string) func(tierstest.Op) bool {
	return func(op tierstest.Op) bool {
		return op.Kind == tierstest.OpWrite && filepath.Dir(op.Name) == dir && filepath.Ext(op.Name) == ".seg" &&
			op.Len > 2*vfs.BlockSize
	}
}

// superblock matches the sync that makes a commit durable.
func superblock(op tierstest.Op) bool {
	return op.Kind == tierstest.OpSync && strings.HasPrefix(filepath.Ext(op.Name), ".super")
}

func segmentSync(dir string) func(tierstest.Op) bool {
	return func(op tierstest.Op) bool {
		return op.Kind == tierstest.OpSync && filepath.Dir(op.Name) == dir && filepath.Ext(op.Name) == ".seg"
	}
}

func slots(s *pagestore.Store) (n int) {
	for _, tier := range s.Stats().Tiers {
		n += tier.Used
	}
	return n
}

// settled commits and holds the store to a world: what it reads, that every slot in use has a page,
// and what is there after a power cut, with the index and without.
func settled(t *testing.T, s *pagestore.Store, mem *tierstest.Mem, w world) {
	t.Helper()
	w.note = "settled"
	if _, err := s.Commit(t.Context(), []byte(w.note)); err != nil {
		t.Fatal(err)
	}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if n := slots(s); n != len(w.pages) {
		t.Errorf("%d slots are in use for %d pages", n, len(w.pages))
	}
	if st := s.Stats(); st.Pending != 0 || st.Pages != len(w.pages) || st.Lost != 0 || st.Epoch != s.Epoch() {
		t.Errorf("stats %+v, want %d pages", st, len(w.pages))
	}
	for _, rebuilt := range []bool{false, true} {
		left := mem.Crash(0, anyRand())
		if rebuilt {
			if err := dropTables(left); err != nil {
				t.Fatal(err)
			}
		}
		again := mustOpen(t, memOptions(left))
		if err := w.compare(again); err != nil || again.Stats().Healed != rebuilt {
			t.Errorf("after a power cut, healed %v: %v", again.Stats().Healed, err)
		}
		if n := slots(again); n != len(w.pages) {
			t.Errorf("after a power cut, healed %v: %d slots are in use for %d pages", rebuilt, n, len(w.pages))
		}
	}
}

// TestMoveOverlapped: while a copy of a page is written, the page is put, deleted, committed or
// rolled back, or the caller gives up. The newest content is the page's, and the copy's slot is
// given back where it is of no use.
func TestMoveOverlapped(t *testing.T) {
	for _, pending := range []bool{false, true} {
		for name, c := range map[string]struct {
			during  func(s *pagestore.Store, cancel func()) error
			err     error
			version uint64 // 0: the page is gone
			tier    int
		}{
			"nothing":                {func(*pagestore.Store, func()) error { return nil }, nil, 3, 1},
			"put":                    {func(s *pagestore.Store, _ func()) error { return put(s, 2, 1, 6) }, nil, 6, 2},
			"put into the same tier": {func(s *pagestore.Store, _ func()) error { return put(s, 0, 1, 6) }, nil, 6, 0},
			"delete": {func(s *pagestore.Store, _ func()) error {
				return s.Delete(context.Background(),
					1)
			}, nil, 0, 0},
			"give up": {
				func(_ *pagestore.Store, cancel func()) error { cancel(); return nil },
				context.Canceled, 3, 0,
			},
			"fail": {func(*pagestore.Store, func()) error { return syscall.EIO }, syscall.EIO, 3, 0},
			"commit": {func(s *pagestore.Store, _ func()) error {
				_, err := s.Commit(context.Background(), nil)
				return err
			}, nil, 3, map[bool]int{false: 1, true: 0}[pending]},
			"commit and put": {func(s *pagestore.Store, _ func()) error {
				_, err := s.Commit(context.Background(), nil)
				return errors.Join(err, put(s, 2, 1, 6))
			}, nil, 6, 2},
			"put and commit": {func(s *pagestore.Store, _ func()) error {
				err := put(s, 2, 1, 6)
				_, cerr := s.Commit(context.Background(), nil)
				return errors.Join(err, cerr)
			}, nil, 6, 2},
			"delete and commit": {func(s *pagestore.Store, _ func()) error {
				err := s.Delete(context.Background(), 1)
				_, cerr := s.Commit(context.Background(), nil)
				return errors.Join(err, cerr)
			}, nil, 0, 0},
		} {
			t.Run(fmt.Sprintf("%s, pending %v", name, pending), func(t *testing.T) {
				mem, during := tierstest.NewMem(0), &moment{}
				s := mustOpen(t, memOptions(during.over(mem)))
				if err := errors.Join(put(s, 0, 1, 3), put(s, 0, 2, 3)); err != nil {
					t.Fatal(err)
				}
				if !pending {
					if _, err := s.Commit(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				during.next(recordIn("/ssd"), func() error { return c.during(s, cancel) })
				if err := s.Move(ctx, 1, 1); !errors.Is(err, c.err) {
					t.Errorf("move: %v, want %v", err, c.err)
				}
				if !during.came() {
					t.Fatal("nothing happened during the move")
				}
				w := world{pages: map[uint64]uint64{1: c.version, 2: 3}}
				if c.version == 0 {
					delete(w.pages, 1)
				} else if tier, err := s.Where(1); err != nil || tier != c.tier {
					t.Errorf("the page is in tier %d, want %d: %v", tier, c.tier, err)
				}
				settled(t, s, mem, w)
			})
		}
	}
}

// TestPutOverlapped: while a page is written, a commit closes the epoch, a rollback ends it, or the
// caller gives up. A put that returned is the page's content and of the epoch that is open; one
// that did not has changed nothing.
func TestPutOverlapped(t *testing.T) {
	for name, c := range map[string]struct {
		during  func(s *pagestore.Store, cancel func()) error
		err     error
		version uint64
	}{
		"commit": {func(s *pagestore.Store, _ func()) error {
			_, err := s.Commit(context.Background(), []byte("between"))
			return err
		}, nil, 6},
		"rollback": {func(s *pagestore.Store, _ func()) error { return s.Rollback(context.Background()) }, nil, 6},
		"give up":  {func(_ *pagestore.Store, cancel func()) error { cancel(); return nil }, context.Canceled, 3},
		"fail":     {func(*pagestore.Store, func()) error { return syscall.EIO }, syscall.EIO, 3},
		"give up after a commit": {func(s *pagestore.Store, cancel func()) error {
			_, err := s.Commit(context.Background(), []byte("between"))
			cancel()
			return err
		}, context.Canceled, 3},
		"give up after a rollback": {func(s *pagestore.Store, cancel func()) error {
			err := s.Rollback(context.Background())
			cancel()
			return err
		}, context.Canceled, 3},
	} {
		t.Run(name, func(t *testing.T) {
			mem, during := tierstest.NewMem(0), &moment{}
			s := mustOpen(t, memOptions(during.over(mem)))
			if err := errors.Join(put(s, 0, 1, 3), put(s, 0, 2, 3)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			during.next(recordIn("/ssd"), func() error { return c.during(s, cancel) })
			if err := s.Put(ctx, 1, 1, content(1, 6), pagestore.Kind{Elem: 4}); !errors.Is(err, c.err) {
				t.Errorf("put: %v, want %v", err, c.err)
			}
			if !during.came() {
				t.Fatal("nothing happened during the put")
			}
			left := mem.Crash(1, anyRand()) // Whatever was written is on the medium, and none of it counts yet.
			if err := dropTables(left); err != nil {
				t.Fatal(err)
			}
			before := world{pages: map[uint64]uint64{1: 3, 2: 3}, note: string(s.Note())}
			if err := before.compare(mustOpen(t, memOptions(left))); err != nil {
				t.Errorf("after a power cut before the commit: %v", err)
			}
			settled(t, s, mem, world{pages: map[uint64]uint64{1: c.version, 2: 3}})
		})
	}
}

// TestReadDuringACommit: while a commit runs, and whether it succeeds or fails, every reading call
// sees the newest state of each page.
func TestReadDuringACommit(t *testing.T) {
	for _, fails := range []bool{false, true} {
		mem, during := tierstest.NewMem(0), &moment{}
		s := mustOpen(t, memOptions(during.over(mem)))
		for page := range uint64(4) {
			if err := put(s, 0, page, 3); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(put(s, 1, 0, 6), put(s, 2, 9, 6), s.Delete(t.Context(), 1), s.Move(t.Context(), 2,
			2)); err != nil {
			t.Fatal(err)
		}
		w := world{pages: map[uint64]uint64{0: 6, 2: 3, 3: 3, 9: 6}}
		check := func(when string) {
			t.Helper()
			if err := w.compare(s); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if got, want := s.Pages(), []uint64{0, 2, 3, 9}; !slices.Equal(got, want) {
				t.Errorf("%s: pages %v, want %v", when, got, want)
			}
			for page, want := range map[uint64]int{0: 1, 2: 2, 3: 0, 9: 2} {
				in, err := s.Stat(page)
				if tier, werr := s.Where(page); err != nil || werr != nil || tier != want || in.Tier != want ||
					!s.Has(page) || in.Bytes != 5*vfs.BlockSize && page != 3 {
					t.Errorf("%s: page %d is in tier %d, %+v, want %d: %v, %v", when, page, tier, in, want, werr, err)
				}
			}
			if tier, err := s.Where(1); tier != 0 || !errors.Is(err, tiers.ErrNotFound) || s.Has(1) {
				t.Errorf("%s: the deleted page is in tier %d: %v", when, tier, err)
			}
			if in, err := s.Stat(1); in != (pagestore.Info{}) || !errors.Is(err, tiers.ErrNotFound) {
				t.Errorf("%s: the deleted page is at %+v: %v", when, in, err)
			}
			for what, err := range map[string]error{
				"get": s.Get(t.Context(), 1, make([]byte, pageSize)), "move": s.Move(t.Context(), 1, 1),
				"delete": s.Delete(t.Context(), 1),
			} {
				if !errors.Is(err, tiers.ErrNotFound) {
					t.Errorf("%s: %s of the deleted page: %v", when, what, err)
				}
			}
			if lost := s.Lost(); len(lost) != 0 {
				t.Errorf("%s: lost pages %v", when, lost)
			}
		}
		check("before")
		during.next(superblock, func() error {
			check("during")
			if fails {
				during.failing(superblock)
			}
			return nil
		})
		epoch, err := s.Commit(t.Context(), nil)
		if !during.came() || fails != (err != nil) || fails && epoch != 0 || !fails && epoch != 2 {
			t.Fatalf("commit: epoch %d, %v", epoch, err)
		}
		during.mend()
		check("after")
		settled(t, s, mem, w)
	}
}
