package expr

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// part launches the kernels of a part, between two events if it is measured.
func (r *run) part(t *plan.Part) error {
	if r.measure {
		return r.timed(t)
	}
	return r.enqueue(t)
}

// enqueue puts the launches of a part into the stream. Only a filter waits for them.
func (r *run) enqueue(t *plan.Part) error {
	if t.Kind == plan.KindGemm {
		return r.gemm(t)
	}
	args, err := r.args(t, t.Reads, t.Roots)
	if err != nil {
		return err
	}
	n := r.lengths[t.Lead] * t.Width
	switch t.Kind {
	case plan.KindMap:
		return r.mapPart(t, args, n)
	case plan.KindCompact:
		return r.compact(t, args, n)
	case plan.KindScan:
		if n == 0 {
			return nil
		}
		return r.tiles(t, args, n)
	case plan.KindSums, plan.KindColumns:
		return r.sums(t, args, r.lengths[t.Lead])
	case plan.KindScatter:
		table := r.lengths[t.Roots[0].Lead]
		if table == 0 {
			return nil
		}
		return r.start(t, blocks(table, codegen.BlockThreads), append(args, device.Uint64(uint64(table)),
			device.Uint64(uint64(n))))
	}
	rows, each := r.lengths[t.Lead], t.Shape.Tile
	if t.Kind == plan.KindRows {
		each = codegen.RowsPerBlock(t.Width)
	}
	if rows == 0 {
		return nil
	}
	return r.start(t, blocks(rows, each), append(args, device.Uint64(uint64(rows))))
}

// mapPart launches element-wise operations and folds of n elements. A launch with folds has at
// least one block, which stores the folds of no element; its counter of blocks is 0 before.
func (r *run) mapPart(t *plan.Part, args []device.Arg, n int64) error {
	tiles, folded := int64(codegen.MapTiles*ir.TileSize), len(t.Folds())
	if folded > 0 {
		tiles = ir.SuperSize
	}
	grid := blocks(n, tiles)
	if grid == 0 && folded == 0 {
		return nil
	}
	grid = max(grid, 1)
	scratch, err := r.temp(16 + int64(folded)*4*grid)
	if err == nil && folded > 0 {
		err = r.s.Fill(scratch, 0, 16, 0)
	}
	if err != nil {
		return err
	}
	return r.start(t, grid, append(args, device.Ptr(scratch), device.Uint64(uint64(n))))
}

// sums launches sums of rows, which add up runs of rows in several levels. The sums of no row are
// 0.
func (r *run) sums(t *plan.Part, args []device.Arg, rows int64) error {
	if rows == 0 {
		for _, n := range t.Roots {
			if err := r.s.Fill(r.at[n].Buffer, r.at[n].Off, r.bytes(n), 0); err != nil {
				return err
			}
		}
		return nil
	}
	runs := blocks(rows, ir.RunRows)
	sums, counters := runs, int64(0)
	for n := runs; n > 1; {
		n = blocks(n, ir.RunRows)
		sums, counters = sums+n, counters+n
	}
	partial, err := r.temp(4 * sums * t.Shape.Sums)
	if err != nil {
		return err
	}
	count, err := r.temp(4 * counters)
	if err == nil && counters > 0 {
		err = r.s.Fill(count, 0, 4*counters, 0)
	}
	if err != nil {
		return err
	}
	// Blocks wait for the device once for each chunk; with many chunks they end at the same time.
	all, chunk := sumBlocks*int64(max(r.c.dev.Properties().Multiprocessors, 1)), int64(1)
	for chunk < ir.RunRows && runs >= 4*chunk*all {
		chunk *= 2
	}
	return r.start(t, min(blocks(runs, chunk), all), append(args, device.Ptr(partial), device.Ptr(count),
		device.Uint32(uint32(chunk)), device.Uint64(uint64(rows))))
}

// sumBlocks is the number of blocks of a kernel of sums for each multiprocessor.
const sumBlocks = 16

// compact launches a filter and waits for the length of its result.
func (r *run) compact(t *plan.Part, args []device.Arg, n int64) error {
	symbol := t.Roots[0].Lead
	r.lengths[symbol] = 0
	if n == 0 {
		return nil
	}
	count, err := r.temp(16)
	if err != nil {
		return err
	}
	if err := r.tiles(t, append(args, device.Ptr(count)), n); err != nil {
		return err
	}
	if err := r.s.Sync(r.ctx); err != nil {
		return err
	}
	var kept [1]uint64
	if err := count.Read(0, device.Bytes(kept[:])); err != nil {
		return err
	}
	r.lengths[symbol] = int64(kept[0])
	return nil
}

