package round_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// The launch shape of the benchmarks, for tuning; 0: what the package chooses.
var (
	grid  = flag.Int("grid", 0, "blocks of a launch")
	block = flag.Int("block", 0, "threads of a block")
)

func shape() device.Geometry { return device.Geometry{Grid: *grid, Block: *block} }

// warmup is the number of rounds before the timed ones: code is loaded and clocks are up.
const warmup = 50

// timed reports the median and the 99th percentile of b.N calls of decide; before is called ahead
// of each and not timed. Run it with -benchtime 1000x. It returns both in microseconds.
func timed(b *testing.B, bytes int64, before func(i int), decide func() error) (median, p99 float64) {
	took := make([]time.Duration, 0, b.N)
	for i := range b.N + warmup {
		before(i)
		start := time.Now()
		err := decide()
		t := time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if i >= warmup {
			took = append(took, t)
		}
	}
	slices.Sort(took)
	us := func(t time.Duration) float64 { return float64(t.Nanoseconds()) / 1e3 }
	median, p99 = us(took[len(took)/2]), us(took[len(took)*99/100])
	b.ReportMetric(median, "p50-us")
	b.ReportMetric(p99, "p99-us")
	b.ReportMetric(float64(bytes)/median/1e3, "GB/s")
	b.ReportMetric(0, "ns/op")
	return median, p99
}

// ballotsOf are n random ballots: uniform, or with 99 of 100 for one candidate; one in 64 abstains.
func ballotsOf(n, candidates int, skewed bool) []byte {
	r := rand.New(rand.NewPCG(uint64(n), uint64(candidates)))
	out := make([]byte, n)
	for i := 0; i < n; i += 4 {
		word := r.Uint64()
		for k := i; k < min(i+4, n); k++ {
			v := int(word & 0xFFFF)
			word >>= 16
			switch {
			case v&63 == 63 && candidates < consensus.MaxCandidates:
				out[k] = consensus.Abstain
			case skewed && v%100 != 0:
				out[k] = byte(candidates / 2)
			default:
				out[k] = byte((v >> 6) % candidates)
			}
		}
	}
	return out
}

// BenchmarkDecide is a round over ballots that are in device memory, from the Go call to the
// decision in host memory: tally, leader, quorum, election of the round. Electorates that do not
// fit the caches alternate between two copies.
func BenchmarkDecide(b *testing.B) {
	d := opened(b)
	for _, c := range []struct {
		candidates                       int
		packed, skewed, ranked, resident bool
	}{
		{candidates: 5},
		{candidates: 5, resident: true},
		{candidates: 5, skewed: true},
		{candidates: 5, ranked: true},
		{candidates: 16},
		{candidates: 16, skewed: true},
		{candidates: 256},
		{candidates: 256, skewed: true},
		{candidates: 5, packed: true},
		{candidates: 15, packed: true},
	} {
		for _, n := range []int{10_000, 1_000_000, 10_000_000, 100_000_000} {
			name := fmt.Sprintf("%d/%d", c.candidates, n)
			for what, set := range map[string]bool{
				"packed/": c.packed, "skewed/": c.skewed, "ranked/": c.ranked,
				"resident/": c.resident,
			} {
				if set {
					name = what + name
				}
			}
			b.Run(name, func(b *testing.B) {
				benchmarkDecide(b, d, n, c.candidates, c.packed, c.skewed, c.ranked, c.resident)
			})
		}
	}
}

func benchmarkDecide(b *testing.B, d device.Device, n, candidates int, packed, skewed, ranked, resident bool) {
	rule := consensus.Rule{Kind: consensus.Quorum, Quorum: consensus.Fraction{Num: 1, Den: 300}}
	data := ballotsOf(n, candidates, skewed)
	cast := func(t *consensus.Tally) error { return t.Cast(data) }
	if packed {
		half := make([]byte, consensus.PackedLen(n))
		if err := consensus.Pack(half, data, candidates); err != nil {
			b.Fatal(err)
		}
		data = half
		cast = func(t *consensus.Tally) error { return t.CastPacked(data, n) }
	}
	options := round.Options{Candidates: candidates, Rule: rule, Packed: packed, Geometry: shape()}
	if resident {
		options.Resident = time.Second
	}
	held := made(b, d, options)
	copies := make([]device.Buffer, 1+n/100_000_000)
	for i := range copies {
		copies[i] = filled(b, d, data)
	}
	var priorities []uint32
	var ranks device.Buffer
	if ranked {
		r := rand.New(rand.NewPCG(8, 9))
		priorities = make([]uint32, n)
		for i := range priorities {
			priorities[i] = r.Uint32()
		}
		ranks = filled(b, d, device.Bytes(priorities))
	}
	var have consensus.Decision
	timed(b, int64(len(data)+4*len(priorities)), func(i int) {
		if i > 0 && len(copies) == 1 {
			return
		}
		err := held.Point(copies[i%len(copies)], 0, n)
		if ranked {
			err = errors.Join(err, held.PointPriorities(ranks, 0))
		}
		if err != nil {
			b.Fatal(err)
		}
	}, func() (err error) {
		have, err = held.Decide(context.Background())
		return err
	})
	if need := plain(b, rule, candidates, have.Round, cast, n, priorities); !reflect.DeepEqual(have, need) ||
		have.Round != uint64(b.N+warmup) {
		b.Fatalf("got %+v, want %+v", have, need)
	}
}

