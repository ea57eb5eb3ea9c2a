package graphtwin_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/fixture"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// TestSend compares random launches with links one by one, as a reader of RFC 0059 would have them.
func TestSend(t *testing.T) {
	ref, r := fixture.Reference(t), rand.New(rand.NewPCG(5, 59))
	var used [33]int // links with each delay
	for i := range testlong.Of(200, 60) {
		a := launches.RandomGraph(r, graphset.Send, r.IntN(3000))
		number := func(i int) int { return int(a.Params[i].Arg.Bits()) }
		active, offsets := device.Of[uint32](a.Params[0].Mem), device.Of[uint64](a.Params[8].Mem)
		columns, weights := device.Of[uint32](a.Params[9].Mem), device.Of[int32](a.Params[10].Mem)
		counts, want := device.Of[uint32](a.Params[1].Mem), slices.Clone(device.Of[int32](a.Params[3].Mem))
		for _, id := range active[:counts[number(2)]] {
			from := offsets[id]
			links := int(offsets[id+1] - from)
			if number(22) == 1 {
				links = int(device.Of[uint32](a.Params[23].Mem)[id])
			}
			for k := range links {
				at := from + uint64(k)
				counter := [4]uint32{uint32(k/128*32 + k%32), id, 1}
				draw := kernels.Philox([2]uint32{uint32(number(17)), uint32(number(18))}, counter)[k/32%4]
				delay := number(15) + int(uint64(draw)*uint64(number(16))>>32)
				if number(14) == 1 {
					delay = int(a.Params[11].Mem[at])
				}
				if delay <= number(7) {
					continue
				}
				used[delay]++
				weight := int32(uint32(number(21)))
				if int(id) < number(19) {
					weight = int32(uint32(number(20)))
				}
				if number(13) == 1 {
					weight = weights[at]
				}
				// It arrives delay ticks after the spike, which was age ticks before the last one.
				tick := (number(6) + delay - number(7) - 1) % number(5)
				want[tick*number(4)+int(columns[at])] += weight
			}
		}
		got := onHost(t, ref, graphset.Send, a)
		if !slices.Equal(device.Of[int32](got[3]), want) {
			t.Fatalf("launch %d: the sums differ from those of links one by one", i)
		}
		if left := device.Of[uint32](got[1]); left[1-number(2)] != 0 || left[number(2)] != counts[number(2)] {
			t.Fatalf("launch %d: lists of %d, were %d", i, left, counts)
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
	ref := fixture.Reference(t)
	const agents, degree, least, span = 500, 200, 3, 6
	send := func(seed uint32) (seen [16]int, delays []int) {
		s, kernel := fixture.NewStream(t, ref), fixture.FindKernel(t, ref, graphset.Send)
		sums, counts, active := fixture.Alloc(t, ref, 16*4*degree), fixture.Alloc(t, ref, 8), fixture.Alloc(t, ref, 4)
		columns := fixture.Alloc(t, ref, 4*agents*degree)
		to := make([]uint32, agents*degree)
		for i := range to { // each neuron has the same targets, so that each sum is of one link
			to[i] = uint32(i % degree)
		}
		fixture.Write(t, columns, 0, device.Bytes(to))
		for id := range uint32(agents) {
			fixture.Write(t, sums, 0, make([]byte, 16*4*degree))
			fixture.Write(t, counts, 0, device.Bytes([]uint32{1, 0}))
			fixture.Write(t, active, 0, device.Bytes([]uint32{id}))
			args := []device.Arg{device.Ptr(active), device.Ptr(counts), device.Uint32(0), device.Ptr(sums)}
			args = append(args, device.Uint64(degree), device.Uint32(16), device.Uint32(0), device.Uint32(0))
			args = append(args, device.Ptr(columns), device.Ptr(columns), device.Ptr(columns), device.Ptr(columns))
			for _, w := range []uint32{degree, 0, 0, least, span, seed, 1, agents, 1, 1} {
				args = append(args, device.Uint32(w))
			}
			args = append(args, device.Uint32(0), device.Ptr(columns))
			fixture.Launch(t, s, kernel, device.Geometry{Grid: 1, Block: 32}, args...)
			fixture.Wait(t, s)
			for i, n := range device.Of[int32](fixture.Download(t, sums)) {
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
