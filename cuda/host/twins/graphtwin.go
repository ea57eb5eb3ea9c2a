package twins

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	Register(graphset.Links, links)
	Register(graphset.Mark, markNode)
	Register(graphset.SIR, sir)
	Register(graphset.Rounds, rounds)
	Register(graphset.Trace, trace)
}

// graphPages are the states of the agents; see graphset.
type graphPages graphset.PagesBound

func graphPagesOf(a *graphset.PagesBound) *graphPages { return (*graphPages)(a) }

func (p *graphPages) state(id uint32) *byte {
	return &p.Pages[uint64(p.Frames[id/p.Per])*p.PageBytes+uint64(id%p.Per)]
}

// graphBelow reports whether a draw is a success of a chance.
func graphBelow(draw, chance uint32) bool { return draw < chance || chance == math.MaxUint32 }

func links(b *Block, a *graphset.LinksBound) {
	first, end := b.Part(uint64(a.Agents))
	for id := first; id < end; id++ {
		for k := range a.Degree {
			draws := kernels.Philox([2]uint32{a.Key0, a.Key1}, [4]uint32{k / 2, uint32(id)})
			to := ring(id, uint64(k), uint64(a.Agents))
			if draw, target := draws[k%2*2], draws[k%2*2+1]; uint64(draw) < a.Rewire {
				if to = uint64(target) * uint64(a.Agents-1) >> 32; to >= id {
					to++
				}
			}
			a.Columns[id*uint64(a.Degree)+uint64(k)] = uint32(to)
		}
	}
}

func ring(id, k, agents uint64) uint64 {
	if distance := (k/2 + 1) % agents; k%2 == 0 {
		return (id + distance) % agents
	} else {
		return (id + agents - distance) % agents
	}
}

// markNode is the twin of mark.cu. A block makes some words.
func markNode(b *Block, a *graphset.MarkBound) {
	all := graphPagesOf(&a.PagesBound)
	first, end := b.Part((uint64(a.Agents) + 31) / 32)
	for w := first; w < end; w++ {
		a.Bits[w] = 0
		for id := w * 32; id < min(w*32+32, uint64(a.Agents)); id++ {
			if uint32(*all.state(uint32(id))) == a.State {
				a.Bits[w] |= 1 << (id % 32)
			}
		}
	}
}

func trace(b *Block, a *graphset.TraceBound) {
	all, perRow := graphPagesOf(&a.PagesBound), uint64(a.PerRow)
	if b.Index == 0 {
		next := (a.Column + 1) % a.Columns
		clear(a.Counts[next*a.Rows : (next+1)*a.Rows])
	}
	counts := a.Counts[uint64(a.Column)*uint64(a.Rows):][:a.Rows]
	first, end := b.Part(uint64(a.Agents))
	row, count := first/perRow, uint32(0)
	for id := first; id < end; id++ {
		if id/perRow != row {
			atomic.AddUint32(&counts[row], count)
			row, count = id/perRow, 0
		}
		if uint32(*all.state(uint32(id))) == a.State {
			count++
		}
	}
	if count > 0 {
		atomic.AddUint32(&counts[row], count)
	}
}

func rounds(b *Block, a *graphset.RoundsBound) {
	words := device.Of[uint32](a.Pages)
	first, end := b.Part(uint64(a.Groups))
	for i := uint32(first); i < uint32(end); i++ {
		words[(uint64(a.Frames[i/a.Slots])*a.PageBytes+uint64(a.Offset))/4+uint64(i%a.Slots)] = a.Ticks
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

// draws are the draws of an agent for a part of its row.
type draws struct {
	*contacts
	id, part uint32
	drawn    uint32
	block    [4]uint32
}

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
		if left := end - from; left <= graphset.Gaps && graphBelow(draw, c.misses[left-1]) {
			return false
		}
		missed := uint64(0)
		for missed < graphset.Gaps && graphBelow(draw, c.misses[missed]) {
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
func sir(b *Block, a *graphset.SIRBound) {
	all, agents, base := graphPagesOf(&a.PagesBound), uint64(a.Agents), uint64(a.FirstID)
	c := &contacts{
		infected: a.Infected, columns: a.Columns, misses: a.Misses, tick: a.Tick, key: [2]uint32{a.Key0, a.Key1},
	}
	if a.Weighted != 0 {
		c.weights = a.Weights
	}
	row := func(id uint64) uint64 {
		if a.Degree > 0 {
			return id * uint64(a.Degree)
		}
		return a.Offsets[id]
	}
	var counts [graphset.States]uint64
	var four [4]uint32 // the first draws of four agents
	first, end := b.Part((agents + 31) / 32)
	for w := first; w < end; w++ {
		a.Next[w] = 0
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
				if graphBelow(four[id%4], a.Recovery) {
					*state = graphset.Recovered
				}
			}
			if *state == graphset.Infected {
				a.Next[w] |= 1 << (id % 32)
			}
			counts[*state]++
		}
	}
	if a.Count != 0 {
		for s, n := range counts {
			atomic.AddUint64(&a.Tally[s], n)
		}
	}
}
