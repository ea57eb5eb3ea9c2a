package team

import (
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Link is how bytes go between the devices of a team. It decides whether a tick is worth sharing, and
// changes no state.
type Link struct {
	// Bytes go to a device in a second.
	Bytes float64
	// Meet is the time in which devices wait for each other and exchange few bytes.
	Meet time.Duration
	// Start is the time that a shared tick takes beside its work and its copies.
	Start time.Duration
}

// Links between GPUs whose copies go from memory to memory, between other GPUs, and between host devices. Two
// H200 copy 390 GB/s over NVLink (docs/performance.md). A direct copy over PCIe is slower, and the driver
// does not say which one it is. Numbers are rounded against sharing.
var (
	Direct   = Link{50e9, 30 * time.Microsecond, 300 * time.Microsecond}
	ByHost   = Link{12e9, 200 * time.Microsecond, time.Millisecond}
	OnTheCPU = Link{4e9, 50 * time.Microsecond, 200 * time.Microsecond}
)

// LinkOf returns the slowest link from the first of some seats to the others.
func LinkOf(seats []*Seat) Link {
	first := seats[0].Device.Properties()
	if first.ComputeMajor == 0 {
		return OnTheCPU
	}
	for _, s := range seats[1:] {
		name := s.Device.Properties().Name
		if !slices.ContainsFunc(first.Peers, func(p device.Peer) bool { return p.Name == name && p.Direct }) {
			return ByHost
		}
	}
	return Direct
}

// Begin returns the seconds that a shared tick takes beside its steps, which moves so many bytes.
func (l Link) Begin(bytes float64) float64 { return bytes/l.Bytes + l.Start.Seconds() }
