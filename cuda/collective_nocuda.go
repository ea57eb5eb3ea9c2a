//go:build !cuda

package cuda

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

func openNCCL(context.Context, []device.Device) (device.Collective, error) {
	return nil, fmt.Errorf("this binary was built without CUDA: %w", device.ErrNotSupported)
}
