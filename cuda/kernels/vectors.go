package kernels

import (
	_ "embed"

	"github.com/exoswarm/exoswarm/cuda/device"
)

//go:embed fill_u32.cu
var fillU32Code string

//go:embed vector_add_f32.cu
var vectorAddF32Code string

// The kernels of a first example: one that fills memory, and one that adds two arrays.
func init() {
	register(Source{Name: "fill_u32", File: "fill_u32.cu", Code: fillU32Code, Params: []device.Param{
		{Name: "out", Kind: device.KindBuffer}, // uint32[n]
		{Name: "n", Kind: device.KindUint64},
		{Name: "value", Kind: device.KindUint32},
	}})
	register(Source{Name: "vector_add_f32", File: "vector_add_f32.cu", Code: vectorAddF32Code, Params: []device.Param{
		{Name: "a", Kind: device.KindBuffer}, // float32[n]
		{Name: "b", Kind: device.KindBuffer}, // float32[n]
		{Name: "c", Kind: device.KindBuffer}, // out float32[n]
		{Name: "n", Kind: device.KindUint64},
	}})
}
