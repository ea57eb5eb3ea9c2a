package graph

import (
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// delayed is what spikes need that take several ticks. The sums of the ticks to come are beside the
// pages, as many as the longest delay. They follow from the spikes of as many ticks, which are bits
// in the pages.
type delayed struct {
	*spiking
	recall  device.Kernel
	history uint32        // the place in a page of the bits
	delays  device.Buffer // of the links of a list; nil: they are drawn
	slot    int           // the sums of the next tick
	ticks   int           // of the entry
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
	if d.recall, err = d.dev.Kernel(graphset.Recall); err != nil {
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
// before. Of the spikes of an earlier tick it adds those that have not arrived yet. Those of the
// last tick are listed and sent as in each tick.
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
			d.stream.Launch(d.recall, d.Network.states.Shape(d.Len()), graphset.RecallArgs{
				AgentsArgs: d.whole.neurons, History: d.history, Age: uint32(age), ActiveArgs: d.whole.list(which),
			}.Args()...),
			d.whole.carry(which, age),
		); err != nil {
			return err
		}
	}
	return nil
}

// remembers reports whether the spikes of tick number i are remembered. Of a long entry, those of
// the ticks before the last ones need not be: no bit of them is left at its end.
func (d *delayed) remembers(i int) bool { return d.ticks-i <= d.slots }

// advance goes on to the next tick.
func (d *delayed) advance() { d.slot = (d.slot + 1) % d.slots }

// end says that the sums are those of the pages.
func (d *delayed) end() { d.valid = true }
