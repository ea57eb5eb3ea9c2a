package device

import "sync/atomic"

// Traffic counts the launches and copies of an implementation of Device for its Health. Its zero
// value is ready, and several goroutines may use it.
type Traffic struct{ launches, toDevice, fromDevice atomic.Int64 }

// Launched counts a kernel that was put into a stream.
func (t *Traffic) Launched() { t.launches.Add(1) }

// Copied counts n bytes of a call that was accepted: write and upload go to the device, read and
// download come from it, and other calls stay on it.
func (t *Traffic) Copied(op string, n int64) {
	switch op {
	case "write", "upload":
		t.toDevice.Add(n)
	case "read", "download":
		t.fromDevice.Add(n)
	}
}

// Note writes the counts to h.
func (t *Traffic) Note(h *Health) {
	h.Launches, h.ToDevice, h.FromDevice = t.launches.Load(), t.toDevice.Load(), t.fromDevice.Load()
}
