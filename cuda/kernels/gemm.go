package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// GemmBlock is the block of the tiled product, and its largest; GemmTile is the edge of the tile
// that such a block makes.
const (
	GemmBlock = 256
	GemmTile  = 128
)

// ProductArgs are the arguments of the products: c = alpha*a*b + beta*c.
//
//   - c: out, and in where beta is not 0
//   - m: rows of a and c
//   - n: columns of b and c
//   - k: columns of a, rows of b
//   - a_col: elements from a row, and from a column, to the next

func init() {
	for _, name := range []string{"gemm_f32", "gemm_bf16", "gemm_bf16_f32"} {
		register(Source{Name: name, File: name + ".cu", FMA: true, MaxBlock: GemmBlock})
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
	steps := func(x device.Matrix) (row, col uint64) {
		row, col = uint64(x.Step()), 1
		if x.Transposed {
			return col, row
		}
		return row, col
	}
	args := ProductArgs{
		A: device.Range(a.Buffer, a.Off, a.Bytes()), B: device.Range(b.Buffer, b.Off, b.Bytes()),
		C: device.Range(c.Buffer, c.Off, c.Bytes()), M: uint32(m), N: uint32(n), K: uint32(k), Alpha: alpha, Beta: beta,
	}
	args.ARow, args.ACol = steps(a)
	args.BRow, args.BCol = steps(b)
	args.CRow, _ = steps(c)
	return args.Args()
}

// GemmGeometry is a block for each tile of a result of m x n.
func GemmGeometry(m, n int) device.Geometry {
	tiles := ((m + GemmTile - 1) / GemmTile) * ((n + GemmTile - 1) / GemmTile)
	return device.Geometry{Grid: max(tiles, 1), Block: GemmBlock}
}
