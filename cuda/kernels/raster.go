package kernels

// RasterAbsent is the entry of a page in frames of RasterArgs whose units are left out.
const RasterAbsent = 1<<32 - 1

// RasterArgs are the arguments of raster: it reduces a variable of units, agents or groups, with
// ids from 0 on, to cells. Cell i has the units from (begin+i)*per up to the next cell or n.
//
//   - pages: frames of page_bytes each
//   - frames: uint32 by page: its frame, or RasterAbsent; there are ceil(n/units) of them
//   - offset: of the variable in a page, a multiple of its element
//   - units: units a page
//   - width: elements a unit
//   - together: 1: the elements of a unit follow one another; see Layout
//   - elem: Elem
//   - first: the first element of a unit that counts
//   - count: elements whose mean is the value of a unit, 1 or more
//   - votes: 1: the one element is a candidate plus one, 0 is no vote, and the value is the
//     candidate
//   - n: units
//   - per: units a cell, 1 or more
//   - begin: cells before the first one
//   - cells: ceil(n/per) - begin at most
//   - values: out float32[3][cells]: the mean, the least, the greatest
//   - counts: out uint32[cells]: units that count

// RasterBlock is the number of threads of a block that measures best: each of its warps makes a
// cell.
const RasterBlock = 256

func init() {
	register(Source{Name: "raster", File: "raster.cu", MaxBlock: RasterBlock, WholeWarps: true})
}
