// Package graphtwin has the Go twins of the kernels of package graphset. Importing it registers them.
package graphtwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	twin.Raw(graphset.Links, links)
	twin.Raw(graphset.Mark, mark)
	twin.Raw(graphset.SIR, sir)
	twin.Raw(graphset.Rounds, rounds)
	twin.Raw(graphset.Trace, trace)
}

// pages are the states of the agents; see graphset.
type pages struct {
	bytes     []byte
	frames    []uint32
	pageBytes uint64
	per       uint32 // agents of a page
}

// pagesOf returns the pages of a launch, which are its first arguments.
func pagesOf(b *twin.Block) *pages {
	return &pages{twin.Mem[byte](b, 0), twin.Mem[uint32](b, 1), b.Uint64(2), b.Uint32(3)}
}

// state returns the place of the state of an agent.
func (p *pages) state(id uint32) *byte {
	return &p.bytes[uint64(p.frames[id/p.per])*p.pageBytes+uint64(id%p.per)]
}

// below reports whether a draw is a success of a chance.
func below(draw, chance uint32) bool { return draw < chance || chance == math.MaxUint32 }

// links is the twin of links.cu.
func links(b *twin.Block) {
	columns, agents, degree, rewire := twin.Mem[uint32](b, 0), b.Uint32(1), b.Uint32(2), b.Uint64(3)
	key := [2]uint32{b.Uint32(4), b.Uint32(5)}
	first, end := b.Part(uint64(agents))
	for id := first; id < end; id++ {
		for k := range degree {
			draws := kernels.Philox(key, [4]uint32{k / 2, uint32(id)})
			to := ring(id, uint64(k), uint64(agents))
			if draw, target := draws[k%2*2], draws[k%2*2+1]; uint64(draw) < rewire {
				if to = uint64(target) * uint64(agents-1) >> 32; to >= id {
					to++
				}
			}
			columns[id*uint64(degree)+uint64(k)] = uint32(to)
		}
	}
}

// ring returns link k of an agent on the ring of all.
func ring(id, k, agents uint64) uint64 {
	if distance := (k/2 + 1) % agents; k%2 == 0 {
		return (id + distance) % agents
	} else {
		return (id + agents - distance) % agents
	}
}

// mark is the twin of mark.cu. A block makes some words.
func mark(b *twin.Block) {
	all, agents, state, bits := pagesOf(b), b.Uint32(4), b.Uint32(5), twin.Mem[uint32](b, 6)
	first, end := b.Part((uint64(agents) + 31) / 32)
	for w := first; w < end; w++ {
		bits[w] = 0
		for id := w * 32; id < min(w*32+32, uint64(agents)); id++ {
			if uint32(*all.state(uint32(id))) == state {
				bits[w] |= 1 << (id % 32)
			}
		}
	}
}

// trace is the twin of trace.cu.
func trace(b *twin.Block) {
	all, agents, state, perRow := pagesOf(b), uint64(b.Uint32(4)), b.Uint32(5), uint64(b.Uint32(6))
	rows, column, columns, counts := b.Uint32(7), b.Uint32(8), b.Uint32(9), twin.Mem[uint32](b, 10)
	if b.Index == 0 {
		next := (column + 1) % columns
		clear(counts[next*rows : (next+1)*rows])
	}
	first, end := b.Part(agents)
	row, count := first/perRow, uint32(0)
	for id := first; id < end; id++ {
		if id/perRow != row {
			atomic.AddUint32(&counts[uint64(column)*uint64(rows)+row], count)
			row, count = id/perRow, 0
		}
		if uint32(*all.state(uint32(id))) == state {
			count++
		}
	}
	if count > 0 {
		atomic.AddUint32(&counts[uint64(column)*uint64(rows)+row], count)
	}
}

// rounds is the twin of rounds.cu.
func rounds(b *twin.Block) {
	words, frames, pageBytes := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 1), b.Uint64(2)
	slots, offset, ticks := b.Uint32(3), uint64(b.Uint32(5)), b.Uint32(6)
	first, end := b.Part(uint64(b.Uint32(4)))
	for i := uint32(first); i < uint32(end); i++ {
		words[(uint64(frames[i/slots])*pageBytes+offset)/4+uint64(i%slots)] = ticks
	}
}

