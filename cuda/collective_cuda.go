//go:build cuda

package cuda

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/internal/driver"
)

func openNCCL(ctx context.Context, devices []device.Device) (device.Collective, error) {
	c, err := driver.OpenNCCL(ctx, devices, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}
