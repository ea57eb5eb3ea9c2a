package host

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Health checks the guards of every open buffer and the claims. It does not wait for streams. The
// host has no sensors to report.
func (d *Device) Health(ctx context.Context, claims ...device.Claim) device.Health {
	var h device.Health
	d.traffic.Note(&h)
	d.mu.Lock()
	closed, used := d.closed, d.used
	open := make([]*buffer, 0, len(d.buffers))
	for b := range d.buffers {
		open = append(open, b)
	}
	d.mu.Unlock()
	h.InUse = used
	// A device that is closed or broken answers no claims.
	if closed {
		h.Note(device.Failed, "the device is closed")
		return h
	}
	if err := d.health("health"); err != nil {
		h.Note(device.Failed, "%v", err)
		return h
	}
	for _, b := range open { // buffers that are closed meanwhile are skipped
		b.mu.RLock()
		whole := b.whole
		if whole != nil && (!intact(whole[:guard]) || !intact(whole[guard+b.size:])) {
			h.Note(device.Failed, "bytes outside a buffer of %d bytes for %s were overwritten", b.size, b.purpose)
		}
		b.mu.RUnlock()
	}
	h.CheckClaims(ctx, d, claims)
	return h
}
