package round_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// BenchmarkWeighted is BenchmarkDecide with weights: 10 and 100 million ballots, uniform and
// skewed, all kinds of weights. Memory alternates between copies where one fits the caches of a
// large GPU.
func BenchmarkWeighted(b *testing.B) {
	d := opened(b)
	kinds := map[round.Weights]string{round.Weights8: "u8", round.Weights32: "u32", round.Fractions: "f32"}
	for _, c := range []struct {
		candidates int
		packed     bool
		kind       round.Weights
	}{
		{5, false, round.Weights8},
		{5, false, round.Weights32},
		{5, false, round.Fractions},
		{8, false, round.Fractions},
		{16, false, round.Weights8},
		{16, false, round.Fractions},
		{256, false, round.Weights8},
		{256, false, round.Fractions},
		{5, true, round.Weights8},
		{5, true, round.Fractions},
	} {
		for _, n := range []int{10_000, 1_000_000, 10_000_000, 100_000_000} {
			for _, skewed := range []bool{false, true} {
				name := fmt.Sprintf("%s/%d/%d", kinds[c.kind], c.candidates, n)
				if c.packed {
					name = "packed/" + name
				}
				if skewed {
					name = "skewed/" + name
				}
				b.Run(name, func(b *testing.B) { benchmarkWeighted(b, d, n, c.candidates, c.packed, skewed, c.kind) })
			}
		}
	}
}

func benchmarkWeighted(b *testing.B, d device.Device, n, candidates int, packed, skewed bool, kind round.Weights) {
	rule := consensus.Rule{Kind: consensus.Quorum, Quorum: consensus.Fraction{Num: 1, Den: 300}}
	ballots := ballotsOf(n, candidates, skewed)
	data := ballots
	if packed {
		data = make([]byte, consensus.PackedLen(n))
		if err := consensus.Pack(data, ballots, candidates); err != nil {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(61, 62))
	var weights []byte
	var cast func(t *consensus.Tally) error
	switch kind {
	case round.Weights8:
		weights = make([]byte, n)
		for i := range weights {
			weights[i] = byte(r.Uint32())
		}
		cast = func(t *consensus.Tally) error { return t.CastWeighted8(ballots, weights) }
	case round.Weights32:
		w := make([]uint32, n)
		for i := range w {
			w[i] = r.Uint32()
		}
		weights, cast = device.Bytes(w), func(t *consensus.Tally) error { return t.CastWeighted(ballots, w) }
	default:
		w := make([]float32, n)
		for i := range w {
			w[i] = r.Float32()
		}
		weights, cast = device.Bytes(w), func(t *consensus.Tally) error { return t.CastFractions(ballots, w) }
	}
	held := made(b, d, round.Options{
		Candidates: candidates, Rule: rule, Packed: packed, Weights: kind,
		Geometry: shape(),
	})
	bytes := len(data) + len(weights)
	var memory [][2]device.Buffer
	for range 1 + bytes/100_000_000 {
		memory = append(memory, [2]device.Buffer{filled(b, d, data), filled(b, d, weights)})
	}
	var have consensus.Decision
	timed(b, int64(bytes), func(i int) {
		if i > 0 && len(memory) == 1 {
			return
		}
		m := memory[i%len(memory)]
		if err := errors.Join(held.Point(m[0], 0, n), held.PointWeights(m[1], 0)); err != nil {
			b.Fatal(err)
		}
	}, func() (err error) {
		have, err = held.Decide(context.Background())
		return err
	})
	if need := plain(b, rule, candidates, have.Round, cast, n, nil); !reflect.DeepEqual(have, need) {
		b.Fatalf("got %+v, want %+v", have, need)
	}
}

// BenchmarkPackedGroups is BenchmarkGroups for packed ballots; groups of odd sizes begin in the
// middle of a byte.
func BenchmarkPackedGroups(b *testing.B) {
	d := opened(b)
	for _, c := range []struct{ count, size, candidates int }{
		{1_000_000, 64, 5},
		{1_000_000, 64, 15},
		{1_000_000, 63, 5},
		{1_000_000, 50, 5},
		{1000, 65536, 5},
	} {
		b.Run(fmt.Sprintf("%d-of-%d/%d", c.count, c.size, c.candidates), func(b *testing.B) {
			groups, err := round.NewGroups(d, round.GroupOptions{
				Candidates: c.candidates, Packed: true, Size: c.size,
				Count: c.count, Geometry: shape(),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer groups.Close()
			packed := make([]byte, consensus.PackedLen(groups.Len()))
			if err := consensus.Pack(packed, ballotsOf(groups.Len(), c.candidates, false), c.candidates); err != nil {
				b.Fatal(err)
			}
			if err := groups.Point(filled(b, d, packed), 0); err != nil {
				b.Fatal(err)
			}
			timed(b, int64(len(packed)), func(int) {}, func() error {
				_, err := groups.Decide(context.Background())
				return err
			})
			checkWinners(b, groups, c.count, c.candidates, func(t *consensus.Tally, g int) error {
				return t.CastPackedFrom(packed, g*c.size, c.size)
			})
		})
	}
}

var latencies = flag.String("latencies", "", "file that BenchmarkLatency appends its medians to, a JSON object a line")

// BenchmarkLatency is the wall time of a round against the number of its ballots, for the chart of
// docs/performance.md:
//
//	round.test -device cuda:0 -test.run '^$' -test.bench Latency -test.benchtime 1000x -latencies ours.json
func BenchmarkLatency(b *testing.B) {
	d := opened(b)
	const candidates = 5
	for _, packed := range []bool{false, true} {
		for _, n := range []int{
			1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000,
			30_000_000, 100_000_000,
		} {
			name := "Round.Decide, one byte"
			if packed {
				name = "Round.Decide, half a byte"
			}
			b.Run(fmt.Sprintf("packed=%v/%d", packed, n), func(b *testing.B) {
				data := ballotsOf(n, candidates, false)
				cast := func(t *consensus.Tally) error { return t.Cast(data) }
				memory := data
				if packed {
					memory = make([]byte, consensus.PackedLen(n))
					if err := consensus.Pack(memory, data, candidates); err != nil {
						b.Fatal(err)
					}
				}
				held := made(b, d, round.Options{Candidates: candidates, Packed: packed, Geometry: shape()})
				copies := make([]device.Buffer, 1+n/100_000_000)
				for i := range copies {
					copies[i] = filled(b, d, memory)
				}
				var have consensus.Decision
				median, p99 := timed(b, int64(len(memory)), func(i int) {
					if err := held.Point(copies[i%len(copies)], 0, n); err != nil {
						b.Fatal(err)
					}
				}, func() (err error) {
					have, err = held.Decide(context.Background())
					return err
				})
				if need := plain(b, consensus.Rule{}, candidates, have.Round, cast, n, nil); !reflect.DeepEqual(have,
					need) {
					b.Fatalf("got %+v, want %+v", have, need)
				}
				if *latencies != "" && b.N > 1 { // the first call is one round, to see how long it takes
					note(b, map[string]any{"name": name, "n": n, "us": median, "p99": p99})
				}
			})
		}
	}
}

// note appends a line to the file of latencies.
func note(b *testing.B, line map[string]any) {
	b.Helper()
	text, err := json.Marshal(line)
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(*latencies, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}
