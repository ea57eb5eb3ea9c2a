package pager_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// TestRoomForEveryPage: without a store, a last tier with a frame for each page always has room for
// a page that leaves the tier above, also while another page comes up and its frame is not given
// back yet.
func TestRoomForEveryPage(t *testing.T) {
	const pages, room, workers = 6, 2, 6
	p, err := pager.Open(pager.Options{
		Memory: []pager.Memory{frames(room), frames(pages)}, PageSize: pageSize, NoPrefetch: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for page := range uint64(pages) {
		err = errors.Join(err, p.Create(t.Context(), page, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for worker := range uint64(workers) {
		work.Go(func() {
			r := rand.New(rand.NewPCG(3, worker))
			for range testkit.Of(100_000, 10_000) {
				pin, err := p.Pin(t.Context(), r.Uint64N(pages), 0, pager.ForWriting)
				if err != nil {
					t.Error(err)
					return
				}
				pin.Unpin()
			}
		})
	}
	work.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
