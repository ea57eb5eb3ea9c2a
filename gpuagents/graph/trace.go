package graph

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// Sizes of pictures over ticks.
const (
	traceTicks = 256 // columns of a picture
	traceRows  = 512 // the most rows that are counted
	// The agents that are counted after a picture, over all ticks: some 20 ms on a core of the host
	// device, and on a GPU.
	traceOnHost, traceOnGPU = 20_000_000, 20_000_000_000
)

// trace counts the agents in state 1 (spiking or infected) by row after each of the last ticks.
// Ticks are recorded for a time after each picture, so a network without viewers records none.
type trace struct {
	*Network
	kernel       device.Kernel
	counts       device.Buffer // a ring of traceTicks+1 columns
	rows, perRow int64
	// The ring has the ticks from first up to end, at most traceTicks.
	first, end uint32
	left       int64 // ticks that are still recorded
}

// openTrace makes the trace.
func (n *Network) openTrace() (err error) {
	t := &trace{Network: n, perRow: (n.Len() + traceRows - 1) / traceRows}
	if t.perRow > 128 { // whole warps
		t.perRow = (t.perRow + 127) / 128 * 128
	}
	t.rows = (n.Len() + t.perRow - 1) / t.perRow
	if t.kernel, err = n.Device().Kernel(graphset.Trace); err != nil {
		return err
	}
	if t.counts, err = n.Device().Alloc(4*t.rows*(traceTicks+1), "raster"); err != nil {
		return gpubatch.Mark(err)
	}
	n.AddClose(t.counts.Close)
	if err := t.counts.Fill(0, t.counts.Size(), 0); err != nil { // pictures read columns without a tick
		return gpubatch.Mark(err)
	}
	n.trace = t
	return nil
}

// forget makes the trace empty. A nil trace is empty.
func (t *trace) forget() {
	if t != nil {
		t.first, t.end = 0, 0
	}
}

// record puts the kernel that counts the agents after a tick into the stream, if a picture has
// asked for it.
func (t *trace) record(tick uint32) error {
	if t == nil || t.left == 0 {
		return nil
	}
	t.left--
	if tick != t.end || t.first == t.end { // ticks between were not recorded
		t.first = tick
		// the kernel clears the column after the one that it writes
		if err := t.launch(tick+traceTicks, 0); err != nil {
			return err
		}
	}
	t.end = tick + 1
	t.first = max(t.first, t.end-min(t.end, traceTicks))
	return t.launch(tick, t.Len())
}

// launch puts into the stream what counts some agents after a tick.
func (t *trace) launch(tick uint32, agents int64) error {
	args := graphset.TraceArgs{
		AgentsArgs: t.agentsArgs(), State: 1, PerRow: uint32(t.perRow), Rows: uint32(t.rows),
		Column: tick % (traceTicks + 1), Columns: traceTicks + 1, Counts: device.Ptr(t.counts),
	}
	args.Agents = uint32(agents)
	return t.Stream.Launch(t.kernel, t.lanes(), args.Args()...)
}

// Picture draws how many agents are in state 1 (spiking or infected) after each of the last ticks.
// A row has consecutive agents, and a column has a tick. A column without a tick has no value.
// Picture makes the next ticks be recorded, for about 20 ms of work, so the first picture is empty.
func (n *Network) Picture(_ context.Context, cells int) (*raster.Picture, error) {
	if n.trace == nil {
		if err := n.openTrace(); err != nil {
			return nil, err
		}
	}
	t, quota := n.trace, int64(traceOnGPU)
	if n.Device().Properties().ComputeMajor == 0 {
		quota = traceOnHost
	}
	t.left = max(1, min(traceTicks, quota/n.Len()))
	counts := make([]uint32, t.rows*(traceTicks+1))
	if err := t.counts.Read(0, device.Bytes(counts)); err != nil {
		return nil, gpubatch.Mark(err)
	}
	return t.picture(counts, cells), nil
}

// picture turns the columns of the ring into rows. It merges rows if there are too many cells.
func (t *trace) picture(counts []uint32, cells int) *raster.Picture {
	columns := min(traceTicks, cells)
	most := int64(cells / columns) // rows
	merged := (t.rows + most - 1) / most
	rows := (t.rows + merged - 1) / merged
	sums := make([]uint32, rows*int64(columns))
	ticks := min(int64(t.end-t.first), int64(columns))
	for k := range ticks {
		tick := t.end - uint32(ticks-k)
		for row, n := range counts[int64(tick%(traceTicks+1))*t.rows:][:t.rows] {
			sums[int64(row)/merged*int64(columns)+int64(columns)-ticks+k] += n
		}
	}
	p := raster.Counts(sums, columns)
	p.Per, p.Tick = int(merged*t.perRow), int64(t.end)
	for i := range p.States {
		if int64(i%columns) < int64(columns)-ticks {
			p.States[i] = raster.NoValue
		}
	}
	return p
}
