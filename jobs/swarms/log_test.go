package swarms

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestFindAnswer compares random searches with a loop over all answers.
func TestFindAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		first := 1 + r.Uint64N(5)
		var all []Entry
		ref := r.Uint64N(9)
		for i := range r.Uint64N(20) {
			ref += 1 + r.Uint64N(2)
			all = append(all, Entry{Seq: first + i, Ref: ref})
		}
		search, last := r.Uint64N(40), first+uint64(len(all))-1
		want := Entry{}
		for _, e := range all {
			if e.Ref == search {
				want = e
			}
		}
		asked := 0
		got, err := FindAnswer(search, first, last, func(seq uint64) (Entry, error) {
			asked++
			return all[seq-first], nil
		})
		if got.Seq != want.Seq || (want.Seq == 0) != errors.Is(err, jobs.ErrNotFound) || asked > 5 {
			t.Fatalf("the answer to %d of %v is %v, %v after %d questions, want %v", search, all, got, err, asked, want)
		}
	}
	lost := errors.New("the log is away")
	if _, err := FindAnswer(1, 1, 9, func(uint64) (Entry, error) { return Entry{}, lost }); !errors.Is(err, lost) {
		t.Errorf("FindAnswer: %v, want %v", err, lost)
	}
}
