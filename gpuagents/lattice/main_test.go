package lattice

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// openDevice opens the device of the flag. On the host device, kernels are compiled for the
// processor.
func openDevice(t testing.TB) device.Device {
	t.Helper()
	d := opentest.Device(t)
	if d.Properties().ComputeMajor == 0 {
		return emulation.NewDevice(t, d)
	}
	return d
}

// address binds a cell to a grid.
func address(t testing.TB, of cells.Lattice, g celltest.Grid, group int) *cells.Addressed {
	t.Helper()
	of.Agents, of.Faces, of.Periodic, of.Dimensions = group, g.Faces, g.Periodic, 2
	if g.Depth > 1 {
		of.Dimensions = 3
	}
	c, err := cells.AddressLattice(of)
	if err != nil {
		t.Fatalf("AddressLattice: %v, want no error", err)
	}
	return c
}

// open returns a lattice with open pages, for a group size.
func open(t testing.TB, d device.Device, of cells.Lattice, g celltest.Grid, group int, o Options) *Lattice {
	t.Helper()
	o.Width, o.Height, o.Depth = int64(g.Width), int64(g.Height), int64(g.Depth)
	cell := address(t, of, g, group)
	step, err := Compile(d, cell)
	ok(t, err)
	l, err := New(d, nil, cell, step, o)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	testkit.Close(t, l)
	if err := l.Memory().Open(t.Context(), nil); err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	return l
}

// all returns the numbers of all agents.
func all(l *Lattice) (ids []uint32) {
	for i := range l.Len() {
		ids = append(ids, uint32(i))
	}
	return ids
}

// tick makes n ticks.
func tick(t testing.TB, l *Lattice, n int) []uint64 {
	t.Helper()
	tally, err := l.Tick(t.Context(), t.Context(), n, 3)
	if err != nil {
		t.Fatalf("Tick: %v, want no error", err)
	}
	return tally
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v, want no error", err)
	}
}
