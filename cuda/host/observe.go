package host

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// observation opens the arguments of an observe kernel (kernels.ObserveParams) for one block: the
// block's run, the page of the run's group in the element types of state, and the outputs.
type observation struct {
	run      kernels.Run
	agents   int
	slots    int
	offsets  []uint32
	f32      []float32 // the page
	u32      []uint32
	u64      []uint64
	words    []uint32 // the parameter block
	weights  []float32
	times    []int64
	features []float32
	out      outputs
}

// outputs are the columns that an observe kernel fills, by index of the observation.
type outputs struct {
	scores    []float32
	decisions []uint32
	counts    []uint32
	leaders   []uint32
	rounds    []uint64
}

func openObservation(b *Block) observation {
	runs := Mem[uint32](b, 5)[b.Index*kernels.RunWords:]
	run := kernels.Run{Frame: runs[0], Slot: runs[1], First: runs[2], Count: runs[3], Group: runs[4]}
	size := b.Uint64(1)
	frames, frame := Mem[byte](b, 0), run.Frame&^(1<<kernels.RunHostBit)
	if frame != run.Frame {
		frames = Mem[byte](b, 13)
	}
	page := frames[uint64(frame)*size:][:size]
	table := Mem[uint32](b, 2)
	return observation{
		run:      run,
		agents:   int(table[0]),
		slots:    int(table[1]),
		offsets:  table[2:],
		f32:      device.Of[float32](page),
		u32:      device.Of[uint32](page),
		u64:      device.Of[uint64](page),
		words:    Mem[uint32](b, 3),
		weights:  Mem[float32](b, 4),
		times:    Mem[int64](b, 6),
		features: Mem[float32](b, 7),
		out: outputs{
			scores:    Mem[float32](b, 8),
			decisions: Mem[uint32](b, 9),
			counts:    Mem[uint32](b, 10),
			leaders:   Mem[uint32](b, 11),
			rounds:    Mem[uint64](b, 12),
		},
	}
}

// float is word i of the parameter block as a float32.
func (o *observation) float(i int) float32 { return math.Float32frombits(o.words[i]) }

// group is the index, in elements of 4 bytes, of component c of a group variable; of 8 bytes for a
// U64.
func (o *observation) group(v, c int) int {
	return int(o.offsets[v])/4 + c*o.slots + int(o.run.Slot)
}

func (o *observation) group64(v int) int { return int(o.offsets[v])/8 + int(o.run.Slot) }

// agent is the index, in elements of 4 bytes, of component c of an agent variable for the group's
// first agent; the others follow it.
func (o *observation) agent(v, c int) int {
	return int(o.offsets[v])/4 + (c*o.slots+int(o.run.Slot))*o.agents
}

// loadGroup and storeGroup copy a group variable of float32 between the page and a slice as long as
// it is wide.
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
