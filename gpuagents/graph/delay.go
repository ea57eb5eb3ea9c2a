package graph

import (
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// delayed is what spikes need that take several ticks. The sums of the ticks to come are beside the pages,
// as many as the longest delay. They follow from the spikes of as many ticks, which are bits in the pages.
type delayed struct {
	*spiking
	recall, remember device.Kernel
	history          uint32        // the place in a page of the bits
	delays           device.Buffer // of the links of a list; nil: they are drawn
	slot             int           // the sums of the next tick
	ticks            int           // of the entry
	// valid says that the sums are those of the pages, whose content is of the number contents.
	valid    bool
	contents uint64
}

// stride returns the words from the sums of a tick to those of the next one.
func (d *delayed) stride() int64 {
	const words = device.RangeAlign / 4
	return (d.Len() + words - 1) / words * words
}

// bytes returns what is beside the sums: the delays of a list.
func (d *delayed) bytes() int64 {
	if r := d.o.Links.Rows; r != nil {
		return int64(len(r.Delays))
	}
	return 0
}

func (d *delayed) open() (err error) {
	for name, to := range map[string]*device.Kernel{graphset.Recall: &d.recall, graphset.Remember: &d.remember} {
		if *to, err = d.dev.Kernel(name); err != nil {
			return err
		}
	}
	if d.bytes() == 0 {
		return nil
	}
	if err := d.alloc(&d.delays, d.bytes()); err != nil {
		return err
	}
	return d.delays.Write(0, d.o.Links.Rows.Delays)
}

// begin puts into the stream what makes the sums of the pages, unless they are there from the ticks
// before. Of the spikes of an earlier tick it adds those that have not arrived yet. Those of the last tick
// are listed and sent as in each tick.
func (d *delayed) begin(ticks int) error {
	valid := d.valid && d.contents == d.memory.Contents()
	d.ticks, d.valid, d.contents = ticks, false, d.memory.Contents()
	if err := d.counts.Fill(0, d.counts.Size(), 0); err != nil || valid {
		return err
	}
	if err := d.sums.Fill(0, d.sums.Size(), 0); err != nil {
		return err
	}
	for age := d.slots - 1; age > 0; age-- { // the last list is number 1, so that number 0 is empty
		which := age % 2
		if err := errors.Join(
			d.stream.Launch(d.recall, d.Network.states.Shape(d.Len()), append(d.page(), device.Uint32(d.history),
				device.Uint32(uint32(age)), device.Ptr(d.active[which]), device.Ptr(d.counts),
				device.Uint32(uint32(which)))...),
			d.send(which, age),
		); err != nil {
			return err
		}
	}
	return nil
}

// send puts into the stream what adds the spikes of a list, age ticks before the last one, to the sums of
// the ticks in which they arrive.
func (d *delayed) send(which, age int) error {
	l, v := d.o.Links, d.cell.Value
	delays, least, most := d.delays, max(1, l.Delays.Least), max(1, l.Delays.Most)
	if delays == nil {
		delays = d.weights // it is not read
	}
	return d.stream.Launch(d.push, d.pushShape(), device.Ptr(d.active[which]), device.Ptr(d.counts),
		device.Uint32(uint32(which)), device.Ptr(d.sums), device.Uint64(uint64(d.stride())),
		device.Uint32(uint32(d.slots)), device.Uint32(uint32(d.slot)), device.Uint32(uint32(age)),
		device.Ptr(d.offsets), device.Ptr(d.columns), device.Ptr(d.weights), device.Ptr(delays),
		device.Uint32(d.degree), bit(l.Rows != nil && l.Rows.Weights != nil), bit(d.delays != nil),
		device.Uint32(uint32(least)), device.Uint32(uint32(most-least+1)), device.Uint32(uint32(l.Seed)),
		device.Uint32(uint32(l.Seed>>32)), device.Uint32(d.exciting()), device.Uint32(fixed(v("weight"))),
		device.Uint32(fixed(-v("weight")*v("inhibition"))))
}

// inputs returns the argument for the sums of the next tick.
func (d *delayed) inputs() device.Arg {
	return device.Range(d.sums, int64(d.slot)*4*d.stride(), 4*d.Len())
}

// next puts into the stream what remembers the spikes of tick number i, and goes on to the next one. Of a
// long entry, the ticks before the last ones need not be remembered: no bit of them is left at its end.
func (d *delayed) next(i int) error {
	if d.slot = (d.slot + 1) % d.slots; d.ticks-i > d.slots {
		return nil
	}
	keep := uint32(math.MaxUint32) >> (edges.MaxDelay - d.slots)
	return d.stream.Launch(d.remember, d.Network.states.Shape(d.Len()), append(d.page(), device.Uint32(d.history),
		device.Uint32(keep))...)
}

// end says that the sums are those of the pages.
func (d *delayed) end() { d.valid = true }
