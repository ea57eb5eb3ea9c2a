//go:build cuda

package driver

// #include "supplement.h"
import "C"

import (
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// defaultWatchdog is far over what a launch of this project takes, and short enough for a
// supervisor to act on.
const defaultWatchdog = time.Minute

// late is ErrTimeout once a wait that began at start has taken longer than the watchdog allows.
func (d *Device) late(op string, start time.Time) error {
	if d.watchdog <= 0 || time.Since(start) < d.watchdog {
		return nil
	}
	return fmt.Errorf("%s on %s: not done after %v: %w", op, d.props.Name, d.watchdog, device.ErrTimeout)
}

// late is the device's, and makes the stream one that Health names until its work is done.
func (s *stream) late(op string, start time.Time) error {
	err := s.dev.late(op, start)
	if err == nil {
		return nil
	}
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.stuck[s]; !known {
		d.stuck[s] = start
		d.log.Error("work does not end", "device", d.props.Name, "err", err)
	}
	return err
}

// stuckStreams are the streams whose work is overdue and still not done, each with the time since
// when. d.life is held.
func (d *Device) stuckStreams() map[*stream]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	still := map[*stream]time.Time{}
	for s, since := range d.stuck {
		if C.exo_wait(d.raw, s.raw, 0, 0) == C.CUDA_ERROR_NOT_READY {
			still[s] = since
		} else {
			delete(d.stuck, s)
		}
	}
	return still
}

// settle waits for the work of all streams, as long as the watchdog allows. Without it, the
// driver's own wait would never end behind a kernel that does not. d.life is held for writing.
func (d *Device) settle() error {
	start := time.Now()
	var raw []C.CUstream
	for h := range d.handles {
		if s, ok := h.(*stream); ok {
			raw = append(raw, s.raw)
		}
	}
	for s := range d.stuck {
		raw = append(raw, s.raw)
	}
	for _, s := range raw {
		for C.exo_wait(d.raw, s, C.int64_t(spin), C.int64_t(glance)) == C.CUDA_ERROR_NOT_READY {
			if err := d.late("close: wait for work", start); err != nil {
				return fmt.Errorf("%w: %w", err, device.ErrRestart)
			}
		}
	}
	return nil
}
