package gpuprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// deviceNames returns the names in the value of --device, each once. It leaves all and auto, which
// are valid alone, as they are. Whether a device of the name exists is found out by openDevices.
func deviceNames(list string) ([]string, error) {
	names := strings.Split(list, ",")
	for i, name := range names {
		name = strings.TrimSpace(name)
		if name == "cuda" {
			name = "cuda:0"
		}
		names[i] = name
		switch {
		case name == "":
			return nil, command.Usage("--device %q: a name is missing: use for example cuda:0,cuda:1", list)
		case (name == "all" || name == "auto") && len(names) > 1:
			return nil, command.Usage("--device %q: %s stands alone", list, name)
		case slices.Contains(names[:i], name):
			return nil, command.Usage("--device %q: %s stands there twice: a device serves one set of shards", list,
				name)
		}
	}
	return names, nil
}

// openDevices opens the devices of --device, in the order of the list. requireGPU refuses the host
// device, also when auto has chosen it. On an error no device stays open. The error for a device
// that does not exist names the devices that do. The caller closes the devices with closeDevices.
func openDevices(ctx context.Context, list string, requireGPU bool,
	opts cuda.Options,
) (all []device.Device, err error) {
	names, err := deviceNames(list)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeDevices(all))
			all = nil
		}
	}()
	// The first GPU knows its peers, which are the others of the machine.
	everyGPU := names[0] == "all"
	if everyGPU {
		names[0] = "cuda:0"
	}
	for i := 0; i < len(names); i++ {
		d, err := cuda.Open(ctx, names[i], opts)
		if errors.Is(err, device.ErrInvalidArgument) || errors.Is(err, device.ErrNotSupported) {
			return all, command.Usage("--device %s: %v; there is %s", list, err, present())
		}
		if err != nil {
			return all, err
		}
		all = append(all, d)
		p := d.Properties()
		if requireGPU && p.Name == "host" {
			if p.Requested == "auto" {
				return all, command.Usage("--require-gpu: no GPU can be used: %s", p.Reason)
			}
			return all, command.Usage("--require-gpu: --device %s names the host device, which is no GPU", list)
		}
		for _, other := range all[:i] {
			if o := other.Properties(); o.Name == p.Name || o.UUID == p.UUID && p.UUID != "" {
				return all, command.Usage("--device %q: %s and %s are one device: name it once", list,
					names[slices.Index(all, other)], names[i])
			}
		}
		if everyGPU && i == 0 {
			for _, peer := range p.Peers {
				names = append(names, peer.Name)
			}
		}
	}
	return all, nil
}

// present returns the names of the devices of this machine for --device, separated by commas.
func present() string {
	n, err := cuda.Count()
	if err != nil {
		n = 0
	}
	names := make([]string, 0, n+1)
	for i := range n {
		names = append(names, fmt.Sprintf("cuda:%d", i))
	}
	return strings.Join(append(names, "host"), ", ")
}

// fallback returns the reason why auto has chosen the host device; empty when it has not.
func fallback(all []device.Device) string {
	if p := all[0].Properties(); p.Requested == "auto" && p.Name == "host" {
		return p.Reason
	}
	return ""
}

// closeDevices closes all devices, and returns every error. No agent uses them any more.
func closeDevices(all []device.Device) error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// models returns the models of the devices for the registry, with the names of the devices of each
// model when there are several devices.
func models(all []device.Device) string {
	if len(all) == 1 {
		return all[0].Properties().Model
	}
	var order []string // models in the order of their first device
	names := map[string][]string{}
	for _, d := range all {
		p := d.Properties()
		if names[p.Model] == nil {
			order = append(order, p.Model)
		}
		names[p.Model] = append(names[p.Model], p.Name)
	}
	for i, model := range order {
		order[i] = fmt.Sprintf("%s (%s)", model, strings.Join(names[model], ", "))
	}
	return strings.Join(order, "; ")
}

// levels returns the state for the registry when a device is not at its normal level: the level of
// the only device, or the levels and names of the devices that are not normal. names and at have
// the same length and order. The result is empty if all levels are normal.
func levels(names []string, at []pool.Level) string {
	if len(at) == 1 {
		return at[0].String()
	}
	var worse []string
	for i, level := range at {
		if level != pool.Normal {
			worse = append(worse, fmt.Sprintf("%v (%s)", level, names[i]))
		}
	}
	return strings.Join(worse, ", ")
}
