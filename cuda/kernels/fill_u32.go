package kernels

import (
	_ "embed"

	"github.com/exoswarm/exoswarm/cuda/device"
)

//go:embed fill_u32.cu
var fillU32Code string

func init() {
	register(Source{Name: "fill_u32", File: "fill_u32.cu", Code: fillU32Code, Params: []device.Param{
		{Name: "out", Kind: device.KindBuffer}, // uint32[n]
		{Name: "n", Kind: device.KindUint64},
		{Name: "value", Kind: device.KindUint32},
	}})
}
