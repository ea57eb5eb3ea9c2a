package twins_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// delayOf returns the delay of link k of a neuron that is drawn.
func delayOf(a *graphset.DrawnBound, id uint32, k int) uint32 {
	counter := [4]uint32{uint32(k/128*32 + k%32), id, 1}
	draw := kernels.Philox([2]uint32{a.Key0, a.Key1}, counter)[k/32%4]
	return a.Least + uint32(uint64(draw)*uint64(a.Span)>>32)
}

// TestSend compares random launches with links one by one, as a reader of RFC 0059 would have them.
func TestSend(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(5, 59))
	var used [33]int // links with each delay
	for i := range testkit.Of(200, 60) {
		launch := launches.RandomGraph(r, graphset.Send, r.IntN(3000))
		a := launches.Named[graphset.SendBound](launch.Params, nil)
		want := slices.Clone(a.Sums)
		for _, id := range a.Active[:a.Counts[a.Which]] {
			from := a.Offsets[id]
			links := int(a.Offsets[id+1] - from)
			if a.Partial == 1 {
				links = int(a.Lengths[id])
			}
			for k := range links {
				at, delay := from+uint64(k), delayOf(&a.DrawnBound, id, k)
				if a.Listed == 1 {
					delay = uint32(a.Delays[at])
				}
				if delay <= a.Age {
					continue
				}
				used[delay]++
				weight := int32(a.Inhibition)
				if id < a.Exciting {
					weight = int32(a.Excitation)
				}
				if a.Weighted == 1 {
					weight = a.Weights[at]
				}
				// It arrives delay ticks after the spike, which was age ticks before the last one.
				tick := (a.Slot + delay - a.Age - 1) % a.Slots
				want[uint64(tick)*a.Stride+uint64(a.Columns[at])] += weight
			}
		}
		got := launches.Named[graphset.SendBound](launch.Params, launches.On(t, ref, graphset.Send, launch.Params))
		if !slices.Equal(got.Sums, want) {
			t.Fatalf("launch %d: the sums differ from the sums of links one by one", i)
		}
		if left := got.Counts; left[1-a.Which] != 0 || left[a.Which] != a.Counts[a.Which] {
			t.Fatalf("launch %d: lists of %d, were %d", i, left, a.Counts)
		}
	}
	for delay, n := range used[1:] {
		if n < 100 {
			t.Errorf("%d links have the delay %d: too few for a comparison", n, delay+1)
		}
	}
}

// TestDelays: delays that are drawn are alike, and another seed gives others.
func TestDelays(t *testing.T) {
	ref := launches.Reference(t)
	const agents, degree, least, span = 500, 200, 3, 6
	send := func(seed uint32) (seen [16]int, delays []int) {
		s, kernel := launches.NewStream(t, ref), launches.FindKernel(t, ref, graphset.Send)
		sums := launches.Alloc(t, ref, 16*4*degree)
		counts, active := launches.Alloc(t, ref, 8), launches.Alloc(t, ref, 4)
		columns := launches.Alloc(t, ref, 4*agents*degree)
		to := make([]uint32, agents*degree)
		for i := range to { // each neuron has the same targets, so that each sum is of one link
			to[i] = uint32(i % degree)
		}
		launches.Write(t, columns, 0, device.Bytes(to))
		for id := range uint32(agents) {
			launches.Write(t, sums, 0, make([]byte, 16*4*degree))
			launches.Write(t, counts, 0, device.Bytes([]uint32{1, 0}))
			launches.Write(t, active, 0, device.Bytes([]uint32{id}))
			links := device.Ptr(columns)
			launches.Start(t, s, kernel, device.Geometry{Grid: 1, Block: 32}, graphset.SendArgs{
				ActiveArgs: graphset.ActiveArgs{Active: device.Ptr(active), Counts: device.Ptr(counts)},
				Sums:       device.Ptr(sums), Stride: degree, Slots: 16, Offsets: links, Columns: links, Weights: links,
				Delays: links, Degree: degree,
				DrawnArgs:   graphset.DrawnArgs{Least: least, Span: span, Key0: seed, Key1: 1},
				CarriedArgs: graphset.CarriedArgs{Exciting: agents, Excitation: 1, Inhibition: 1, Lengths: links},
			}.Args()...)
			launches.Wait(t, s)
			for i, n := range device.Of[int32](launches.Download(t, sums)) {
				if seen[i/degree] += int(n); n == 1 {
					delays = append(delays, i)
				}
			}
		}
		return seen, delays
	}
	seen, delays := send(1)
	for slot, n := range seen { // 16,667 of each on average, with a deviation of 118
		if d := slot + 1; d < least || d >= least+span {
			if n != 0 {
				t.Errorf("%d links have the delay %d", n, d)
			}
		} else if n < 16667-600 || n > 16667+600 {
			t.Errorf("%d links have the delay %d, want about 16667", n, d)
		}
	}
	if _, other := send(2); slices.Equal(delays, other) {
		t.Error("the seed changes nothing")
	}
}
