package pagestore_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestOptionsAtTheirBounds: every limit of the options is taken where it is met exactly, and
// refused one beyond.
func TestOptionsAtTheirBounds(t *testing.T) {
	least := func(pageSize int) int64 {
		return pagestore.Options{PageSize: pageSize, Tables: memOptions(tierstest.NewMem(0)).Tables}.MinCapacity()
	}
	sized := func(pageSize int, capacity int64) func(*pagestore.Options) {
		return func(o *pagestore.Options) {
			o.PageSize, o.Tiers = pageSize, o.Tiers[:1]
			o.Tiers[0].Capacity, o.Tiers[0].SegmentBytes = capacity, 0
		}
	}
	many := func(n int) func(*pagestore.Options) {
		return func(o *pagestore.Options) {
			first := o.Tiers[0]
			o.Tiers = nil
			for i := range n {
				one := first
				one.Name, one.Dir = fmt.Sprint("t", i), fmt.Sprint("/t", i)
				o.Tiers = append(o.Tiers, one)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*pagestore.Options)
		ok     bool
	}{
		{"a block as a page", sized(vfs.BlockSize, 8<<20), true},
		{"half a block as a page", sized(vfs.BlockSize/2, 8<<20), false},
		{"a block and a half as a page", sized(vfs.BlockSize*3/2, 8<<20), false},
		{"the largest page", sized(pagestore.MaxPageSize, least(pagestore.MaxPageSize)), true},
		{"a page beyond the largest", sized(pagestore.MaxPageSize+vfs.BlockSize, 1<<30), false},
		{"the least capacity", sized(pageSize, least(pageSize)), true},
		{"below the least capacity", sized(pageSize, least(pageSize)-1), false},
		{"as many tiers as there may be", many(pagestore.MaxTiers), true},
		{"a tier too many", many(pagestore.MaxTiers + 1), false},
		{"a key of 16 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 16) }, true},
		{"a key of 17 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 17) }, false},
		{"a key of 23 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 23) }, false},
		{"a key of 24 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 24) }, true},
		{"a key of 31 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 31) }, false},
		{"a key of 32 bytes", func(o *pagestore.Options) { o.Key = make([]byte, 32) }, true},
		{"a key of a byte", func(o *pagestore.Options) { o.Key = make([]byte, 1) }, false},
		{"segments of no bytes", func(o *pagestore.Options) { o.Tiers[0].SegmentBytes = 0 }, true},
		{"segments of -1 bytes", func(o *pagestore.Options) { o.Tiers[0].SegmentBytes = -1 }, false},
		{"a folder that begins as another", func(o *pagestore.Options) { o.Tiers[1].Dir = "/nvme2" }, true},
		{"a folder that begins with two dots", func(o *pagestore.Options) { o.Tiers[1].Dir = "/nvme/..x" }, false},
		{"a folder around another", func(o *pagestore.Options) { o.Tiers[1].Dir = "/" }, false},
		{"no directory in the last tier", func(o *pagestore.Options) { o.Tiers[2].Dir = "" }, false},
	} {
		opts := memOptions(tierstest.NewMem(0))
		c.change(&opts)
		before := slices.Clone(opts.Tiers)
		s, err := pagestore.Open(opts)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !reflect.DeepEqual(opts.Tiers, before) {
			t.Errorf("%s: the caller's options were changed", c.name)
		}
		if s != nil {
			if n := s.Tiers(); n != len(opts.Tiers) {
				t.Errorf("%s: %d tiers", c.name, n)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// TestCallsAreRefused: calls for a tier that there is not, with an ended context, of another length
// than a page, or on a closed store fail without effect.
func TestCallsAreRefused(t *testing.T) {
	ctx := context.Background()
	opts := memOptions(tierstest.NewMem(0))
	s := mustOpen(t, opts)
	if err := put(s, 0, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, []byte("one")); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	calls := func(ctx context.Context, tier int) map[string]error {
		page := content(1, 2)
		_, commit := s.Commit(ctx, []byte("two"))
		return map[string]error{
			"put": s.Put(ctx, tier, 1, page, pagestore.Kind{Elem: 4}), "get": s.Get(ctx, 1, page),
			"move": s.Move(ctx, 1, tier), "delete": s.Delete(ctx, 1),
			"commit": commit, "settle": s.Settle(ctx), "rollback": s.Rollback(ctx),
		}
	}
	for what, err := range calls(ended, 0) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v", what, err)
		}
	}
	for _, tier := range []int{-1, 3, 4} {
		if err := s.Put(ctx, tier, 1, content(1, 2), pagestore.Kind{Elem: 4}); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("put into tier %d: %v", tier, err)
		}
		if err := s.Move(ctx, 1, tier); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("move to tier %d: %v", tier, err)
		}
	}
	for _, n := range []int{0, pageSize - 1, pageSize + 1} {
		if err := s.Put(ctx, 0, 1, make([]byte, n), pagestore.Kind{Elem: 4}); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("put of %d bytes: %v", n, err)
		}
		if err := s.Get(ctx, 1, make([]byte, n)); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("get of %d bytes: %v", n, err)
		}
	}
	if err := (world{pages: map[uint64]uint64{1: 1}, note: "one"}).compare(s); err != nil {
		t.Error(err)
	}
	if s.Epoch() != 1 || s.PageSize() != pageSize {
		t.Errorf("epoch %d, page size %d", s.Epoch(), s.PageSize())
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range calls(ctx, 0) {
		if !errors.Is(err, tiers.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
}
