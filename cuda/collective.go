package cuda

import (
	"context"
	"errors"
	"log/slog"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// OpenCollective makes a collective of these devices, which are its ranks in this order: by NCCL
// where all of them are different GPUs and the library is on the machine, else, and for calls of up
// to 1 MiB of a rank, by way of host memory. Its Route names the way and the reason, and so does a
// line of the log; nil: slog.Default. ctx bounds the start of NCCL, which takes seconds. The caller
// closes it before the devices.
func OpenCollective(ctx context.Context, devices []device.Device, log *slog.Logger) (device.Collective, error) {
	if err := device.CheckRanks(devices); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.Default()
	}
	n, err := openNCCL(ctx, devices)
	if err == nil {
		c, err := newMixed(n)
		if err != nil {
			return nil, err
		}
		log.Info("collective opened", "route", c.Route().Name, "reason", c.Route().Reason, "devices", len(devices))
		return c, nil
	}
	if !errors.Is(err, device.ErrNotSupported) {
		return nil, err
	}
	r, rerr := host.NewRelay(devices, err.Error())
	if rerr != nil {
		return nil, rerr
	}
	log.Info("collective opened", "route", "host", "reason", err, "devices", len(devices))
	return r, nil
}
