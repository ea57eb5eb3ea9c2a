package bulk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestPut: what Put has described is on the disk after a power loss.
func TestPut(t *testing.T) {
	mem := vfs.NewMem(0)
	s := aSpool(t, mem)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 20 {
		data := random(1+r.IntN(3*swarms.BulkChunk/2), uint64(i))
		b := put(t, s, data)
		if b.Place != "127.0.0.1:1" || b.Bytes != len(data) || !bytes.Equal(b.Sums, swarms.BulkSums(data)) {
			t.Fatalf("description %+v", b)
		}
		if r.IntN(2) == 0 {
			if err := s.Appended(b, uint64(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		left := &Spool{fs: mem.Crash(r.Float64(), r), dir: s.dir}
		f, h, err := left.open(b.ID)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(data))
		if _, err := f.ReadAt(got, headSize); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("payload %d after a power loss: %v", i, err)
		}
		if h.swarm != "sw=abcdefgh" || h.shard != 3 || !bytes.Equal(h.token, b.Token) ||
			h.entry != 0 && h.entry != uint64(i+1) {
			t.Fatalf("head %+v", h)
		}
	}
}

// TestPutFails fails each call of Put in turn: it returns the error and leaves no file, and the next
// Put is as if nothing had been.
func TestPutFails(t *testing.T) {
	broken := errors.New("broken")
	for _, kind := range []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpFree} {
		failing := false
		s := aSpool(t, &vfs.Inject{FS: vfs.NewMem(0), Before: func(o vfs.Op) error {
			if failing && o.Kind == kind {
				return broken
			}
			return nil
		}})
		failing = true
		if _, err := s.Put(t.Context(), "sw", 0, []byte("x")); !errors.Is(err, broken) {
			t.Errorf("%v fails: error %v", kind, err)
		}
		failing = false
		if ids, err := s.ids(); err != nil || len(ids) != 0 {
			t.Errorf("%v has failed, and there is %v, %v", kind, ids, err)
		}
		put(t, s, []byte("x"))
	}
}

// TestFull: Put waits for room, and fails when there is none.
func TestFull(t *testing.T) {
	mem := vfs.NewMem(4 * (headSize + swarms.BulkChunk))
	s := aSpool(t, mem)
	s.free = swarms.BulkChunk
	var all []swarms.Bulk
	for range 2 {
		all = append(all, put(t, s, random(swarms.BulkChunk, 1)))
	}
	if _, err := s.Put(t.Context(), "sw", 0, random(swarms.BulkChunk+1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "sw", 0, random(swarms.BulkChunk, 1)); !errors.Is(err, ErrFull) {
		t.Fatalf("error %v, want %v", err, ErrFull)
	}
	s.wait = 10 * time.Second
	var room sync.WaitGroup
	defer room.Wait()
	room.Go(func() {
		time.Sleep(20 * time.Millisecond)
		if err := s.Remove(all[0]); err != nil {
			t.Error(err)
		}
	})
	put(t, s, random(swarms.BulkChunk, 1))
}

func TestPlace(t *testing.T) {
	mem := vfs.NewMem(0)
	s, err := OpenSpool(SpoolOptions{Dir: "/spool", FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "sw", 0, []byte("x")); !errors.Is(err, ErrNoServer) {
		t.Errorf("without a place: error %v, want %v", err, ErrNoServer)
	}
	for _, p := range []Place{{"host.example:1", true}, {"h:2", false}} {
		if err := s.setPlace(p); err != nil {
			t.Fatal(err)
		}
		got, err := (&Spool{fs: mem.Crash(0, rand.New(rand.NewPCG(1, 1))), dir: s.dir}).Place()
		if err != nil || got != p {
			t.Errorf("place %+v after a power loss, want %+v, %v", got, p, err)
		}
	}
	if err := mem.FlipBit("/spool/place", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Place(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged place: error %v, want %v", err, ErrDamaged)
	}
}

// TestHeadDamaged flips every bit of a head: the head is the same, has no number of an entry, or is
// refused.
func TestHeadDamaged(t *testing.T) {
	h := head{
		id: "000102030405060708090a0b0c0d0e0f", token: random(swarms.BulkToken, 1), bytes: 5, created: time.Unix(7, 0),
		swarm: "sw=abcdefgh", shard: 63,
	}
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	copy(b[entryAt:], encodeEntry(9))
	for bit := range 8 * len(b) {
		other := slices.Clone(b)
		other[bit/8] ^= 1 << (bit % 8)
		got, err := decodeHead(other)
		if err == nil && (got.id != h.id || got.swarm != h.swarm || got.bytes != 5 ||
			got.entry != 9 && got.entry != 0) {
			t.Fatalf("bit %d: %+v", bit, got)
		}
		if bit/8 < headSum && !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d is not found: %v", bit, err)
		}
	}
}
