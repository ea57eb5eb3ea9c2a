package state

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// window bounds the bytes of variables that are read into host memory at a time.
const window = 16 << 20

// read is a variable that is read from the pages.
type read struct {
	name   string
	v      expr.PageVar
	width  int64 // elements of a unit that the text reads
	off    int64 // of the first byte in a page
	extent int   // bytes of all units of a page, from off on
}

// onHost computes a job on the cores of the host. It reads the variables of the text where they
// are, and moves no page.
func (c *computer) onHost(ctx context.Context, j *job) ([]expr.Partial, error) {
	reads, size := c.reads(j)
	sums := j.f.NewPageSums(c.layout, j.votes, j.group)
	first, end := j.pages()
	each := min(max(1, window/max(size, 1)), end-first)
	buf := make([]uint64, (each*size+7)/8)
	l := c.s.Layout
	for from := first; from < end; from += each {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		clear(buf) // pages that do not exist are zeros
		data, parts := device.Bytes(buf), []pager.Part(nil)
		n := min(each, end-from)
		for page := range n {
			at := page * size
			for _, r := range reads {
				parts = append(parts, pager.Part{Page: uint64(from + page), Off: r.off, Bytes: data[at:][:r.extent]})
				at += align(r.extent)
			}
		}
		if err := c.s.Memory.ReadAll(context.WithoutCancel(ctx), parts); err != nil {
			return nil, err
		}
		for page := range n {
			lo := max(0, j.from-(from+page)*l.Slots) * l.Agents
			hi := min(l.Slots, j.to-(from+page)*l.Slots) * l.Agents
			in, ballots := c.arrays(reads, data[page*size:][:size], from+page, lo, hi)
			if err := sums.Add(ctx, from+page, hi-lo, in, ballots); err != nil {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return nil, fmt.Errorf("computation: %w", err)
			}
		}
	}
	return sums.Results(), nil
}

// align rounds up so that every variable in a buffer is aligned.
func align(n int) int { return (n + 7) / 8 * 8 }

const ballots = "vote"

// reads returns the variables that a job reads, and their bytes of a page.
func (c *computer) reads(j *job) (all []read, size int) {
	names := j.f.Inputs()
	if j.votes > 0 {
		names = append(names, ballots)
	}
	seen := map[string]bool{}
	for _, name := range names {
		v, found := c.layout.Vars[name]
		if !found || seen[name] {
			continue
		}
		seen[name] = true
		of := c.variable(name)
		units := int64(c.s.Layout.Slots)
		if !v.Group {
			units *= int64(c.s.Layout.Agents)
		}
		r := read{name: name, v: v, width: int64(of.Count), off: v.Off}
		r.extent = int((units-1)*v.Unit + (r.width-1)*v.Elem + int64(v.Bytes))
		all, size = append(all, r), size+align(r.extent)
	}
	return all, size
}

func (c *computer) variable(name string) raster.Var {
	for _, v := range c.s.Vars {
		if v.Name == name {
			return v
		}
	}
	return raster.Var{}
}

// arrays returns the inputs of the agents lo to hi-1 of a page, row after row, and their ballots.
func (c *computer) arrays(reads []read, data []byte, page, lo, hi int) (map[string]expr.Array, []byte) {
	n, agents := hi-lo, c.s.Layout.Agents
	in := map[string]expr.Array{}
	var votes []byte
	at := 0
	for _, r := range reads {
		stored := data[at:][:r.extent]
		at += align(r.extent)
		if r.v.Vote {
			votes = stored[lo:hi]
			shifted := make([]byte, n)
			for i, v := range votes {
				shifted[i] = v - 1
			}
			in[r.name] = expr.Array{Data: shifted, Rows: int64(n)}
			continue
		}
		in[r.name] = expr.Array{Data: r.rows(stored, agents, lo, hi), Rows: int64(n)}
	}
	first := uint32((c.s.First+page*c.s.Layout.Slots)*agents + lo)
	for _, name := range []string{expr.AgentInput, expr.GroupInput} {
		if _, found := in[name]; found {
			continue
		}
		ids := make([]uint32, n)
		for i := range ids {
			if ids[i] = first + uint32(i); name == expr.GroupInput {
				ids[i] /= uint32(agents)
			}
		}
		in[name] = expr.Array{Data: device.Bytes(ids), Rows: int64(n)}
	}
	return in, votes
}

// rows returns the elements of agents one behind the other. Elements of 8 bytes become u32.
func (r read) rows(stored []byte, agents, lo, hi int) []byte {
	size := int64(r.v.Bytes)
	if !r.v.Group && size < 8 && r.v.Unit == r.width*size && (r.width == 1 || r.v.Elem == size) {
		return stored[int64(lo)*r.v.Unit : int64(hi)*r.v.Unit]
	}
	each := min(size, 4)
	out := make([]uint32, (int64(hi-lo)*r.width*each+3)/4) // aligned for every type
	all := device.Bytes(out)
	to := all[:0]
	for i := lo; i < hi; i++ {
		unit := int64(i)
		if r.v.Group {
			unit /= int64(agents)
		}
		for e := range r.width {
			from := stored[unit*r.v.Unit+e*r.v.Elem:][:size]
			if size == 8 {
				small := []uint32{uint32(min(device.Of[uint64](from)[0], math.MaxUint32))}
				from = device.Bytes(small)
			}
			to = append(to, from...)
		}
	}
	return to
}
