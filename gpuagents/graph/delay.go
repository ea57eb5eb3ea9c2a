package graph

import (
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// delayed is the state of links with delays: a ring of input sums, one for each tick up to the
// longest delay. The ring is derived from the spikes of the last ticks, which are bits in the
// pages.
type delayed struct {
	*spiking
	recall  device.Kernel
	history uint32        // the offset in a page of the bits
	delays  device.Buffer // of the links of a list; nil: they are drawn
	slot    int           // the sums of the next tick
	ticks   int           // of the entry
	// valid reports whether the sums belong to the pages with this number of contents.
	valid    bool
	contents uint64
}

// stride returns the distance between the sums of two ticks, in words.
func (d *delayed) stride() int64 {
	const words = device.RangeAlign / 4
	return (d.Len() + words - 1) / words * words
}

func (d *delayed) bytes() int64 {
	if r := d.o.Links.Rows; r != nil {
		return int64(len(r.Delays))
	}
	return 0
}

func (d *delayed) open() (err error) {
	if d.recall, err = d.Device().Kernel(graphset.Recall); err != nil {
		return err
	}
	if d.o.Links.Rows == nil {
		return nil
	}
	if err := d.alloc(&d.delays, d.bytes()); err != nil {
		return err
	}
	return d.delays.Write(0, d.o.Links.Rows.Delays)
}

// begin puts into the stream what makes the sums of the pages, unless they are there from the ticks
// before. It adds the spikes of earlier ticks that have not arrived yet. The spikes of the last
// tick are listed and sent as in each tick.
func (d *delayed) begin(ticks int) error {
	valid := d.valid && d.contents == d.Memory().Contents()
	d.ticks, d.valid, d.contents = ticks, false, d.Memory().Contents()
	if err := d.counts.Fill(0, d.counts.Size(), 0); err != nil || valid {
		return err
	}
	if err := d.sums.Fill(0, d.sums.Size(), 0); err != nil {
		return err
	}
	for age := d.slots - 1; age > 0; age-- { // the last list is number 1, so that number 0 is empty
		which := age % 2
		if err := errors.Join(
			d.Stream.Launch(d.recall, d.Columns.Shape(d.Len()), graphset.RecallArgs{
				AgentsArgs: d.whole.neurons, History: d.history, Age: uint32(age), ActiveArgs: d.whole.list(which),
			}.Args()...),
			d.whole.carry(which, age),
		); err != nil {
			return err
		}
	}
	return nil
}

// remembers reports whether the spikes of tick number i are remembered. In a long entry, only the
// last ticks count: earlier bits are shifted out before its end.
func (d *delayed) remembers(i int) bool { return d.ticks-i <= d.slots }

func (d *delayed) advance() { d.slot = (d.slot + 1) % d.slots }

// end marks the sums as belonging to the pages.
func (d *delayed) end() { d.valid = true }

// drawn returns the arguments of a kernel that draws the delays of generated links.
func drawn(l edges.Links) graphset.DrawnArgs {
	least, most := max(1, l.Delays.Least), max(1, l.Delays.Most)
	return graphset.DrawnArgs{
		Least: uint32(least), Span: uint32(most - least + 1), Key0: uint32(l.Seed), Key1: uint32(l.Seed >> 32),
	}
}
