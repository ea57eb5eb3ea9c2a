//go:build !cuda

package cuda

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

func openCUDA(_ context.Context, index int, _ Options, _, _ string) (device.Device, error) {
	return nil, fmt.Errorf("open cuda:%d: this binary was built without CUDA: use the one built with -tags cuda, or "+
		"the device \"host\": %w", index, device.ErrNotSupported)
}

// Count returns the number of GPUs that this process sees. The error is the reason for none.
func Count() (int, error) {
	return 0, fmt.Errorf("this binary was built without CUDA: use the one built with -tags cuda: %w",
		device.ErrNotSupported)
}
