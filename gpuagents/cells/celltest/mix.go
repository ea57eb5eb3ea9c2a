package celltest

import (
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// MixAgent is the state of an agent of Mix.
type MixAgent struct {
	A uint8
	B uint32
	C uint64
	D float32
	E float32 // rounded to bf16
}

// spin is the function spin of mix.cu.
func spin(v uint32, by int) uint32 { return bits.RotateLeft32(v, by) * 2654435761 }

// heard are the reductions of integers over the neighbours of an agent.
type heard struct {
	sum, most, least uint64
	count            uint32
}

// fold reduces a value.
func (g Grid) fold(id int, value func(id int) uint64) (h heard) {
	h.least = ^uint64(0)
	g.Around(id, func(id int) {
		v := value(id)
		h.sum, h.most, h.least = h.sum+v, max(h.most, v), min(h.least, v)
		if v != 0 {
			h.count++
		}
	})
	if g.Neighbours(id) == 0 {
		h.least = 0
	}
	return h
}

// bounds returns the largest and the least value over neighbours, and how many are not 0.
func (g Grid) bounds(id int, value func(id int) float32) (most, least float32, count uint32) {
	first := true
	g.Around(id, func(id int) {
		v := value(id)
		if first {
			most, least = v, v
		}
		first = false
		most, least = max(most, v), min(least, v)
		if v != 0 {
			count++
		}
	})
	return most, least, count
}

// StepMix is a tick of Mix, whose number counts from 0.
func (g Grid) StepMix(all []MixAgent, seed, tick uint64) []MixAgent {
	next := make([]MixAgent, len(all))
	for id, s := range all {
		a := g.fold(id, func(i int) uint64 { return uint64(all[i].A) })
		b := g.fold(id, func(i int) uint64 { return uint64(all[i].B) })
		c := g.fold(id, func(i int) uint64 { return all[i].C })
		ofD := func(i int) float32 { return all[i].D }
		ofE := func(i int) float32 { return all[i].E }
		mostD, leastD, countD := g.bounds(id, ofD)
		mostE, leastE, countE := g.bounds(id, ofE)
		n := g.Neighbours(id)
		mean := func(sum uint64) float32 {
			if n == 0 {
				return 0
			}
			return float32(sum) / float32(n)
		}
		x, y, z := g.Place(id)
		folded := c.sum ^ c.most ^ c.least
		v := spin(s.B, 7) + uint32(a.sum) + 3*uint32(a.most) + 5*uint32(a.least) + 7*a.count
		v = spin(v, 3) + uint32(b.sum) + 9*uint32(b.most) + 11*uint32(b.least) + 13*b.count
		v += uint32(folded) + uint32(folded>>32) + c.count + 17*countD + 19*countE
		v += uint32(x) + 1009*uint32(y) + 9176*uint32(z) + uint32(tick) + uint32(id) + uint32(n)
		draw, other := Number(seed, 0, uint32(id), tick+1), Number(seed, 1, uint32(id), tick+1)
		rate := float32(0.3)
		d := s.D + float32(rate*(g.Mean(id, ofD)-s.D)) + mean(a.sum)/1024 + mean(b.sum)/8589934592
		d = d + float32((mostD-leastD)*0.125) + float32(g.Sum(id, ofD)*0.001) +
			float32((draw-other)*Number(seed, 3, uint32(id), 0))
		e := float32(s.E*0.5) + float32(g.Mean(id, ofE)*0.25) + float32(g.Sum(id, ofE)*0.001) + mostE - leastE
		if d > 1000 {
			d = 0
		}
		if e > 1000 || e < -1000 {
			e = 1
		}
		to := MixAgent{
			B: v, C: s.C*6364136223846793005 + folded + uint64(v), D: d, E: device.FromBF16(device.ToBF16(e)),
		}
		if v%5 == 0 {
			to.B = 0
		}
		if uint8(v>>9)%3 != 0 {
			to.A = uint8(v >> 11)
		}
		next[id] = to
	}
	return next
}
