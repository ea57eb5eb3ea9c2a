package pagestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/codec"
	"github.com/exoswarm/exoswarm/tiers/index/tabletest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// smallStore is a store of raw pages of one block in one tier.
func smallStore(t *testing.T, fs vfs.FS, change func(*Options)) *Store {
	t.Helper()
	o := Options{FS: fs, Tables: tabletest.Backend{FS: fs}, PageSize: vfs.BlockSize, Tiers: []Tier{{Name: "one", Dir: "/one", Capacity: 8 << 20, SegmentBytes: 64 << 10}}}
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

// filled is a page of n random bytes and then zeros.
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
	s := smallStore(t, vfs.NewMem(0), nil)
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
		"put": errors.Join(s.Put(ctx, 0, 1, page, Kind{}), s.Put(ctx, 0, 2, page, Kind{})), "get": s.Get(ctx, 1, got), "move": s.Move(ctx, 1, 0), "commit": commit(),
		"settle": s.Settle(ctx), "sync": s.Sync(ctx), "delete": s.Delete(ctx, 1), "rollback": s.Rollback(ctx), "compact": compact,
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
	if err := s.Delete(ctx, 3); !errors.Is(err, tiers.ErrNotFound) || len(s.pending) != 0 {
		t.Errorf("deletion of a page that there is not: %v", err)
	}
}

// TestLastEpoch: the last epoch that an entry holds is committed and read back, and none follows.
func TestLastEpoch(t *testing.T) {
	ctx, fs := t.Context(), vfs.NewMem(0)
	s := smallStore(t, fs, nil)
	s.mu.Lock()
	s.next = maxEpoch
	s.mu.Unlock()
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
	if epoch, err := s.Commit(ctx, []byte("more")); epoch != 0 || !errors.Is(err, tiers.ErrInvalid) || s.Epoch() != maxEpoch || string(s.Note()) != "last" {
		t.Errorf("epoch %d, the store is at %d with note %q: %v", epoch, s.Epoch(), s.Note(), err)
	}
	if err := s.Settle(ctx); err != nil {
		t.Errorf("settling needs no epoch: %v", err)
	}
}

// TestNoteBounds: the longest note is committed and read back, one that is longer is refused, with the bound.
func TestNoteBounds(t *testing.T) {
	ctx, fs := t.Context(), vfs.NewMem(0)
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
		if epoch, err := s.Commit(ctx, filled(n, n)); epoch != 0 || !errors.Is(err, tiers.ErrInvalid) || err.Error() != want || s.Epoch() != before || len(s.Note()) != MaxNote {
			t.Errorf("a note of %d bytes: epoch %d, %v", n, epoch, err)
		}
	}
}

// TestElementBounds: elements up to the codec's largest are taken, and read back in every size.
func TestElementBounds(t *testing.T) {
	ctx := t.Context()
	for _, id := range []codec.ID{codec.Raw, codec.LZ4, codec.Zstd} {
		s := smallStore(t, vfs.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = 4*vfs.BlockSize, id })
		for elem := range uint8(codec.MaxElem + 1) {
			page, got := make([]byte, 4*vfs.BlockSize), make([]byte, 4*vfs.BlockSize)
			rng := rand.New(rand.NewPCG(1, uint64(elem)))
			for i := range page { // It shrinks once its bytes are transposed.
				if elem > 0 && i%int(elem) == 0 {
					page[i] = byte(rng.Uint32())
				}
			}
			if err := s.Put(ctx, 0, uint64(elem), page, Kind{Elem: elem, Class: elem}); err != nil {
				t.Errorf("%v, elements of %d: %v", id, elem, err)
			} else if err := s.Get(ctx, uint64(elem), got); err != nil || string(got) != string(page) {
				t.Errorf("%v, elements of %d: other bytes are read: %v", id, elem, err)
			}
		}
		want := fmt.Sprintf("put page 99: %d bytes of elements of 17, want %d: %v", 4*vfs.BlockSize, 4*vfs.BlockSize, tiers.ErrInvalid)
		if err := s.Put(ctx, 0, 99, make([]byte, 4*vfs.BlockSize), Kind{Elem: codec.MaxElem + 1}); !errors.Is(err, tiers.ErrInvalid) || err.Error() != want || s.Has(99) {
			t.Errorf("%v, elements of %d: %v", id, codec.MaxElem+1, err)
		}
	}
}