func filled(b *testing.B, d device.Device, data []byte) device.Buffer {
	b.Helper()
	m, err := d.Alloc(int64(len(data)), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	if err := m.Write(0, data); err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkGroupsGrowth is a round of 100 to ten million groups of 64 ballots each, of five
// candidates, as BenchmarkGroups measures it.
func BenchmarkGroupsGrowth(b *testing.B) {
	d := opened(b)
	for count := 100; count <= 10_000_000; count *= 10 {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			groups, err := round.NewGroups(d, round.GroupOptions{
				Candidates: 5, Size: 64, Count: count, Geometry: shape(),
			})
			if err != nil {
				b.Fatalf("round.NewGroups: %v", err)
			}
			defer groups.Close()
			data := ballotsOf(groups.Len(), 5, false)
			if err := groups.Point(filled(b, d, data), 0); err != nil {
				b.Fatalf("groups.Point: %v", err)
			}
			timed(b, int64(len(data)), func(int) {}, func() error {
				_, err := groups.Decide(context.Background())
				return err
			})
		})
	}
}

// BenchmarkGroups is a round of many groups, from the Go call until all decisions are on the device
// and their number is in host memory.
func BenchmarkGroups(b *testing.B) {
	d := opened(b)
	for _, c := range []struct {
		name             string
		count, size      int
		candidates       int
		ragged, withRows bool
	}{
		{"1M-of-64/winners", 1_000_000, 64, 5, false, false},
		{"1M-of-64/counts", 1_000_000, 64, 5, false, true},
		{"1M-of-64/16-candidates", 1_000_000, 64, 16, false, false},
		{"1M-of-64/256-candidates", 1_000_000, 64, 256, false, false},
		{"1M-of-50/winners", 1_000_000, 50, 5, false, false},
		{"1M-of-63/winners", 1_000_000, 63, 5, false, false},
		{"1M-of-50/16-candidates", 1_000_000, 50, 16, false, false},
		{"1M-of-1..127/winners", 1_000_000, 64, 5, true, false},
		{"1000-of-65536/winners", 1000, 65536, 5, false, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := round.GroupOptions{
				Candidates: c.candidates, Size: c.size, Count: c.count, Counts: c.withRows,
				Geometry: shape(),
			}
			starts := make([]uint32, c.count+1)
			r := rand.New(rand.NewPCG(1, 3))
			for g := range c.count {
				starts[g+1] = starts[g] + uint32(c.size)
				if c.ragged {
					starts[g+1] = starts[g] + 1 + r.Uint32N(uint32(2*c.size-1))
				}
			}
			if c.ragged {
				o.Size, o.Count, o.Starts = 0, 0, starts
			}
			groups, err := round.NewGroups(d, o)
			if err != nil {
				b.Fatal(err)
			}
			defer groups.Close()
			data := ballotsOf(groups.Len(), c.candidates, false)
			if err := groups.Point(filled(b, d, data), 0); err != nil {
				b.Fatal(err)
			}
			timed(b, int64(len(data)), func(int) {}, func() error {
				_, err := groups.Decide(context.Background())
				return err
			})
			checkWinners(b, groups, c.count, c.candidates, func(t *consensus.Tally, g int) error {
				return t.Cast(data[starts[g]:starts[g+1]])
			})
		})
	}
}

// checkWinners compares the winners of some of count groups with tallies. cast casts the ballots of
// a group.
func checkWinners(b *testing.B, groups *round.Groups, count, candidates int,
	cast func(t *consensus.Tally, g int) error,
) {
	b.Helper()
	winners := make([]int32, count)
	if err := groups.Winners(winners); err != nil {
		b.Fatal(err)
	}
	for g := 0; g < count; g += 1 + count/5000 {
		tally, err := consensus.NewTally(candidates)
		if err != nil {
			b.Fatal(err)
		}
		if err := cast(&tally, g); err != nil {
			b.Fatal(err)
		}
		need, err := consensus.Decide(consensus.Rule{}, tally)
		if err != nil || int(winners[g]) != need.Winner {
			b.Fatalf("group %d: %d won, want %d (%v)", g, winners[g], need.Winner, err)
		}
	}
}
