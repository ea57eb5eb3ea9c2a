package pagestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// smallStore is a store of raw pages of one block in one tier.
func smallStore(t *testing.T, fs vfs.FS, change func(*Options)) *Store {
	t.Helper()
	o := Options{FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: vfs.BlockSize, Tiers: []Tier{{
		Name: "one",
		Dir:  "/one", Capacity: 8 << 20, SegmentBytes: 64 << 10,
	}}}
	if change != nil {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func filled(size, n int) []byte {
	b, rng := make([]byte, size), rand.New(rand.NewPCG(uint64(n), 1))
	for i := range n {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestOneTier: every call works on a store of a single tier, whose number is 0.
func TestOneTier(t *testing.T) {
	ctx := t.Context()
	s := smallStore(t, tierstest.NewMem(0), nil)
	page, got := filled(vfs.BlockSize, 9), make([]byte, vfs.BlockSize)
	commit := func() error {
		epoch, err := s.Commit(ctx, nil)
		if epoch != s.Epoch() || epoch == 0 {
			t.Errorf("epoch %d, and the store is at %d", epoch, s.Epoch())
		}
		return err
	}
	_, compact := s.Compact(ctx)
	for what, err := range map[string]error{
		"put": errors.Join(s.Put(ctx, 0, 1, page, Kind{}), s.Put(ctx, 0, 2, page, Kind{})), "get": s.Get(ctx, 1, got),
		"move": s.Move(ctx, 1, 0), "commit": commit(),
		"settle": s.Settle(ctx), "sync": s.Sync(ctx), "delete": s.Delete(ctx, 1), "rollback": s.Rollback(ctx),
		"compact": compact,
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if tier, err := s.Where(1); tier != 0 || err != nil {
		t.Errorf("tier %d: %v", tier, err)
	}
	if tier, err := s.Where(3); tier != 0 || !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("a page that there is not is in tier %d: %v", tier, err)
	}
	if err := s.Delete(ctx, 3); !errors.Is(err, tiers.ErrNotFound) || len(s.table.pending) != 0 {
		t.Errorf("deletion of a page that there is not: %v", err)
	}
}

// TestLastEpoch: the last epoch that an entry holds is committed and read back, and none follows.
func TestLastEpoch(t *testing.T) {
	ctx, fs := t.Context(), tierstest.NewMem(0)
	s := smallStore(t, fs, nil)
	s.table.mu.Lock()
	s.table.next = maxEpoch
	s.table.mu.Unlock()
	page := filled(vfs.BlockSize, 9)
	if err := s.Put(ctx, 0, 1, page, Kind{}); err != nil {
		t.Fatal(err)
	}
	if epoch, err := s.Commit(ctx, []byte("last")); epoch != maxEpoch || err != nil {
		t.Fatalf("epoch %d: %v", epoch, err)
	}
	if in, err := s.Stat(1); err != nil || in.Epoch != maxEpoch || in.Bytes != 2*vfs.BlockSize {
		t.Errorf("%+v, %v", in, err)
	}
	if epoch, err := s.Commit(ctx, []byte("more")); epoch != 0 || !errors.Is(err, tiers.ErrInvalid) ||
		s.Epoch() != maxEpoch || string(s.Note()) != "last" {
		t.Errorf("epoch %d, the store is at %d with note %q: %v", epoch, s.Epoch(), s.Note(), err)
	}
	if err := s.Settle(ctx); err != nil {
		t.Errorf("settling needs no epoch: %v", err)
	}
}

// TestNoteBounds: the longest note is committed and read back, one that is longer is refused, with
// the bound.
func TestNoteBounds(t *testing.T) {
	ctx, fs := t.Context(), tierstest.NewMem(0)
	s := smallStore(t, fs, nil)
	for _, n := range []int{0, 1, MaxNote - 1, MaxNote} {
		note := filled(n, n)
		if epoch, err := s.Commit(ctx, note); err != nil || epoch != s.Epoch() || string(s.Note()) != string(note) {
			t.Errorf("a note of %d bytes: epoch %d, %v", n, epoch, err)
		}
		clear(note)
		if n > 0 && string(s.Note()) == string(note) {
			t.Error("the caller's note is kept")
		}
	}
	before := s.Epoch()
	for _, n := range []int{MaxNote + 1, 2 * MaxNote} {
		want := fmt.Sprintf("commit: note of %d bytes, at most %d: %v", n, MaxNote, tiers.ErrInvalid)
		if epoch, err := s.Commit(ctx, filled(n, n)); epoch != 0 || !errors.Is(err, tiers.ErrInvalid) ||
			err.Error() != want || s.Epoch() != before || len(s.Note()) != MaxNote {
			t.Errorf("a note of %d bytes: epoch %d, %v", n, epoch, err)
		}
	}
}

// TestOpenWithOtherOptions: a store whose pages have another size is refused, also before it has a
// page, and pages of a tier that is left out are lost until it is there again.
func TestOpenWithOtherOptions(t *testing.T) {
	mem := tierstest.NewMem(0)
	s := smallStore(t, mem, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := s.opts
	o.PageSize *= 2
	if s, err := Open(o); s != nil || !errors.Is(err, tiers.ErrMismatch) ||
		!strings.Contains(err.Error(), "store has pages of 4096 bytes, options say 8192") {
		t.Errorf("pages of another size: %v", err)
	}
	two := func(o *Options) {
		second := o.Tiers[0]
		second.Name, second.Dir = "two", "/two"
		o.Tiers = append(o.Tiers, second)
	}
	for _, change := range []func(*Options){two, nil, two} {
		s := smallStore(t, mem, change)
		lost := s.Lost()
		if s.Epoch() == 0 {
			if err := errors.Join(s.Put(t.Context(), 0, 1, filled(vfs.BlockSize, 9), Kind{}), s.Put(t.Context(), 1, 2,
				filled(vfs.BlockSize, 9), Kind{})); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(s.Get(t.Context(), 1, make([]byte, vfs.BlockSize)), s.Get(t.Context(), 2, make([]byte,
			vfs.BlockSize)))
		if gone := change == nil; gone != errors.Is(err, tiers.ErrLost) || !gone && err != nil ||
			gone != (len(lost) == 1) || s.Stats().Tiers[0].Pages != 1 {
			t.Errorf("%d tiers: %v are lost: %v", s.Tiers(), lost, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadAgain: a record that does not check is read three times, since its slot may have been
// written again meanwhile, and counts as one failure. What the medium refuses is not read again.
func TestReadAgain(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	var reads, healAt, fails atomic.Int64
	var heal func()
	s := smallStore(t, &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if op.Kind != tierstest.OpRead || filepath.Ext(op.Name) != ".seg" {
			return nil
		}
		if n := reads.Add(1); n == healAt.Load() {
			heal()
		}
		if fails.Load() > 0 {
			return syscall.EIO
		}
		return nil
	}}, nil)
	page, got := filled(vfs.BlockSize, 99), vfs.Buffer(vfs.BlockSize)
	if err := s.Put(ctx, 0, 1, page, Kind{}); err != nil {
		t.Fatal(err)
	}
	in, err := s.Stat(1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := mem.Open(in.File, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	whole := make([]byte, in.Bytes)
	if _, err := f.ReadAt(whole, in.Offset); err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		if _, err := f.WriteAt(b, in.Offset); err != nil {
			t.Error(err)
		}
	}
	for _, at := range []int64{1, 2, 3, 4} { // the read that finds it in order
		write(make([]byte, len(whole)))
		reads.Store(0)
		healAt.Store(at)
		heal = func() { write(whole) }
		before := s.records.failures[0].Load()
		err := s.Get(ctx, 1, got)
		if n := reads.Load(); n != min(at, 3) || (err == nil) != (at <= 3) || err != nil &&
			!errors.Is(err, tiers.ErrCorrupt) || err == nil && string(got) != string(page) {
			t.Errorf("in order at read %d: %d reads, %v", at, n, err)
		}
		if failed := s.records.failures[0].Load() - before; (failed == 1) != (at > 3) || failed > 1 {
			t.Errorf("in order at read %d: %d failures", at, failed)
		}
	}
	write(whole)
	reads.Store(0)
	fails.Store(1)
	before := s.records.failures[0].Load()
	if err := s.Get(ctx, 1, got); !errors.Is(err, tiers.ErrMedium) || !errors.Is(err, syscall.EIO) ||
		reads.Load() != 1 || s.records.failures[0].Load() != before+1 {
		t.Errorf("%d reads, %d failures: %v", reads.Load(), s.records.failures[0].Load()-before, err)
	}
}

// TestLockOfADirectoryFails: a directory whose lock cannot be taken is not used, even where its
// files can be read by now: another process may have it.
func TestLockOfADirectoryFails(t *testing.T) {
	mem := tierstest.NewMem(0)
	two := func(o *Options) {
		second := o.Tiers[0]
		second.Name, second.Dir = "two", "/two"
		o.Tiers = append(o.Tiers, second)
	}
	s := smallStore(t, mem, two)
	for tier, page := range []uint64{1, 2} {
		if err := s.Put(t.Context(), tier, page, filled(vfs.BlockSize, 9), Kind{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = smallStore(t, &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if op.Kind == tierstest.OpLock && strings.HasPrefix(op.Name, "/two") {
			return syscall.EACCES
		}
		return nil
	}}, two)
	if err := s.Unavailable(1); !errors.Is(err, syscall.EACCES) || !errors.Is(err, tiers.ErrUnavailable) ||
		s.Unavailable(0) != nil {
		t.Errorf("the directory is used without its lock: %v", err)
	}
	if err := s.Get(t.Context(), 2, make([]byte, vfs.BlockSize)); !errors.Is(err, tiers.ErrLost) {
		t.Errorf("its page: %v", err)
	}
}