// contacts is what the trials of a launch of SIR need.
type contacts struct {
	infected, columns []uint32
	weights           []int32 // nil: all links count
	misses            []uint32
	key               [2]uint32
	tick              uint32
}

// draws are those of an agent for a part of its row.
type draws struct {
	*contacts
	id, part uint32
	drawn    uint32
	block    [4]uint32
}

// next returns the next draw.
func (d *draws) next() uint32 {
	k := d.drawn % 4
	if k == 0 {
		d.block = kernels.Philox(d.key, [4]uint32{d.drawn / 4, d.id, d.tick, d.part + 1})
	}
	d.drawn++
	return d.block[k]
}

// exposed reports whether a trial of the links from..end succeeds at an infected agent. draw is the
// first draw, which is the number of trials that fail before one that succeeds, or graphset.Gaps of
// them before the next draw.
func (c *contacts) exposed(from, end uint64, draw uint32, d *draws) bool {
	for from < end {
		if left := end - from; left <= graphset.Gaps && below(draw, c.misses[left-1]) {
			return false
		}
		missed := uint64(0)
		for missed < graphset.Gaps && below(draw, c.misses[missed]) {
			missed++
		}
		if from += missed; missed < graphset.Gaps && from < end {
			other := c.columns[from]
			counts := c.weights == nil || d.next()>>16 < uint32(c.weights[from])
			if counts && c.infected[other/32]>>(other%32)&1 == 1 {
				return true
			}
			from++
		}
		draw = d.next()
	}
	return false
}

// sir is the twin of sir.cu: it goes from agent to agent, and from part to part of their rows. A
// block makes some words of the bits.
func sir(b *twin.Block) {
	all, agents := pagesOf(b), uint64(b.Uint32(4))
	next, offsets, degree := twin.Mem[uint32](b, 6), twin.Mem[uint64](b, 7), uint64(b.Uint32(10))
	recovery, count, base := b.Uint32(13), b.Uint32(17) != 0, uint64(b.Uint32(19))
	c := &contacts{
		infected: twin.Mem[uint32](b, 5), columns: twin.Mem[uint32](b, 8), misses: twin.Mem[uint32](b, 12),
		tick: b.Uint32(14), key: [2]uint32{b.Uint32(15), b.Uint32(16)},
	}
	if b.Uint32(11) != 0 {
		c.weights = twin.Mem[int32](b, 9)
	}
	row := func(id uint64) uint64 {
		if degree > 0 {
			return id * degree
		}
		return offsets[id]
	}
	var counts [graphset.States]uint64
	var four [4]uint32 // the first draws of four agents
	first, end := b.Part((agents + 31) / 32)
	for w := first; w < end; w++ {
		next[w] = 0
		for id := w * 32; id < min(w*32+32, agents); id++ {
			if id%4 == 0 {
				four = kernels.Philox(c.key, [4]uint32{0, uint32((base + id) / 4), c.tick})
			}
			state := all.state(uint32(id))
			switch *state {
			case graphset.Susceptible:
				for from, to := row(id), row(id+1); from < to; from += graphset.Part {
					d := &draws{contacts: c, id: uint32(base + id), part: uint32((from - row(id)) / graphset.Part)}
					draw := four[id%4]
					if d.part > 0 {
						draw = d.next()
					}
					if c.exposed(from, min(from+graphset.Part, to), draw, d) {
						*state = graphset.Infected
						break
					}
				}
			case graphset.Infected:
				if below(four[id%4], recovery) {
					*state = graphset.Recovered
				}
			}
			if *state == graphset.Infected {
				next[w] |= 1 << (id % 32)
			}
			counts[*state]++
		}
	}
	if count {
		tally := twin.Mem[uint64](b, 18)
		for s, n := range counts {
			atomic.AddUint64(&tally[s], n)
		}
	}
}
