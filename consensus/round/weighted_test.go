package round_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// weighing is the weights of n ballots of one kind, and what consensus makes of ballots with them.
type weighing struct {
	data []byte // as the device has them
	give func(*round.Round) error
	cast func(t *consensus.Tally, ballots []byte) error
}

// weightsOf draws n weights: uniform, the largest, or for fractions any bits.
func weightsOf(r *rand.Rand, kind round.Weights, n int) weighing {
	character := r.IntN(3)
	switch kind {
	case round.Weights8:
		w := make([]uint8, n)
		for i := range w {
			w[i] = []uint8{uint8(r.Uint32()), 255, uint8(r.IntN(2))}[character]
		}
		return weighing{
			w, func(h *round.Round) error { return h.Weigh8(w) },
			func(t *consensus.Tally, b []byte) error { return t.CastWeighted8(b, w) },
		}
	case round.Weights32:
		w := make([]uint32, n)
		for i := range w {
			w[i] = []uint32{r.Uint32(), math.MaxUint32, r.Uint32() >> r.IntN(32)}[character]
		}
		return weighing{
			device.Bytes(w), func(h *round.Round) error { return h.Weigh(w) },
			func(t *consensus.Tally, b []byte) error { return t.CastWeighted(b, w) },
		}
	}
	w := make([]float32, n)
	for i := range w {
		w[i] = []float32{r.Float32(), 70_000 * r.Float32(), math.Float32frombits(r.Uint32())}[character]
	}
	return weighing{
		device.Bytes(w), func(h *round.Round) error { return h.WeighFractions(w) },
		func(t *consensus.Tally, b []byte) error { return t.CastFractions(b, w) },
	}
}

// TestWeightedRounds decides random electorates with weights of every kind, as the pure-Go tally
// does.
func TestWeightedRounds(t *testing.T) {
	const capacity = 20_001
	d, r := opened(t), rand.New(rand.NewPCG(31, 32))
	for _, c := range []struct {
		candidates int
		packed     bool
		weights    round.Weights
		rule       string
	}{
		{5, false, round.Weights8, "weighted"},
		{16, false, round.Weights32, "quorum 1/20"},
		{5, false, round.Fractions, "majority"},
		{256, false, round.Fractions, "plurality"},
		{200, false, round.Weights8, "quorum 1/190 of all"},
		{8, false, round.Weights32, "quorum 4294967294/4294967295"},
		{5, true, round.Weights8, "majority of all"},
		{16, true, round.Fractions, "weighted"},
		{1, true, round.Weights32, "unanimous"},
	} {
		rule, err := consensus.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		held := made(t, d, round.Options{
			Candidates: c.candidates, Rule: rule, Packed: c.packed, Weights: c.weights,
			Capacity: capacity,
		})
		for number := uint64(1); number <= 30; number++ {
			n := []int{0, 1, 33, 1000, capacity, r.IntN(capacity)}[r.IntN(6)]
			ballots, err := castRandom(r, held, n, c.candidates, c.packed)
			w := weightsOf(r, c.weights, n)
			err = errors.Join(err, w.give(held))
			priorities, err2 := maybePrioritize(r, held, n)
			if err = errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			have, err := held.Decide(t.Context())
			need := plain(t, rule, c.candidates, number, func(t *consensus.Tally) error { return w.cast(t, ballots) },
				n, priorities)
			if err != nil || !reflect.DeepEqual(have, need) {
				t.Fatalf("%+v, %d ballots: got %+v, want %+v (%v)", c, n, have, need, err)
			}
		}
	}
}

