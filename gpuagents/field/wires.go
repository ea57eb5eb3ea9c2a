package field

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// Wires is the links of a graph on a device, as package graphset has them. Degree is 0 for rows of
// a list, which are between offsets.
type Wires struct {
	Offsets, Columns, Weights device.Buffer
	Degree                    uint32
	// Weighted reports whether links have weights of their own.
	Weighted bool
}

// OpenWires copies the links to the device, or puts into the stream the kernel that generates them.
// Closing the field releases their memory.
func (f *Field) OpenWires(l edges.Links) (w Wires, err error) {
	rows := l.Rows
	if rows == nil { // no kernel reads what is empty here
		rows = &edges.Rows{}
	}
	w.Weighted = l.Weighted()
	for _, m := range []struct {
		to    *device.Buffer
		bytes int64
		from  []byte
	}{
		{&w.Offsets, int64(8 * len(rows.Offsets)), device.Bytes(rows.Offsets)},
		{&w.Columns, 4 * l.Count(f.Len()), device.Bytes(rows.Columns)},
		{&w.Weights, int64(4 * len(rows.Weights)), device.Bytes(rows.Weights)},
	} {
		if *m.to, err = f.AllocFor("graph", max(edges.MinBytes, m.bytes)); err != nil {
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
	k, err := f.dev.Kernel(graphset.Links)
	if err != nil {
		return w, err
	}
	w.Degree = uint32(l.Degree)
	return w, f.Stream.Launch(k, f.Columns.Shape(f.Len()*int64((l.Degree+1)/2)), graphset.LinksArgs{
		Columns: device.Ptr(w.Columns), Agents: uint32(f.Len()), Degree: w.Degree,
		Rewire: uint64(math.Round(l.Rewire * (1 << 32))), Key0: uint32(l.Seed), Key1: uint32(l.Seed >> 32),
	}.Args()...)
}