// tiles launches a filter or a scan of n elements, with as many blocks as the device runs at a
// time.
func (r *run) tiles(t *plan.Part, args []device.Arg, n int64) error {
	tiles := blocks(n, t.Shape.Tile)
	if tiles > 1<<30 {
		return fmt.Errorf("%d elements: %w", n, ErrLimit)
	}
	bytes := 16 + 8*codegen.States(tiles)
	scratch, err := r.temp(bytes)
	if err != nil {
		return err
	}
	if err := r.s.Fill(scratch, 0, bytes, 0); err != nil {
		return err
	}
	grid := min(tiles, 2*int64(max(r.c.dev.Properties().Multiprocessors, 1)))
	return r.start(t, grid, append(args, device.Ptr(scratch), device.Uint64(uint64(n))))
}

// matrix returns a value of rows as a matrix. Its start is a multiple of device.RangeAlign, or it
// is copied.
func (r *run) matrix(n *ir.Node) (device.Matrix, error) {
	m := r.at[n]
	if n.Op == ir.OpInput {
		m = r.in[r.c.p.g.Inputs[n.Imm].Name]
	}
	x := device.Matrix{
		Buffer: m.Buffer, Off: m.Off, Rows: int(r.lengths[n.Lead]), Cols: int(n.Width), Elem: device.F32,
	}
	if n.Type == ir.BF16 {
		x.Elem = device.BF16
	}
	if m.Off%device.RangeAlign == 0 {
		return x, nil
	}
	b, err := r.temp(r.bytes(n))
	if err != nil {
		return x, err
	}
	x.Buffer, x.Off = b, 0
	return x, r.s.Copy(b, 0, m.Buffer, m.Off, r.bytes(n))
}

// gemm multiplies by the library. A result that does not start at a multiple of device.RangeAlign
// is copied from memory that does.
func (r *run) gemm(t *plan.Part) error {
	n := t.Roots[0]
	if r.lengths[n.Lead] == 0 {
		return nil
	}
	if n.Op == ir.OpOuter && r.lengths[n.Args[0].Lead] == 0 {
		return r.s.Fill(r.at[n].Buffer, r.at[n].Off, r.bytes(n), 0)
	}
	a, err := r.matrix(n.Args[0])
	if err != nil {
		return err
	}
	b, err := r.matrix(n.Args[1])
	if err != nil {
		return err
	}
	a.Transposed, b.Transposed = n.Op == ir.OpOuter, n.Op == ir.OpMatMul && n.Imm == ir.Transposed
	to := r.at[n]
	c := device.Matrix{
		Buffer: to.Buffer, Off: to.Off, Rows: int(r.lengths[n.Lead]), Cols: int(n.Width), Elem: device.F32,
	}
	if to.Off%device.RangeAlign == 0 {
		return r.s.Gemm(1, a, b, 0, c)
	}
	if c.Buffer, err = r.temp(r.bytes(n)); err != nil {
		return err
	}
	c.Off = 0
	if err := r.s.Gemm(1, a, b, 0, c); err != nil {
		return err
	}
	return r.s.Copy(to.Buffer, to.Off, c.Buffer, 0, r.bytes(n))
}

// interpret executes the program on the cores of the host, behind the work of the stream, for which
// it waits. The outputs are written when it returns.
func (r *run) interpret(out map[string]Memory) (map[string]Memory, error) {
	if err := r.s.Sync(r.ctx); err != nil {
		return nil, err
	}
	arrays := map[string]Array{"": {Rows: r.in[""].Rows}}
	if _, found := r.in[""]; !found {
		delete(arrays, "")
	}
	for _, i := range r.c.p.g.Inputs {
		m := r.in[i.Name]
		if i.Scalar {
			arrays[i.Name] = Array{Data: device.Bytes([]uint32{m.Bits}), Rows: 1}
			continue
		}
		data := make([]uint32, (r.bytes(i.Node)+3)/4) // aligned for every type
		bytes := device.Bytes(data)[:r.bytes(i.Node)]
		if len(bytes) > 0 {
			if err := m.Buffer.Read(m.Off, bytes); err != nil {
				return nil, fmt.Errorf("expr: input %q: %w", i.Name, err)
			}
		}
		arrays[i.Name] = Array{Data: bytes, Rows: m.Rows}
	}
	computed, err := Interpret(r.ctx, r.c.p, arrays)
	if err != nil {
		return nil, err
	}
	results := map[string]Memory{}
	for _, o := range r.c.p.g.Outputs {
		a := computed[o.Name]
		m, given := out[o.Name]
		if !given {
			if m.Buffer, err = r.c.dev.Alloc(max(int64(len(a.Data)), 64), "expression"); err != nil {
				return nil, fmt.Errorf("expr: output %q: %w", o.Name, err)
			}
		}
		m.Rows = a.Rows
		if err := m.Buffer.Write(m.Off, a.Data); err != nil {
			return nil, fmt.Errorf("expr: output %q: %w", o.Name, err)
		}
		results[o.Name] = m
	}
	return results, nil
}
