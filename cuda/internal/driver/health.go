//go:build cuda

package driver

/*
#include <stdlib.h>
#include "nvml.h"
*/
import "C"

import (
	"context"
	"os"
	"time"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// throttles are the reasons of NVML for a chip that is slower than it could be, and how the chip is
// then. Idle clocks, clocks set by the operator and the display's are none.
var throttles = []struct {
	bit   int64
	state device.State
	name  string
}{
	{0x004, device.OK, "power limit"}, // what a busy chip does all day
	{0x008, device.Degraded, "hardware slowdown"},
	{0x020, device.Degraded, "thermal limit"},
	{0x040, device.Degraded, "hardware thermal slowdown"},
	{0x080, device.Degraded, "external power brake"},
}

// contextBytes is more than the driver takes for the contexts, the code and the libraries of a
// process in addition to its buffers.
const contextBytes = 4 << 30

// Health queries the device, its memory and NVML.
func (d *Device) Health(ctx context.Context, claims ...device.Claim) device.Health {
	var h device.Health
	h.Sensors = d.sensors()
	d.traffic.Note(&h)
	if err := d.acquire("health"); err != nil {
		h.Note(device.Failed, "%v", err)
	} else {
		reserved, cached := d.pool.sizes()
		h.InUse, h.Cached = reserved-cached, cached
		for _, since := range d.stuckStreams() {
			h.Note(device.Degraded, "the work of a stream has not ended for %v",
				time.Since(since).Round(time.Millisecond))
		}
		d.life.RUnlock()
		if err := d.ping(ctx); err != nil {
			h.Note(device.Failed, "%v", err)
		}
		h.CheckClaims(ctx, d, claims)
	}
	if s := h.Sensors; s != nil {
		for _, xid := range s.Xids {
			h.Note(device.Degraded, "the driver has reported Xid %d", xid)
		}
		if s.ECCUncorrected > 0 {
			h.Note(device.Degraded, "%d uncorrectable memory errors since the driver was loaded", s.ECCUncorrected)
		}
		for _, t := range throttles {
			for _, name := range s.Throttle {
				if name == t.name && t.state != device.OK {
					h.Note(t.state, "the clocks are held down: %s", name)
				}
			}
		}
		if own := ownBytes(d.index); s.ProcessBytes > own+contextBytes {
			h.Note(device.Degraded, "this process has %d MiB of device memory, and %d MiB of it are accounted for",
				s.ProcessBytes>>20, own>>20)
		}
	}
	return h
}

// ping proves that the device answers: a word goes there and comes back, on a stream that no kernel
// blocks.
func (d *Device) ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return nil
	}
	b, err := d.Alloc(8, "health")
	if err != nil {
		return err
	}
	defer b.Close()
	v := device.View[uint64]{Buffer: b}
	sent, got := []uint64{uint64(time.Now().UnixNano())}, []uint64{0}
	if err := v.Set(0, sent); err != nil {
		return err
	}
	return v.Get(0, got)
}

// ownBytes is what all openings of a GPU have from its driver.
func ownBytes(index int) (n int64) {
	openings.Lock()
	defer openings.Unlock()
	for d := range openings.by[index] {
		reserved, _ := d.pool.sizes()
		n += reserved
	}
	return n
}

// management opens NVML at the first call; nil without it. d.nvmlMu is held.
func (d *Device) management() *C.exo_nvml {
	if d.nvml != nil || d.nvmlTried {
		return d.nvml
	}
	d.nvmlTried = true
	name := os.Getenv("EXOSWARM_LIBNVML")
	if name == "" {
		name = "libnvidia-ml.so.1"
	}
	lib, uuid := C.CString(name), C.CString(d.props.UUID)
	defer C.free(unsafe.Pointer(lib))
	defer C.free(unsafe.Pointer(uuid))
	var result C.int
	if d.nvml = C.exo_nvml_open(lib, uuid, &result); d.nvml == nil {
		d.log.Warn("no NVML: health has no sensors", "device", d.props.Name, "library", name, "nvml_result",
			int(result))
	}
	return d.nvml
}

// askLink queries NVML for the link to the host.
func (d *Device) askLink() {
	d.nvmlMu.Lock()
	defer d.nvmlMu.Unlock()
	if lib := d.management(); lib != nil {
		var generation, lanes C.int
		C.exo_nvml_link(lib, &generation, &lanes)
		d.props.PCIeGeneration, d.props.PCIeLanes = int(generation), int(lanes)
	}
}

// sensors queries NVML; nil without it.
func (d *Device) sensors() *device.Sensors {
	d.nvmlMu.Lock()
	defer d.nvmlMu.Unlock()
	if d.management() == nil {
		return nil
	}
	var raw C.exo_sensors
	C.exo_nvml_read(d.nvml, C.int(os.Getpid()), &raw)
	s := &device.Sensors{
		Temperature: int(raw.temperature), PowerMilliwatts: int(raw.milliwatts), Utilisation: int(raw.utilisation),
		MemoryUtilisation: int(raw.memory_utilisation), ProcessBytes: int64(raw.process_bytes),
		ECCCorrected: int64(raw.corrected), ECCUncorrected: int64(raw.uncorrected),
		EnergyMillijoules: int64(raw.millijoules), ClockMHz: int(raw.clock), MemoryClockMHz: int(raw.memory_clock),
	}
	if raw.throttle > 0 {
		for _, t := range throttles {
			if int64(raw.throttle)&t.bit != 0 {
				s.Throttle = append(s.Throttle, t.name)
			}
		}
	}
	now := time.Now()
	for _, xid := range raw.xid[:raw.xids] {
		d.xids.add(int(xid), now)
	}
	s.Xids, s.XidCounts = d.xids.recent(now)
	return s
}

// closeSensors lets go of NVML.
func (d *Device) closeSensors() {
	d.nvmlMu.Lock()
	defer d.nvmlMu.Unlock()
	if d.nvml != nil {
		C.exo_nvml_close(d.nvml)
	}
	d.nvml, d.nvmlTried = nil, true
}
