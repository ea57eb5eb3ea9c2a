package kernels

import (
	_ "embed"

	"github.com/exoswarm/exoswarm/cuda/device"
)

//go:embed checksum.cu
var checksumCode string

func init() {
	register(Source{Name: "checksum", File: "checksum.cu", Code: checksumCode, Params: []device.Param{
		{Name: "data", Kind: device.KindBuffer}, // n bytes, starting at a multiple of 8
		{Name: "n", Kind: device.KindUint64},
		{Name: "sum", Kind: device.KindBuffer}, // in and out uint64[1]
	}})
}