// TestRandomWeightedRounds is 50,000 small electorates with weights, anywhere in device memory.
func TestRandomWeightedRounds(t *testing.T) {
	cases := 50_000
	if testing.Short() {
		cases = 1000
	}
	const size = 1 << 10
	d, r := opened(t), rand.New(rand.NewPCG(33, 34))
	kinds := []round.Weights{round.Weights8, round.Weights32, round.Fractions}
	for i, candidates := range []int{3, 11, 200} {
		for _, kind := range kinds {
			rule := consensus.Rule{Kind: []consensus.Kind{
				consensus.Majority, consensus.Weighted,
				consensus.Plurality,
			}[i]}
			held := made(t, d, round.Options{Candidates: candidates, Weights: kind, Rule: rule})
			b, err := d.Alloc(size, "test")
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.Alloc(4*size, "test")
			if err != nil {
				t.Fatal(err)
			}
			var ballots []byte
			var w weighing
			for i := range cases / 9 {
				if i%500 == 0 {
					ballots, w = randomBallots(r, size, candidates), weightsOf(r, kind, size)
					if err := errors.Join(b.Write(0, ballots), m.Write(0, w.data)); err != nil {
						t.Fatal(err)
					}
				}
				n := r.IntN(1 << r.IntN(9))
				off, at := r.IntN(size-n), 16*r.IntN((size-n)/16+1)
				if err := errors.Join(held.Point(b, int64(off), n),
					held.PointWeights(m, int64(at*len(w.data)/size))); err != nil {
					t.Fatal(err)
				}
				have, err := held.Decide(t.Context())
				// The weights from number at on belong to the ballots from number off on.
				shifted := make([]byte, size)
				copy(shifted[at:], ballots[off:off+n])
				need := plain(t, rule, candidates, uint64(i+1),
					func(t *consensus.Tally) error { return castRange(t, kind, shifted, w.data, at, n) }, n, nil)
				if err != nil || !reflect.DeepEqual(have, need) {
					t.Fatalf("%d ballots at %d, weights %d at %d: got %+v, want %+v (%v)", n, off, kind, at, have, need,
						err)
				}
			}
			if err := errors.Join(b.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// castRange casts n ballots from number at on with their weights.
func castRange(t *consensus.Tally, kind round.Weights, ballots, weights []byte, at, n int) error {
	switch kind {
	case round.Weights8:
		return t.CastWeighted8(ballots[at:at+n], weights[at:at+n])
	case round.Weights32:
		return t.CastWeighted(ballots[at:at+n], device.Of[uint32](weights)[at:at+n])
	}
	return t.CastFractions(ballots[at:at+n], device.Of[float32](weights)[at:at+n])
}

func TestWeightRefusals(t *testing.T) {
	d := opened(t)
	if r, err := round.New(d, round.Options{Candidates: 2, Weights: 4}); !errors.Is(err, device.ErrInvalidArgument) ||
		r != nil {
		t.Errorf("weights of no kind: %v", err)
	}
	b, err := d.Alloc(100, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	none := made(t, d, round.Options{Candidates: 2, Capacity: 3})
	held := made(t, d, round.Options{Candidates: 2, Capacity: 3, Weights: round.Fractions})
	early := held.WeighFractions(nil)
	if err := errors.Join(none.Cast([]byte{1, 1}), held.Cast([]byte{0, 1})); err != nil {
		t.Fatal(err)
	}
	_, unweighed := held.Decide(t.Context())
	for what, err := range map[string]error{
		"before ballots":   early,
		"not weighed":      unweighed,
		"no such weights":  none.Weigh([]uint32{1, 2}),
		"pointed at none":  none.PointWeights(b, 0),
		"another kind":     held.Weigh8([]uint8{1, 2}),
		"too few":          held.WeighFractions([]float32{1}),
		"no memory":        held.PointWeights(nil, 0),
		"behind the end":   held.PointWeights(b, 96),
		"not aligned":      held.PointWeights(b, 4),
		"before the start": held.PointWeights(b, -16),
	} {
		if !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := held.WeighFractions([]float32{0.5, float32(math.NaN())}); err != nil {
		t.Fatal(err)
	}
	got, err := held.Decide(t.Context())
	if err != nil || got.Winner != 0 || got.Total != consensus.One/2 || got.BadWeights != 1 {
		t.Errorf("half a vote against none: %+v, %v", got, err)
	}
	if err := held.Cast([]byte{1, 1, 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Decide(t.Context()); !errors.Is(err, device.ErrInvalidArgument) {
		t.Errorf("the weights of other ballots: %v", err)
	}
}
