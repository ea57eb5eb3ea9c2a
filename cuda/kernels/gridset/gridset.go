// Package gridset has the kernels of swarms whose agents are the cells of a grid: a generation of
// Life, and the writes and reads of single cells. Importing it adds them to the set of package
// kernels. Package gpuagents/grid launches them, and cuda/host/twins has their twins.
//
// A grid is pages of bytes: cell x of row y has the id y*width+x, and stands in page id/per at byte
// id%per. A byte is 1 for a cell that is alive and 0 for a dead one; no kernel writes another one.
package gridset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
const (
	// LifeRows makes the next generation of a grid that Chunked accepts, 16 cells at a time. It reads
	// the pages from, with the frame of each page in from_frames, and writes the pages to. The two
	// share no page. periodic is 1 where the last row and column are neighbours of the first ones;
	// else all cells outside are dead. If count is 1, the cells that are alive in the next generation
	// are added to alive.
	LifeRows = "grid_life_rows"
	// LifeCells makes the next generation of any grid, cell by cell.
	LifeCells = "grid_life_cells"
	// Set writes cells. ids are below the number of cells, and none is there twice.
	Set = "grid_set"
	// Get reads cells.
	Get = "grid_get"
)

// Numbers that kernels and their callers agree on.
const (
	Block = 128 // maximum of threads of a block
	Chunk = 16  // cells that a thread of LifeRows makes in each row
	Band  = 8   // maximum of consecutive rows of a page that it makes
)

// Chunked reports whether LifeRows makes the generations of a grid: rows are whole chunks, and none
// spans two pages. per is the cells of a page.
func Chunked(width, per int) bool { return width%Chunk == 0 && per%width == 0 }

// LifeThreads returns the threads with work in a launch of LifeRows or LifeCells. per is the cells
// of a page.
func LifeThreads(kernel string, width, height, per int) int64 {
	if kernel == LifeRows {
		each := per / width // rows of a page, which are made in bands
		return int64(width/Chunk) * int64((each+Band-1)/Band) * int64((height+each-1)/each)
	}
	return int64(width) * int64(height)
}

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen gridset Life=life_rows.cu,life_cells.cu Cells=set.cu,get.cu

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{
		Folder: "gridset", Files: files, Params: paramsOf,
		Head: fmt.Sprintf("#define CHUNK %du\n#define BAND %du\n", Chunk, Band),
	}
	for _, name := range []string{LifeRows, LifeCells, Set, Get} {
		set.Register(kernels.Source{
			Name: name, File: strings.TrimPrefix(name, "grid_") + ".cu", MaxBlock: Block, WholeWarps: true,
		}, "grid.cuh")
	}
}
