package field

import (
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Link is the speed of copies between the devices of a shard. It decides whether a tick is worth
// sharing, and changes no state.
type Link struct {
	// Bytes is the bytes that a device receives in a second.
	Bytes float64
	// Barrier is the time of a barrier with an exchange of few bytes.
	Barrier time.Duration
	// Start is the time that a shared tick takes in addition to its work and its copies.
	Start time.Duration
}

// Links between GPUs whose copies go from memory to memory, between other GPUs, and between host
// devices. Two H200 copy 390 GB/s over NVLink (docs/performance.md). A direct copy over PCIe is
// slower, and the driver does not say which one it is. Numbers are rounded against sharing.
var (
	Direct   = Link{50e9, 30 * time.Microsecond, 300 * time.Microsecond}
	ByHost   = Link{12e9, 200 * time.Microsecond, time.Millisecond}
	OnTheCPU = Link{4e9, 50 * time.Microsecond, 200 * time.Microsecond}
)

// Link returns the slowest link from the first device to another one.
func (d *Devices) Link() Link {
	first := d.All[0].Device.Properties()
	if first.ComputeMajor == 0 {
		return OnTheCPU
	}
	for _, other := range d.All[1:] {
		name := other.Device.Properties().Name
		if !slices.ContainsFunc(first.Peers, func(p device.Peer) bool { return p.Name == name && p.Direct }) {
			return ByHost
		}
	}
	return Direct
}

// Fixed returns the seconds that a shared tick takes in addition to its steps. It moves bytes
// bytes.
func (l Link) Fixed(bytes float64) float64 { return bytes/l.Bytes + l.Start.Seconds() }
