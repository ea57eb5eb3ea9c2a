package kernels

import (
	_ "embed"

	"github.com/exoswarm/exoswarm/cuda/device"
)

//go:embed vector_add_f32.cu
var vectorAddF32Code string

func init() {
	register(Source{Name: "vector_add_f32", File: "vector_add_f32.cu", Code: vectorAddF32Code, Params: []device.Param{
		{Name: "a", Kind: device.KindBuffer}, // float32[n]
		{Name: "b", Kind: device.KindBuffer}, // float32[n]
		{Name: "c", Kind: device.KindBuffer}, // out float32[n]
		{Name: "n", Kind: device.KindUint64},
	}})
}
