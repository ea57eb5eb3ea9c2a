package host

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	_ "github.com/exoswarm/exoswarm/cuda/host/celltwin"     // twins of kernels of cells
	_ "github.com/exoswarm/exoswarm/cuda/host/languagetwin" // twins of kernels of language models
	_ "github.com/exoswarm/exoswarm/cuda/host/traintwin"    // twins of kernels that train
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	_ "github.com/exoswarm/exoswarm/cuda/host/twins" // twins of the other kernels
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// kernel is a twin as a device.Kernel of one device. It is constant, and launches of other devices
// refuse it.
type kernel struct {
	dev  *Device
	name string
	sig  []device.Param
	twin *twins.Twin
	src  kernels.Source // for the limits of its shape
}

// Name and Signature are as in package kernels.
func (k *kernel) Name() string              { return k.name }
func (k *kernel) Signature() []device.Param { return k.sig }

// Cover returns the shape of the table for n elements, within the limits of the kernel. On the host
// any shape is as fast.
func (k *kernel) Cover(n int64) device.Geometry {
	block := device.TableBlock(n)
	if k.src.MaxBlock > 0 {
		block = min(block, k.src.MaxBlock)
	}
	g := device.Cover(n, block)
	if k.src.Grid > 0 {
		g.Grid = k.src.Grid
	}
	return g
}
