package launches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// Opener opens a fresh device under test. memoryLimit bounds its device memory in bytes; 0 means no
// limit. The suite closes the device.
type Opener func(t testing.TB, memoryLimit int64) device.Device

// Patience is how long a suite waits for work that takes milliseconds.
const Patience = 2 * time.Minute

// Open opens a device without a memory limit. At the end of the test it closes the device, which
// fails if a buffer or a stream of it is still open.
func Open(t testing.TB, open Opener) device.Device {
	t.Helper()
	d := open(t, 0)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close device: %v", err)
		}
	})
	return d
}

// Reference opens the host device, whose results are the reference for other devices.
func Reference(t testing.TB) device.Device {
	t.Helper()
	return Open(t, func(t testing.TB, limit int64) device.Device {
		d, err := host.Open(host.Options{MemoryLimit: limit, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// Alloc allocates a buffer of n bytes, filled with Poison.
func Alloc(t testing.TB, d device.Device, n int64) device.Buffer {
	t.Helper()
	b, err := d.Alloc(n, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close buffer: %v", err)
		}
	})
	if err := b.Fill(0, n, Poison); err != nil {
		t.Fatal(err)
	}
	return b
}

// Poison is the byte that memory holds before a kernel writes it. Four of them are a small negative
// float32, so an element that was not written shows in any type.
const Poison = 0xA5

// AllocHost allocates n bytes of host memory, filled with Poison.
func AllocHost(t testing.TB, d device.Device, n int64) device.HostBuffer {
	t.Helper()
	h, err := d.AllocHost(n, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close host buffer: %v", err)
		}
	})
	for i := range h.Bytes() {
		h.Bytes()[i] = Poison
	}
	return h
}

// Upload allocates a buffer that holds data.
func Upload(t testing.TB, d device.Device, data []byte) device.Buffer {
	t.Helper()
	b := Alloc(t, d, int64(len(data)))
	Write(t, b, 0, data)
	return b
}

// Write writes data to a buffer from byte off on.
func Write(t testing.TB, b device.Buffer, off int64, data []byte) {
	t.Helper()
	if err := b.Write(off, data); err != nil {
		t.Fatal(err)
	}
}

// Download returns a copy of the whole content of a buffer.
func Download(t testing.TB, b device.Buffer) []byte {
	t.Helper()
	data := make([]byte, b.Size())
	if err := b.Read(0, data); err != nil {
		t.Fatal(err)
	}
	return data
}

// NewStream opens a stream.
func NewStream(t testing.TB, d device.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return s
}

// FindKernel returns a kernel of the set by its name.
func FindKernel(t testing.TB, d device.Device, name string) device.Kernel {
	t.Helper()
	k, err := d.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Start launches a kernel on a stream and does not wait for it.
func Start(t testing.TB, s device.Stream, k device.Kernel, g device.Geometry, args ...device.Arg) {
	t.Helper()
	if err := s.Launch(k, g, args...); err != nil {
		t.Fatal(err)
	}
}

// Wait waits for a stream, at most for Patience.
func Wait(t testing.TB, s device.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

// Want marks the test as failed unless err is of the class. what names the call in the message.
func Want(t testing.TB, what string, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%s: got %v, want %v", what, err, class)
	}
}

// RandomBytes returns n bytes that depend on the seed only.
func RandomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// Poisoned returns n bytes of Poison.
func Poisoned(n int) []byte { return bytes.Repeat([]byte{Poison}, n) }

// NewEvent makes an event.
func NewEvent(t testing.TB, d device.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close event: %v", err)
		}
	})
	return e
}

// Guard is the number of bytes before and after the memory of a parameter that a kernel must not
// write.
const Guard = 1024

// CountOther returns the number of bytes that are not Poison.
func CountOther(guard []byte) int { return len(guard) - bytes.Count(guard, []byte{Poison}) }

// EqualWithin returns an error that names the first difference of two buffers, nil if there is
// none. With a bound of 0 it compares bytes; else float32 elements, which may differ by bound
// relative to the wanted value.
func EqualWithin(got, need []byte, bound float64) error {
	if bytes.Equal(got, need) {
		return nil
	}
	if bound == 0 || len(got) != len(need) {
		for i := range min(len(got), len(need)) {
			if got[i] != need[i] {
				return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(need), got[i], need[i])
			}
		}
		return fmt.Errorf("%d bytes, want %d", len(got), len(need))
	}
	have := device.Of[float32](got)
	for i, w := range device.Of[float32](need) {
		if diff := math.Abs(float64(have[i]) - float64(w)); diff > bound*math.Abs(float64(w)) || math.IsNaN(diff) {
			return fmt.Errorf("element %d is %v, want %v within %g", i, have[i], w, bound)
		}
	}
	return nil
}
