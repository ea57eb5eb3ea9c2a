// Package celltwin has the Go twins of the kernels of cells: kernels that observe for groups, and
// kernels of agent-addressed swarms.
//
// A twin has the same bits as its kernel, page for page. So it does its arithmetic in float32 with
// package fmath, in the order of the kernel, and converts each product before it adds it.
package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// observation is the arguments of an observe kernel (kernels.ObserveArgs) as one block sees them:
// the run of the block, the page of the run's group in each element type, and the outputs.
type observation struct {
	run     kernels.Run
	agents  int      // of a group
	slots   int      // groups of a page
	offsets []uint32 // of the variables, in bytes from the start of a page
	// The page, as elements of each type.
	f32 []float32
	u32 []uint32
	u64 []uint64

	words    []uint32 // the parameter block
	weights  []float32
	times    []int64
	features []float64
	out      outputs
}

// outputs are the columns that an observe kernel fills, by index of the observation.
type outputs struct {
	scores    []float32
	decisions []uint32
	counts    []uint32 // of the votes, one for each candidate
	leaders   []uint32 // numbers of agents in their group
	rounds    []uint64 // after the observation
}

// openObservation reads the arguments of a block. The page is in device memory or in host memory,
// as the run says.
func openObservation(b *twins.Block, a *kernels.ObserveBound) observation {
	runs := device.Of[uint32](a.Runs)[b.Index*kernels.RunWords:]
	run := kernels.Run{Frame: runs[0], Slot: runs[1], First: runs[2], Count: runs[3], Group: runs[4]}
	frames, frame := a.Pages, run.Frame&^(1<<kernels.RunHostBit)
	if frame != run.Frame {
		frames = a.Host
	}
	page := frames[uint64(frame)*a.PageBytes:][:a.PageBytes]
	return observation{
		run:      run,
		agents:   int(a.Layout[0]),
		slots:    int(a.Layout[1]),
		offsets:  a.Layout[2:],
		f32:      device.Of[float32](page),
		u32:      device.Of[uint32](page),
		u64:      device.Of[uint64](page),
		words:    a.Params,
		weights:  a.Weights,
		times:    a.Times,
		features: a.Features,
		out:      outputs{a.Scores, a.Decisions, a.Counts, a.Leaders, a.Rounds},
	}
}

func (o *observation) float(i int) float32 { return math.Float32frombits(o.words[i]) }

// group returns the index, in elements of 4 bytes, of component c of a group variable.
func (o *observation) group(v, c int) int {
	return int(o.offsets[v])/4 + c*o.slots + int(o.run.Slot)
}

// group64 returns the index of component 0 of a group variable of 8 bytes, in such elements.
func (o *observation) group64(v int) int { return int(o.offsets[v])/8 + int(o.run.Slot) }

// loadOffsets copies a group variable of int64 from the page.
func (o *observation) loadOffsets(v int, to []int64) {
	for c := range to {
		to[c] = int64(o.u64[o.group64(v)+c*o.slots])
	}
}

// storeOffsets is the inverse of loadOffsets.
func (o *observation) storeOffsets(v int, from []int64) {
	for c := range from {
		o.u64[o.group64(v)+c*o.slots] = uint64(from[c])
	}
}

// agent returns the index, in elements of 4 bytes, of component c of an agent variable for the
// first agent of the group; the other agents follow it.
func (o *observation) agent(v, c int) int {
	return int(o.offsets[v])/4 + (c*o.slots+int(o.run.Slot))*o.agents
}

// loadGroup copies a group variable of float32 from the page to a slice as long as the variable.
func (o *observation) loadGroup(v int, to []float32) {
	for c := range to {
		to[c] = o.f32[o.group(v, c)]
	}
}

func (o *observation) storeGroup(v int, from []float32) {
	for c := range from {
		o.f32[o.group(v, c)] = from[c]
	}
}

// loadGroup32 is loadGroup for a variable of uint32.
func (o *observation) loadGroup32(v int, to []uint32) {
	for c := range to {
		to[c] = o.u32[o.group(v, c)]
	}
}

func (o *observation) storeGroup32(v int, from []uint32) {
	for c := range from {
		o.u32[o.group(v, c)] = from[c]
	}
}
