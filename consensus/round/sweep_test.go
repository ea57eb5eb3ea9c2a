package round_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// sweepBallots are bytes that are ballots of one of five characters, for any number of candidates.
func sweepBallots(r *rand.Rand, character string, n, candidates int) []byte {
	data := make([]byte, n)
	one := byte(r.IntN(candidates))
	hostile := []byte{
		0xFF, 0xFE, 0xF0, 0x0F, 0xF8, 0x80, 0x7F, 0x08, 0x10, 0x1F, byte(candidates),
		byte(candidates - 1), 0xEF, 0xE0, 0,
	}
	for i := 0; i < n; {
		word := r.Uint64()
		for k := 0; k < 4 && i < n; k, i = k+1, i+1 {
			v := uint16(word >> (16 * k))
			switch {
			case character == "uniform" || character == "skewed" && v%100 == 0:
				data[i] = byte(int(v) % candidates)
			case character == "invalid": // of every value, most of them none of a candidate
				data[i] = byte(v)
			case character == "mixed": // whose half bytes and bits disagree
				data[i] = hostile[int(v)%len(hostile)]
			default:
				data[i] = one
			}
		}
	}
	return data
}

// TestSweep decides electorates of the sizes at which something could go wrong, of all characters,
// with the first ballot at every alignment, and checks the bytes around them. Sizes beyond a
// million are for GPUs, a million for GPUs and the long run.
func TestSweep(t *testing.T) {
	d := opened(t)
	sizes := []int{0, 1, 31, 32, 33, 1023, 1024, 1025}
	switch {
	case testing.Short():
	case !testkit.Long() && d.Properties().ComputeMajor == 0:
		sizes = append(sizes, 100_001)
	default:
		sizes = append(sizes, 999_999, 1_000_000, 1_000_001)
		if d.Properties().ComputeMajor > 0 {
			sizes = append(sizes, 100_000_000)
		}
	}
	for _, c := range []struct {
		candidates int
		packed     bool
		weights    round.Weights
	}{
		{candidates: 5},
		{candidates: 8},
		{candidates: 16},
		{candidates: 256},
		{candidates: 5, packed: true},
		{candidates: 16, packed: true},
		{candidates: 5, weights: round.Weights8},
		{candidates: 200, weights: round.Weights8},
		{candidates: 7, weights: round.Fractions},
		{candidates: 30, weights: round.Fractions},
		{candidates: 3, weights: round.Weights32},
		{candidates: 6, weights: round.Weights8, packed: true},
		{candidates: 14, weights: round.Weights32, packed: true},
	} {
		t.Run(fmt.Sprintf("%d/packed=%v/weights=%d", c.candidates, c.packed, c.weights), func(t *testing.T) {
			r := rand.New(rand.NewPCG(71, uint64(c.candidates)))
			held := made(t, d, round.Options{
				Candidates: c.candidates, Packed: c.packed, Weights: c.weights,
				Rule: consensus.Rule{Kind: consensus.Majority, Of: consensus.All},
			})
			for _, n := range sizes {
				if n > 10_000_000 && c.weights != round.Unweighted && c.weights != round.Weights8 {
					continue // as many bytes in 10 million
				}
				for _, character := range []string{"uniform", "skewed", "equal", "invalid", "mixed"} {
					sweep(t, d, held, r, character, n, c.candidates, c.packed, c.weights)
				}
			}
		})
	}
}

func sweep(t *testing.T, d device.Device, held *round.Round, r *rand.Rand, character string, n, candidates int,
	packed bool, kind round.Weights,
) {
	t.Helper()
	const guard = 64 // before and behind, and as many more as the alignment shifts
	size := n
	if packed {
		size = consensus.PackedLen(n)
	}
	memory := sweepBallots(r, character, size+guard+guard, candidates)
	b, err := device.From(d, memory, "sweep")
	if err != nil {
		t.Fatal(err)
	}
	var w weighing
	weights := b
	if kind != round.Unweighted {
		w = weightsOf(r, kind, n)
		if weights, err = device.From(d, w.data, "sweep"); err != nil {
			t.Fatal(err)
		}
	}
	step := 1
	if n > 10_000_000 || n > 100_000 && d.Properties().ComputeMajor == 0 {
		step = 5 // 0, 5, 10, 15
	}
	for off := 0; off < 16; off += step {
		first := guard + off - 16
		if err := held.Point(b.Buffer, int64(first), n); err != nil {
			t.Fatal(err)
		}
		data := memory[first : first+size]
		cast := func(t *consensus.Tally) error { return t.Cast(data) }
		if packed {
			cast = func(t *consensus.Tally) error { return t.CastPacked(data, n) }
		}
		if kind != round.Unweighted {
			ballots := data
			if packed {
				ballots = make([]byte, n)
				if err := consensus.Unpack(ballots, data, candidates); err != nil {
					t.Fatal(err)
				}
			}
			cast = func(t *consensus.Tally) error { return w.cast(t, ballots) }
			if err := held.PointWeights(weights.Buffer, 0); err != nil {
				t.Fatal(err)
			}
		}
		have, err := held.Decide(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rule := consensus.Rule{Kind: consensus.Majority, Of: consensus.All}
		if need := plain(t, rule, candidates, have.Round, cast, n, nil); !reflect.DeepEqual(have, need) {
			t.Fatalf("%d %s ballots from byte %d: got %+v, want %+v", n, character, first, have, need)
		}
	}
	after, err := b.All()
	if err != nil || !bytes.Equal(after, memory) {
		t.Fatalf("%d %s ballots: the memory around or of them has changed (%v)", n, character, err)
	}
	if kind != round.Unweighted {
		err = weights.Close()
	}
	if err = errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
}