// TestSaving: a page is stored encoded where that saves a sixteenth of it and a block, else raw, and every page reads back.
func TestSaving(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		blocks, most int // of a page, and of its encoded form
		step, tries  int // bytes from one page to the next, around the bound
	}{{1, 0, 64, 4}, {2, 1, 1, 200}, {4, 3, 1, 200}, {16, 15, 16, 60}, {32, 30, 64, 60}, {512, 480, 512, 40}, {4416, 4140, 1024, 10}} {
		size := c.blocks * vfs.BlockSize
		s := smallStore(t, vfs.NewMem(0), func(o *Options) {
			o.PageSize, o.Tiers[0].Capacity, o.Tiers[0].SegmentBytes, o.Tiers[0].Codec.ID = size, 1<<30, 0, codec.LZ4
		})
		coder, err := codec.NewCoder(size, codec.Spec{ID: codec.LZ4})
		if err != nil {
			t.Fatal(err)
		}
		random, room := filled(size, size), make([]byte, c.most*vfs.BlockSize)
		// Random bytes do not shrink: their length is that of the encoded page but for 1 part in 255.
		from := max(c.most*vfs.BlockSize-size/255-c.step*c.tries/2, 0)
		raws := 0
		for i := range c.tries + 2 {
			n := from + i*c.step
			switch i - c.tries {
			case 0:
				n = size
			case 1:
				n = 0
			}
			page, got := make([]byte, size), make([]byte, size)
			copy(page, random[:min(n, size)])
			want := c.blocks
			if n, _, _, err := coder.Encode(room, page, 1); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				want = (n + vfs.BlockSize - 1) / vfs.BlockSize
			}
			if want == c.blocks {
				raws++
			}
			if err := s.Put(ctx, 0, 1, page, Kind{Elem: 1, Class: uint8(i)}); err != nil {
				t.Fatal(err)
			}
			in, err := s.Stat(1)
			if err != nil {
				t.Fatal(err)
			}
			if blocks := int(in.Bytes/vfs.BlockSize) - 1; blocks != want { // less the header
				t.Errorf("a page of %d blocks, %d bytes of it random, takes %d blocks, want %d", c.blocks, n, blocks, want)
			}
			if err := s.Get(ctx, 1, got); err != nil || string(got) != string(page) {
				t.Errorf("a page of %d blocks, %d bytes of it random: other bytes are read: %v", c.blocks, n, err)
			}
		}
		if c.most > 0 && (raws < 2 || raws > c.tries) {
			t.Errorf("%d of %d pages of %d blocks are raw: the bound is not among them", raws, c.tries, c.blocks)
		}
	}
}

