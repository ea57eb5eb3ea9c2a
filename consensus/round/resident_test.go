package round_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// TestResident closes rounds over ballots that change in place between them: one after the other,
// after pauses that are longer than the kernel stays, with numbers that jump, after a wait that was
// given up, and beside other work of the device.
func TestResident(t *testing.T) {
	const n, candidates = 100_003, 7
	d, r := opened(t), rand.New(rand.NewPCG(3, 4))
	ballots, err := d.Alloc(n+5, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer ballots.Close()
	held := made(t, d, round.Options{Candidates: candidates, Resident: 4 * time.Millisecond})
	if err := held.Point(ballots, 5, n); err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	for i := range 300 {
		data := randomBallots(r, n, candidates)
		if err := ballots.Write(5, data); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			<-time.After(6 * time.Millisecond) // the kernel has ended, or is about to
		}
		if i%60 == 59 {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := held.Decide(ended); err == nil {
				number++
			} else if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		var have consensus.Decision
		if i%20 == 19 {
			number += 1 << (i / 10)
			have, err = held.DecideAs(context.Background(), number)
		} else {
			have, err = held.Decide(context.Background())
			if have.Round == number+2 && i%60 == 59 { // the one that was given up was closed all the same
				number++
			}
			number++
		}
		if err != nil {
			t.Fatal(err)
		}
		need := plain(t, consensus.Rule{}, candidates, number, func(t *consensus.Tally) error { return t.Cast(data) },
			n, nil)
		if !reflect.DeepEqual(have, need) {
			t.Fatalf("round %d: got %+v, want %+v", i, have, need)
		}
	}
	if _, err := held.DecideAs(context.Background(), number); !errors.Is(err, consensus.ErrRound) {
		t.Errorf("the same round again: %v", err)
	}
}

// Nonsense is refused with its reason.
func TestResidentOptions(t *testing.T) {
	d := opened(t)
	for _, o := range []round.Options{
		{Candidates: 5, Resident: time.Microsecond},
		{Candidates: 5, Resident: time.Minute},
		{Candidates: 17, Resident: time.Second},
		{Candidates: 5, Packed: true, Resident: time.Second},
	} {
		if _, err := round.New(d, o); !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
