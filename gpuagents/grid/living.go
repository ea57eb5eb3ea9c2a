package grid

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// livingRows is the number of sums in which living cells are counted: a sum has 32 bits.
const livingRows = 1024

// living counts the cells that are alive in the pages, after a tick of several devices.
type living struct {
	p            *Plane
	kernel       device.Kernel
	counts       device.Buffer // of the rows, and as many that the kernel makes 0
	rows, perRow int64
}

func livingBytes(o *Options) int64 {
	if o.Devices < 2 {
		return 0
	}
	return 2 * 4 * livingRows
}

func openLiving(p *Plane) (l *living, err error) {
	l = &living{p: p, perRow: (p.Len() + livingRows - 1) / livingRows}
	l.perRow = (l.perRow + 127) / 128 * 128 // whole warps
	l.rows = (p.Len() + l.perRow - 1) / l.perRow
	if l.kernel, err = p.Device().Kernel(graphset.Trace); err != nil {
		return nil, err
	}
	l.counts, err = p.Alloc(livingBytes(&p.o))
	return l, err
}

// start puts the count into the stream of the grid, and result returns it after the work.
func (l *living) start() error {
	if err := l.counts.Fill(0, l.counts.Size(), 0); err != nil {
		return err
	}
	p := l.p
	return p.Stream.Launch(l.kernel, p.Columns.Shape((p.Len()+3)/4), graphset.TraceArgs{
		AgentsArgs: graphset.AgentsArgs{PagesArgs: p.Columns.Pages(0), Agents: uint32(p.Len())}, State: 1,
		PerRow: uint32(l.perRow), Rows: uint32(l.rows), Columns: 2, Counts: device.Ptr(l.counts),
	}.Args()...)
}

func (l *living) result() (sum uint64, err error) {
	counts := make([]uint32, l.rows)
	if err := l.counts.Read(0, device.Bytes(counts)); err != nil {
		return 0, err
	}
	for _, n := range counts {
		sum += uint64(n)
	}
	return sum, nil
}