// TestCopyKeepsEncoding: a copy within a tier has the stored bytes of the original, also where the class of the page is left raw by now.
func TestCopyKeepsEncoding(t *testing.T) {
	ctx := t.Context()
	const size = 4 * vfs.BlockSize
	s := smallStore(t, vfs.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = size, codec.LZ4 })
	kind := Kind{Elem: 1, Class: 7}
	if err := s.Put(ctx, 0, 1, filled(size, 9), kind); err != nil {
		t.Fatal(err)
	}
	for page := range uint64(4) {
		if err := s.Put(ctx, 0, 10+page, filled(size, size), kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	before, err := s.Stat(1)
	if err != nil || before.Bytes != 2*vfs.BlockSize {
		t.Fatalf("%+v: %v", before, err)
	}
	if err := s.rewrite(ctx, 1, 0); err != nil {
		t.Fatal(err)
	}
	after, err := s.Stat(1)
	if err != nil || after.Bytes != before.Bytes || after.Epoch != before.Epoch || after.Offset == before.Offset && after.File == before.File {
		t.Errorf("%+v is copied to %+v: %v", before, after, err)
	}
	got := make([]byte, size)
	if err := s.Get(ctx, 1, got); err != nil || string(got) != string(filled(size, 9)) {
		t.Errorf("other bytes are read: %v", err)
	}
}

// TestOpenWithOtherOptions: a store whose pages have another size is refused, also before it has a page, and pages of a tier that is left out are lost until it is
// there again.
func TestOpenWithOtherOptions(t *testing.T) {
	mem := vfs.NewMem(0)
	s := smallStore(t, mem, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := s.opts
	o.PageSize *= 2
	if s, err := Open(o); s != nil || !errors.Is(err, tiers.ErrMismatch) || !strings.Contains(err.Error(), "store has pages of 4096 bytes, options say 8192") {
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
			if err := errors.Join(s.Put(t.Context(), 0, 1, filled(vfs.BlockSize, 9), Kind{}), s.Put(t.Context(), 1, 2, filled(vfs.BlockSize, 9), Kind{})); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(s.Get(t.Context(), 1, make([]byte, vfs.BlockSize)), s.Get(t.Context(), 2, make([]byte, vfs.BlockSize)))
		if gone := change == nil; gone != errors.Is(err, tiers.ErrLost) || !gone && err != nil || gone != (len(lost) == 1) || s.Stats().Tiers[0].Pages != 1 {
			t.Errorf("%d tiers: %v are lost: %v", s.Tiers(), lost, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHopelessClass: a class of pages that did not shrink four times is stored raw without a try, other classes are not, and a tier without a codec stores all of them raw.
func TestHopelessClass(t *testing.T) {
	ctx := t.Context()
	const size = 4 * vfs.BlockSize
	for _, id := range []codec.ID{codec.LZ4, codec.Raw} {
		s := smallStore(t, vfs.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = size, id })
		stored := func(page uint64, class uint8, random int) int64 {
			if err := s.Put(ctx, 0, page, filled(size, random), Kind{Elem: 1, Class: class}); err != nil {
				t.Fatal(err)
			}
			in, err := s.Stat(page)
			if err != nil {
				t.Fatal(err)
			}
			return in.Bytes/vfs.BlockSize - 1
		}
		for page := range uint64(8) {
			random, want := size, int64(4)
			if page >= 4 { // It would shrink.
				random = 0
			}
			if got := stored(page, 7, random); got != want {
				t.Errorf("%v: page %d takes %d blocks, want %d", id, page, got, want)
			}
		}
		want := int64(1)
		if id == codec.Raw {
			want = 4
		}
		if got := stored(9, 8, 0); got != want {
			t.Errorf("%v: a page of another class takes %d blocks, want %d", id, got, want)
		}
	}
}

// TestReadAgain: a record that does not check is read three times, since its slot may have been written again meanwhile, and counts as one failure. What the medium
// refuses is not read again.
func TestReadAgain(t *testing.T) {
	ctx, mem := t.Context(), vfs.NewMem(0)
	var reads, healAt, fails atomic.Int64
	var heal func()
	s := smallStore(t, &vfs.Inject{FS: mem, Before: func(op vfs.Op) error {
		if op.Kind != vfs.OpRead || filepath.Ext(op.Name) != ".seg" {
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
		before := s.failures[0].Load()
		err := s.Get(ctx, 1, got)
		if n := reads.Load(); n != min(at, 3) || (err == nil) != (at <= 3) || err != nil && !errors.Is(err, tiers.ErrCorrupt) || err == nil && string(got) != string(page) {
			t.Errorf("in order at read %d: %d reads, %v", at, n, err)
		}
		if failed := s.failures[0].Load() - before; (failed == 1) != (at > 3) || failed > 1 {
			t.Errorf("in order at read %d: %d failures", at, failed)
		}
	}
	write(whole)
	reads.Store(0)
	fails.Store(1)
	before := s.failures[0].Load()
	if err := s.Get(ctx, 1, got); !errors.Is(err, tiers.ErrMedium) || !errors.Is(err, syscall.EIO) || reads.Load() != 1 || s.failures[0].Load() != before+1 {
		t.Errorf("%d reads, %d failures: %v", reads.Load(), s.failures[0].Load()-before, err)
	}
}

// TestSweepOfACommit: a commit sweeps stale records away when the index remembers more of them than its limit and than there are pages, and not before.
func TestSweepOfACommit(t *testing.T) {
	ctx, mem := t.Context(), vfs.NewMem(0)
	s := smallStore(t, mem, nil)
	page := filled(vfs.BlockSize, 9)
	const limit = 6
	next, marks := uint64(0), 0
	put := func() {
		t.Helper()
		if err := s.Put(ctx, 0, next, page, Kind{}); err != nil {
			t.Fatal(err)
		}
		next++
	}
	commit := func() {
		t.Helper()
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if now := s.index.Marks(); int64(now) != s.marks.Load() {
			t.Errorf("the index has %d marks, the store counts %d", now, s.marks.Load())
		}
	}
	for range 12 {
		put()
	}
	commit()
	for gone, swept := uint64(0), 0; swept < 2 && gone < 12; gone++ {
		s.sweepAt.Store(limit)
		if err := s.Delete(ctx, gone); err != nil {
			t.Fatal(err)
		}
		commit()
		now := s.index.Marks()
		if bound := max(limit, int(s.committed.len())); now > bound {
			t.Errorf("%d marks after a commit, at most %d", now, bound)
		}
		switch {
		case now == 0:
			if least := max(limit, s.committed.len()); marks+2 <= least { // a page, and the life that it is of
				t.Errorf("swept at %d marks, want more than %d", marks+2, least)
			}
			swept++
		case now <= marks:
			t.Errorf("%d marks after %d and a deletion", now, marks)
		}
		marks = now
	}
	if next == 0 || marks > limit {
		t.Errorf("%d marks are left", marks)
	}
}

// TestTrimFails: a file that cannot be removed after a commit is a failure of its tier, and none of the commit.
func TestTrimFails(t *testing.T) {
	ctx, mem := t.Context(), vfs.NewMem(0)
	var failing atomic.Bool
	quota := NewQuota(2 << 20)
	s := smallStore(t, &vfs.Inject{FS: mem, Before: func(op vfs.Op) error {
		if failing.Load() && op.Kind == vfs.OpRemove && filepath.Ext(op.Name) == ".seg" {
			return syscall.EIO
		}
		return nil
	}}, func(o *Options) { o.Tiers[0].Quota = quota })
	page, n := filled(vfs.BlockSize, 9), uint64(0)
	for ; ; n++ {
		if err := s.Put(ctx, 0, n, page, Kind{}); errors.Is(err, tiers.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if s.failures[0].Load() != 0 {
		t.Error("a full tier counts as a failure")
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for p := range n {
		if err := s.Delete(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	failing.Store(true)
	if _, err := s.Commit(ctx, []byte("n")); err != nil || s.failures[0].Load() != 1 || string(s.Note()) != "n" {
		t.Errorf("%d failures, note %q: %v", s.failures[0].Load(), s.Note(), err)
	}
	failing.Store(false)
	if _, err := s.Commit(ctx, nil); err != nil || s.failures[0].Load() != 1 || s.Usage(0).FileBytes != 0 {
		t.Errorf("%d failures, %d bytes of files: %v", s.failures[0].Load(), s.Usage(0).FileBytes, err)
	}
}

// TestBuffersComeBack: every call gives back the memory that it took: many calls need few buffers and one coder.
func TestBuffersComeBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // A collection empties the pool.
	ctx := t.Context()
	fs := vfs.NewMem(0)
	s := smallStore(t, fs, func(o *Options) {
		second := o.Tiers[0]
		second.Dir, second.Codec.ID = "/two", codec.LZ4
		o.PageSize, o.Tiers = 4*vfs.BlockSize, append(o.Tiers, second)
	})
	var made atomic.Int64
	s.bufs.New = func() any { made.Add(1); return newBuffer() }
	page, got := filled(4*vfs.BlockSize, 9), make([]byte, 4*vfs.BlockSize)
	const n = 64
	for what, call := range map[string]func(i int) error{
		"put":  func(i int) error { return s.Put(ctx, 1, uint64(i), page, Kind{Elem: 1}) },
		"get":  func(int) error { return s.Get(ctx, 0, got) },
		"move": func(i int) error { return s.Move(ctx, 0, i%2) },
		"compact": func(int) error {
			s.mu.RLock()
			e := s.pending[0].entry
			s.mu.RUnlock()
			return s.rewrite(ctx, 0, e.tier())
		},
		"put all": func(int) error {
			_, err := s.PutAll(ctx, 1, []uint64{1}, Kind{Elem: 1}, func(_ int, buf []byte) ([]byte, error) { return buf[:copy(buf, page)], nil })
			return err
		},
		"get all": func(int) error {
			_, err := s.GetAll(ctx, []uint64{1}, func(int, []byte) error { return nil })
			return err
		},
	} {
		for page := range uint64(2) {
			if err := s.Put(ctx, 1, page, filled(4*vfs.BlockSize, 9), Kind{Elem: 1}); err != nil {
				t.Fatal(err)
			}
		}
		made.Store(0)
		for i := range n {
			if err := call(i); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if got := made.Load(); got > n/2+8 { // The race detector has the pool drop a quarter.
			t.Errorf("%s: %d calls needed %d buffers", what, n, got)
		}
	}
	if err := s.Put(ctx, 1, 0, page, Kind{Elem: 1}); err != nil {
		t.Fatal(err)
	}
	coders := s.dirs[1].coders
	first := coders.Get()
	coders.Put(first)
	for what, err := range map[string]error{"put": s.Put(ctx, 1, 1, page, Kind{Elem: 1}), "get": s.Get(ctx, 0, got)} {
		now := coders.Get()
		coders.Put(now)
		if err != nil || now != first {
			t.Errorf("%s: another coder comes from the pool than before: %v", what, err)
		}
	}
}

// TestLockOfADirectoryFails: a directory whose lock cannot be taken is not used, even where its files can be read by now: another process may have it.
func TestLockOfADirectoryFails(t *testing.T) {
	mem := vfs.NewMem(0)
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
	s = smallStore(t, &vfs.Inject{FS: mem, Before: func(op vfs.Op) error {
		if op.Kind == vfs.OpLock && strings.HasPrefix(op.Name, "/two") {
			return syscall.EACCES
		}
		return nil
	}}, two)
	if err := s.Unavailable(1); !errors.Is(err, syscall.EACCES) || !errors.Is(err, tiers.ErrUnavailable) || s.Unavailable(0) != nil {
		t.Errorf("the directory is used without its lock: %v", err)
	}
	if err := s.Get(t.Context(), 2, make([]byte, vfs.BlockSize)); !errors.Is(err, tiers.ErrLost) {
		t.Errorf("its page: %v", err)
	}
}
