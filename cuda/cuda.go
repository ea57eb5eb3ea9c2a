// Package cuda opens devices: the host device, which every binary has, and NVIDIA GPUs in a binary
// built with the tag cuda. What a device does is the contract in cuda/device; how the two are made,
// and why, is in DESIGN.md.
package cuda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// Options configure Open. The zero value is valid.
type Options struct {
	// MemoryLimit is the maximum of allocated device memory in bytes; 0: what the device has.
	MemoryLimit int64
	// HostMemoryLimit is the same of the host device, where MemoryLimit is 0.
	HostMemoryLimit int64
	// CacheDir is the directory for compiled kernels, made when it is missing; processes may share
	// it. Empty: no cache, so each start compiles, which takes 0.1-0.2 s a kernel. The host device
	// compiles nothing.
	CacheDir string
	// Watchdog is how long a wait for work on a GPU may last before it ends with device.ErrTimeout
	// and Health says so; 0: one minute, less: for ever.
	Watchdog time.Duration
	// Poison fills the memory that the host device allocates with host.PoisonByte, for tests: the
	// content of new memory is undefined, and zeros would hide a read of it.
	Poison bool
	// Logger is told which device was chosen and why, and what degrades; nil: slog.Default.
	Logger *slog.Logger
}

// Open opens a device by its name:
//
//	host     the host device
//	cuda:N   GPU N, counted as the driver does
//	cuda     the same as cuda:0
//	auto     cuda:0 where this binary and this machine have one, else host
//
// Only auto chooses, and its choice is logged and stands in the Properties: a name that cannot be
// had is an error. ctx bounds the start of a GPU, which may compile kernels. The caller closes the
// device.
func Open(ctx context.Context, name string, opts Options) (device.Device, error) {
	if opts.MemoryLimit < 0 {
		return nil, fmt.Errorf("open %s: memory limit %d: %w", name, opts.MemoryLimit, device.ErrInvalidArgument)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	switch name {
	case "host":
		return openHost(opts, name, "asked for")
	case "auto":
		return openAuto(ctx, opts)
	}
	index, err := parseIndex(name)
	if err != nil {
		return nil, err
	}
	return openCUDA(ctx, index, opts, name, "asked for")
}

// openAuto takes the first GPU. Without one, or when it cannot be opened, it takes the host and
// says why.
func openAuto(ctx context.Context, opts Options) (device.Device, error) {
	d, err := openCUDA(ctx, 0, opts, "auto", "a GPU is there")
	if err == nil {
		opts.Logger.Info("device chosen", "requested", "auto", "device", "cuda:0", "model", d.Properties().Model)
		return d, nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	reason := err.Error()
	opts.Logger.Warn("no GPU can be used: auto chooses the host device", "requested", "auto", "device", "host",
		"reason", reason)
	return openHost(opts, "auto", reason)
}

func openHost(opts Options, requested, reason string) (device.Device, error) {
	limit := opts.MemoryLimit
	if limit == 0 {
		limit = opts.HostMemoryLimit
	}
	d, err := host.Open(host.Options{
		MemoryLimit: limit, Logger: opts.Logger, Requested: requested, Reason: reason,
		Poison: opts.Poison,
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// parseIndex reads "cuda" and "cuda:N".
func parseIndex(name string) (int, error) {
	if name == "cuda" {
		return 0, nil
	}
	if digits, ok := strings.CutPrefix(name, "cuda:"); ok {
		if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("open %q: a device is host, cuda, cuda:N or auto: %w", name, device.ErrInvalidArgument)
}
