package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// GemmBlock is the block of the tiled product, and its largest; GemmTile is the edge of the tile
// that such a block makes.
const (
	GemmBlock = 256
	GemmTile  = 128
)

// gemmParams are the parameters of the products: c = alpha*a*b + beta*c.
var gemmParams = []device.Param{
	{Name: "a", Kind: device.KindBuffer},
	{Name: "b", Kind: device.KindBuffer},
	{Name: "c", Kind: device.KindBuffer}, // out, and in where beta is not 0
	{Name: "m", Kind: device.KindUint32}, // rows of a and c
	{Name: "n", Kind: device.KindUint32}, // columns of b and c
	{Name: "k", Kind: device.KindUint32}, // columns of a, rows of b
	{Name: "a_row", Kind: device.KindUint64},
	{Name: "a_col", Kind: device.KindUint64}, // elements from a row, and from a column, to the next
	{Name: "b_row", Kind: device.KindUint64},
	{Name: "b_col", Kind: device.KindUint64},
	{Name: "c_row", Kind: device.KindUint64},
	{Name: "alpha", Kind: device.KindFloat32},
	{Name: "beta", Kind: device.KindFloat32},
}

func init() {
	for _, name := range []string{"gemm_f32", "gemm_bf16", "gemm_bf16_f32"} {
		register(Source{
			Name: name, File: name + ".cu", Text: func() string { return code(name + ".cu") },
			Params: gemmParams, FMA: true,
			MaxBlock: GemmBlock,
		})
	}
}

// GemmName is the kernel for factors and a result of those elements.
func GemmName(factors, result device.Elem) string {
	switch {
	case factors == device.F32:
		return "gemm_f32"
	case result == device.F32:
		return "gemm_bf16_f32"
	}
	return "gemm_bf16"
}

// GemmArgs are the arguments of a product, whose matrices device.CheckGemm has passed.
func GemmArgs(alpha float32, a, b device.Matrix, beta float32, c device.Matrix) []device.Arg {
	m, k := a.Size()
	_, n := b.Size()
	steps := func(x device.Matrix) (row, col device.Arg) {
		row, col = device.Uint64(uint64(x.Step())), device.Uint64(1)
		if x.Transposed {
			return col, row
		}
		return row, col
	}
	aRow, aCol := steps(a)
	bRow, bCol := steps(b)
	cRow, _ := steps(c)
	return []device.Arg{
		device.Range(a.Buffer, a.Off, a.Bytes()), device.Range(b.Buffer, b.Off, b.Bytes()),
		device.Range(c.Buffer, c.Off, c.Bytes()),
		device.Uint32(uint32(m)), device.Uint32(uint32(n)), device.Uint32(uint32(k)),
		aRow, aCol, bRow, bCol, cRow, device.Float32(alpha), device.Float32(beta),
	}
}

// GemmGeometry is a block for each tile of a result of m x n.
func GemmGeometry(m, n int) device.Geometry {
	tiles := ((m + GemmTile - 1) / GemmTile) * ((n + GemmTile - 1) / GemmTile)
	return device.Geometry{Grid: max(tiles, 1), Block: GemmBlock}
}
