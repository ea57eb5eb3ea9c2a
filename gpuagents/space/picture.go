package space

import (
	"context"
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// shape returns the columns and rows of a picture of at most a number of cells, which are about
// squares of the first two axes.
func (x *Box) shape(cells int) (columns, rows int) {
	ratio := x.o.Sides[0] / x.o.Sides[1]
	columns = max(1, min(cells, int(math.Sqrt(float64(cells)*ratio))))
	return columns, max(1, min(cells/columns, int(math.Round(float64(columns)/ratio))))
}

// Picture draws how many agents are in each cell of a picture of the first two axes. The second
// axis goes upwards. Only living agents of a colony count. It has no value before the first tick or
// observation. It makes no page and changes none.
func (x *Box) Picture(ctx context.Context, cells int) (*raster.Picture, error) {
	for _, made := range x.Memory().Made() {
		if !made {
			return raster.Empty(), nil
		}
	}
	if err := x.openPicture(); err != nil {
		return nil, err
	}
	columns, rows := x.shape(min(cells, raster.MaxCells))
	counts := make([]uint32, columns*rows)
	bytes := int64(4 * len(counts))
	if err := errors.Join(x.Memory().FlushFrames(x.Frames), x.dots.Fill(0, bytes, 0)); err != nil {
		return nil, gpubatch.Mark(err)
	}
	if err := x.put(spaceset.Dots, x.Len(), spaceset.DotsArgs{
		PagesArgs: x.pages(), Agents: x.agents(), Living: device.Bit(x.colony != nil), Columns: uint32(columns),
		Rows: uint32(rows), Counts: device.Ptr(x.dots),
	}.Args()); err != nil {
		return nil, x.Drain(context.WithoutCancel(ctx), err)
	}
	// To its end, which the device bounds: the next tick uses the stream.
	if err := x.Sync(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if err := x.dots.Read(0, device.Bytes(counts)); err != nil {
		return nil, gpubatch.Mark(err)
	}
	return raster.Counts(counts, columns), nil
}

func (x *Box) openPicture() (err error) {
	if x.dots != nil {
		return nil
	}
	if x.loaded[spaceset.Dots], err = x.Device().Kernel(spaceset.Dots); err != nil {
		return err
	}
	dots, err := x.Device().Alloc(4*raster.MaxCells, "raster")
	if err != nil {
		return gpubatch.Mark(err)
	}
	x.dots = dots
	x.AddClose(dots.Close)
	return nil
}
