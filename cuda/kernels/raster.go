package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// RasterAbsent is the entry of a page in frames of RasterParams whose units are left out.
const RasterAbsent = 1<<32 - 1

// RasterParams is the signature of raster: it reduces a variable of units, agents or groups, with
// ids from 0 on, to cells. Cell i has the units from (begin+i)*per up to the next cell or n.
var RasterParams = []device.Param{
	{Name: "pages", Kind: device.KindBuffer}, // frames of page_bytes each
	{Name: "page_bytes", Kind: device.KindUint64},
	// uint32 by page: its frame, or RasterAbsent; there are ceil(n/units) of them
	{Name: "frames", Kind: device.KindBuffer},
	{Name: "offset", Kind: device.KindUint32},   // of the variable in a page, a multiple of its element
	{Name: "units", Kind: device.KindUint32},    // units a page
	{Name: "width", Kind: device.KindUint32},    // elements a unit
	{Name: "together", Kind: device.KindUint32}, // 1: the elements of a unit follow one another; see Layout
	{Name: "elem", Kind: device.KindUint32},     // Elem
	{Name: "first", Kind: device.KindUint32},    // the first element of a unit that counts
	{Name: "count", Kind: device.KindUint32},    // elements whose mean is the value of a unit, 1 or more
	// 1: the one element is a candidate plus one, 0 is no vote, and the value is the candidate
	{Name: "votes", Kind: device.KindUint32},
	{Name: "n", Kind: device.KindUint32},       // units
	{Name: "per", Kind: device.KindUint32},     // units a cell, 1 or more
	{Name: "begin", Kind: device.KindUint32},   // cells before the first one
	{Name: "cells", Kind: device.KindUint32},   // ceil(n/per) - begin at most
	{Name: "values", Kind: device.KindBuffer},  // out float32[3][cells]: the mean, the least, the greatest
	{Name: "counted", Kind: device.KindBuffer}, // out uint32[cells]: units that count
}

// RasterBlock is the number of threads of a block that measures best: each of its warps makes a cell.
const RasterBlock = 256

func init() {
	register(Source{
		Name: "raster", File: "raster.cu", Text: func() string { return code("raster.cu") },
		Params: RasterParams, MaxBlock: RasterBlock,
		WholeWarps: true,
	})
}
