package pagestore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestMain(m *testing.M) {
	if childMain() || checkMain() {
		return
	}
	// BadgerDB leaves these behind where its Open fails, as it does on some files that a kill cut
	// short; package index holds tables that were opened to being closed.
	var badger []goleak.Option
	for _, name := range []string{"v4.(*DB).updateSize", "v4.(*DB).monitorCache", "v4/y.(*WaterMark).process"} {
		badger = append(badger, goleak.IgnoreAnyFunction("github.com/dgraph-io/badger/"+name))
	}
	badger = append(badger,
		goleak.IgnoreAnyFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"))
	goleak.VerifyTestMain(m, badger...)
}

const pageSize = 16 << 10

// memOptions are a store of three small tiers, one of each codec, on a file system in memory.
func memOptions(fs vfs.FS) pagestore.Options {
	const room = 8 << 20
	return pagestore.Options{
		FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: pageSize,
		Tiers: []pagestore.Tier{
			{
				Name:         "nvme",
				Dir:          "/nvme",
				Capacity:     room,
				SegmentBytes: 128 << 10,
				Codec:        pagestore.Codec{ID: pagestore.LZ4},
			},
			{
				Name: "ssd", Dir: "/ssd", Capacity: room, SegmentBytes: 128 << 10,
				Codec: pagestore.Codec{ID: pagestore.Zstd, Level: 3},
			},
			{Name: "hdd", Dir: "/hdd", Capacity: room, SegmentBytes: 128 << 10},
		},
	}
}

// content is the page that a version number stands for: some compress, some do not.
func content(page, version uint64) []byte {
	b := make([]byte, pageSize)
	rng := rand.New(rand.NewPCG(page, version))
	for i := 0; i+8 <= len(b); i += 8 {
		v := rng.Uint64()
		if version%3 != 0 {
			v &= 0x0000003f0000003f // Few bits a word: it shrinks.
		}
		binary.LittleEndian.PutUint64(b[i:], v)
	}
	binary.LittleEndian.PutUint64(b, page)
	binary.LittleEndian.PutUint64(b[8:], version)
	return b
}

// world is what a store should hold: the version of every page, and the note.
type world struct {
	pages map[uint64]uint64
	note  string
	epoch uint64
}

func newWorld() world { return world{pages: map[uint64]uint64{}} }

func (w world) clone() world {
	c := world{pages: map[uint64]uint64{}, note: w.note, epoch: w.epoch}
	for p, v := range w.pages {
		c.pages[p] = v
	}
	return c
}

// compare reads everything in a store and says how it differs from a world.
func (w world) compare(s *pagestore.Store) error {
	ctx := context.Background()
	if string(s.Note()) != w.note {
		return fmt.Errorf("note %q, want %q", s.Note(), w.note)
	}
	ids := s.Pages()
	if len(ids) != len(w.pages) {
		return fmt.Errorf("%d pages, want %d", len(ids), len(w.pages))
	}
	got := make([]byte, pageSize)
	for _, id := range ids {
		version, ok := w.pages[id]
		if !ok {
			return fmt.Errorf("page %d should not be there", id)
		}
		if err := s.Get(ctx, id, got); err != nil {
			return err
		}
		if !bytes.Equal(got, content(id, version)) {
			return fmt.Errorf("page %d does not hold version %d: it says page %d version %d", id, version,
				binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]))
		}
	}
	return nil
}

func mustOpen(t testing.TB, opts pagestore.Options) *pagestore.Store {
	t.Helper()
	s, err := pagestore.Open(opts)
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

func put(s *pagestore.Store, tier int, page, version uint64) error {
	return s.Put(context.Background(), tier, page, content(page, version), pagestore.Kind{Elem: 4})
}

// acceptable reports whether an error of a read is an honest one.
func acceptable(err error) bool {
	return errors.Is(err, tiers.ErrCorrupt) || errors.Is(err, tiers.ErrLost) || errors.Is(err, tiers.ErrMismatch) ||
		errors.Is(err, tiers.ErrVersion)
}

// checkAccounting compares what a store says about its files with the files.
func checkAccounting(s *pagestore.Store, fs vfs.FS) error {
	st := s.Stats()
	for i, dir := range []string{"/nvme", "/ssd", "/hdd"}[:len(st.Tiers)] {
		names, err := fs.List(dir)
		if err != nil {
			return err
		}
		var segments, index int64
		for _, name := range names {
			f, err := fs.Open(dir+"/"+name, 0)
			if err != nil {
				return err
			}
			size, err := f.Size()
			if err != nil {
				return err
			}
			if filepath.Ext(name) == ".seg" {
				segments += size
			} else {
				index += size
			}
		}
		if segments != st.Tiers[i].FileBytes {
			return fmt.Errorf("tier %d accounts for %d bytes and has %d", i, st.Tiers[i].FileBytes, segments)
		}
		if limit := int64(8 << 20); segments+index > limit {
			return fmt.Errorf("tier %d has %d bytes, over its capacity %d", i, segments+index, limit)
		}
		if used, least := st.Tiers[i].Used, st.Tiers[i].Pages; used < least || used > least+st.Pending {
			return fmt.Errorf("tier %d has %d slots in use for %d pages and %d changes", i, used, least, st.Pending)
		}
	}
	return nil
}

// anyRand is a source for tests in which chance decides nothing.
func anyRand() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }
