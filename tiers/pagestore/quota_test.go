package pagestore_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// TestQuota: two stores share 2 MiB of a medium. Their files never take more together, what one
// gives up the other may have, and all is given back in the end.
func TestQuota(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	const capacity = 2 << 20
	quota := pagestore.NewQuota(capacity)
	open := func(name string) *pagestore.Store {
		o := memOptions(fs)
		o.Tiers = o.Tiers[2:] // raw
		o.Tiers[0].Dir, o.Tiers[0].Quota = "/"+name, quota
		return mustOpen(t, o)
	}
	a, b := open("a"), open("b")
	files := func() int64 { return a.Usage(0).FileBytes + b.Usage(0).FileBytes }
	fill := func(s *pagestore.Store) (pages []uint64) {
		for page := uint64(0); ; page++ {
			err := put(s, 0, page, page)
			if errors.Is(err, tiers.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if files() > capacity || quota.Used() != files() {
				t.Fatalf("the files take %d bytes of %d, and %d are accounted for", files(), capacity, quota.Used())
			}
			pages = append(pages, page)
		}
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	pages := fill(a)
	if n := len(pages); n < 90 || len(fill(b)) != 0 || a.Fill(0) < 0.9 {
		t.Fatalf("%d pages fit, %v of the quota", n, a.Fill(0))
	}
	for _, page := range pages {
		if err := a.Delete(ctx, page); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if got := len(fill(b)); got != len(pages) {
		t.Errorf("%d pages fit into what %d have left", got, len(pages))
	}
	if a.Usage(0).FileBytes != 0 || a.Fill(0) < 0.9 {
		t.Errorf("the first store keeps %d bytes, and is %v full", a.Usage(0).FileBytes, a.Fill(0))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if quota.Used() != 0 || b.Close() != nil || quota.Used() != 0 {
		t.Errorf("%d bytes are held by closed stores", quota.Used())
	}
	b = open("b")
	if quota.Used() != files() || files() == 0 {
		t.Errorf("%d bytes are held, the files take %d", quota.Used(), files())
	}
}

// TestNew: a store is made beside a directory that cannot be read when the caller says that none is
// expected there, and is found again with the directory in order.
func TestNew(t *testing.T) {
	fs := tierstest.NewMem(0)
	o := memOptions(unreadable(fs, "/hdd"))
	if s, err := pagestore.Open(o); !errors.Is(err, syscall.EIO) {
		t.Fatal(fmt.Errorf("made without being told to: %v, %w", s, err))
	}
	o.New = true
	s := mustOpen(t, o)
	if err := put(s, 0, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(context.Background(), []byte("note")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, memOptions(fs))
	w := newWorld()
	w.pages[1], w.note = 1, "note"
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if err := put(s, 2, 2, 1); err != nil {
		t.Errorf("the directory that could not be read: %v", err)
	}
}
