package graph

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// Links says whom each agent has links to: Rows of a list of edges or, if that is nil, links that
// the device generates.
type Links struct {
	// Rows are the edges of a list. They are not changed or kept.
	Rows *Rows
	// Degree is the number of links of an agent. Link k goes to the agent at the distance k/2+1 on the
	// ring of all, ahead if k is even and behind if it is odd. Each link is replaced with the chance
	// Rewire, 0 to 1, by one to a random other agent. Draws depend on Seed.
	Degree int
	Rewire float64
	Seed   uint64
	// Delays of generated links. Rows have delays in the list.
	Delays Delays
}

// Delays are the least and the most ticks that a spike takes over a link, 1 to MaxDelay. The delay
// of each link is a draw between them, both included. The zero value is 1 and 1.
type Delays struct{ Least, Most int }

// longest returns the longest delay of a link; 1: spikes arrive in the next tick.
func (l Links) longest() int {
	longest := max(1, l.Delays.Most)
	if l.Rows != nil {
		longest = 1
		for _, d := range l.Rows.Delays {
			longest = max(longest, int(d))
		}
	}
	return longest
}

func (l Links) count(agents int64) int64 {
	if l.Rows != nil {
		return int64(len(l.Rows.Columns))
	}
	return agents * int64(l.Degree)
}

// before returns the number of links of all agents below id.
func (l Links) before(id int64) int64 {
	if l.Rows != nil {
		return int64(l.Rows.Offsets[id])
	}
	return id * int64(l.Degree)
}

// least is the least bytes of memory: kernels get some also where they read nothing.
const least = 8

// Bytes returns the device memory of all links, in bytes.
func (l Links) Bytes(agents int64) int64 {
	b, offsets, weights := 4*l.count(agents), int64(0), int64(0)
	if l.Rows != nil {
		offsets, weights = 8*(agents+1), 4*int64(len(l.Rows.Weights))
	}
	return max(least, b) + max(least, offsets) + max(least, weights)
}

// Check returns an ErrInvalid for links that do not fit the number of agents.
func (l Links) Check(agents int64) error {
	if r := l.Rows; r != nil {
		if int64(len(r.Offsets)) != agents+1 || r.Offsets[agents] != uint64(len(r.Columns)) ||
			r.Weights != nil && len(r.Weights) != len(r.Columns) ||
			r.Delays != nil && len(r.Delays) != len(r.Columns) {
			return fmt.Errorf("%w: rows of %d offsets, %d links, %d weights and %d delays for %d agents", ErrInvalid,
				len(r.Offsets), len(r.Columns), len(r.Weights), len(r.Delays), agents)
		}
		for at, d := range r.Delays {
			if d < 1 || d > MaxDelay {
				return fmt.Errorf("%w: link %d has a delay of %d ticks: use 1 to %d", ErrInvalid, at, d, MaxDelay)
			}
		}
		return nil
	}
	if d := l.Delays; d != (Delays{}) && (d.Least < 1 || d.Most < d.Least || d.Most > MaxDelay) {
		return fmt.Errorf("%w: delays of %d to %d ticks: use 1 to %d", ErrInvalid, d.Least, d.Most, MaxDelay)
	}
	switch {
	case l.Degree < 1 || int64(l.Degree) > max(1, agents-1) || l.Degree > math.MaxInt32:
		return fmt.Errorf("%w: %d links of each of %d agents: use 1 or more, and fewer than agents", ErrInvalid,
			l.Degree, agents)
	case !(l.Rewire >= 0 && l.Rewire <= 1): // a NaN is neither
		return fmt.Errorf("%w: links are replaced with the chance %v: use 0 to 1", ErrInvalid, l.Rewire)
	case agents < 2:
		return fmt.Errorf("%w: links of one agent: use two agents or more", ErrInvalid)
	}
	return nil
}

func (l Links) weighted() bool { return l.Rows != nil && l.Rows.Weights != nil }

func (l Links) rewire() uint64 { return uint64(math.Round(l.Rewire * (1 << 32))) }

// Wires is links on a device, as package graphset has them. Degree is 0 where rows are between offsets.
type Wires struct {
	Offsets, Columns, Weights device.Buffer
	Degree                    uint32
	// Weighted says that links have weights of their own.
	Weighted bool
}

// Open copies the links to a device, or puts into the stream the kernel that generates them. alloc
// allocates their memory.
func (l Links) Open(d device.Device, stream device.Stream, agents int64, alloc func(bytes int64) (device.Buffer,
	error),
) (w Wires, err error) {
	rows := l.Rows
	if rows == nil { // no kernel reads what is empty here
		rows = &Rows{}
	}
	w.Weighted = l.weighted()
	for _, m := range []struct {
		to    *device.Buffer
		bytes int64
		from  []byte
	}{
		{&w.Offsets, int64(8 * len(rows.Offsets)), device.Bytes(rows.Offsets)},
		{&w.Columns, 4 * l.count(agents), device.Bytes(rows.Columns)},
		{&w.Weights, int64(4 * len(rows.Weights)), device.Bytes(rows.Weights)},
	} {
		if *m.to, err = alloc(max(least, m.bytes)); err != nil {
			return w, err
		}
		if len(m.from) > 0 {
			if err := (*m.to).Write(0, m.from); err != nil {
				return w, err
			}
		}
	}
	if l.Rows != nil {
		return w, nil
	}
	k, err := d.Kernel(graphset.Links)
	if err != nil {
		return w, err
	}
	w.Degree = uint32(l.Degree)
	return w, stream.Launch(k, field.ShapeOn(d, agents*int64((l.Degree+1)/2)), graphset.LinksArgs{
		Columns: device.Ptr(w.Columns), Agents: uint32(agents), Degree: w.Degree, Rewire: l.rewire(),
		Key0: uint32(l.Seed), Key1: uint32(l.Seed >> 32),
	}.Args()...)
}

func (l *Links) drawn() graphset.DrawnArgs {
	least, most := max(1, l.Delays.Least), max(1, l.Delays.Most)
	return graphset.DrawnArgs{
		Least: uint32(least), Span: uint32(most - least + 1), Key0: uint32(l.Seed), Key1: uint32(l.Seed >> 32),
	}
}
