//go:build cuda

package driver

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

const slowCode = `__global__ void slow(unsigned int *out, unsigned long long ns) {
	unsigned long long start, now;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
	out[0] = 7;
}`

// slowLaunch puts a kernel of so long into a new stream.
func slowLaunch(t *testing.T, d *Device, last time.Duration) (*stream, *buffer) {
	t.Helper()
	k, err := d.Compile("slow", slowCode)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(4, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Launch(k, device.Geometry{Grid: 1, Block: 1}, device.Ptr(b), device.Uint64(uint64(last))); err != nil {
		t.Fatal(err)
	}
	return s.(*stream), b.(*buffer)
}

// A kernel that runs too long is reported within the watchdog's time, and the device is whole again
// when it has ended.
func TestWatchdog(t *testing.T) {
	d := openGPU(t, Options{Watchdog: 200 * time.Millisecond})
	defer closeGPU(t, d)
	start := time.Now()
	s, b := slowLaunch(t, d, 1500*time.Millisecond)
	err := s.Sync(context.Background())
	t.Logf("after %v: %v", time.Since(start), err)
	if !errors.Is(err, device.ErrTimeout) || time.Since(start) > 700*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if h := d.Health(context.Background()); h.State != device.Degraded ||
		!strings.Contains(strings.Join(h.Reasons, "; "), "not ended") {
		t.Errorf("health with a slow kernel: %+v", h)
	} else {
		t.Logf("health: %v: %v", h.State, h.Reasons)
	}
	runSum(t, d) // other streams continue
	testkit.Until(t, "the slow kernel", func() bool { return s.Sync(context.Background()) == nil })
	if h := d.Health(context.Background()); strings.Contains(strings.Join(h.Reasons, "; "), "not ended") {
		t.Errorf("health after it: %+v", h)
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// Close does not wait for a kernel that the watchdog has reported.
func TestWatchdogClose(t *testing.T) {
	if !alone(t) {
		return
	}
	d := openGPU(t, Options{Watchdog: 200 * time.Millisecond})
	start := time.Now()
	s, _ := slowLaunch(t, d, 3*time.Second)
	if err := s.Sync(context.Background()); !errors.Is(err, device.ErrTimeout) {
		t.Error(err)
	}
	err := d.Close()
	t.Logf("close after %v: %v", time.Since(start), err)
	if !errors.Is(err, device.ErrTimeout) || !errors.Is(err, device.ErrRestart) || time.Since(start) > 2*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// A signature that the compiled kernel does not have is refused where the driver can tell.
func TestCompiledSignature(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	ptr, word := device.Param{Name: "p", Kind: device.KindBuffer}, device.Param{Name: "n", Kind: device.KindUint32}
	const code = `extern "C" __global__ void two(float *p, unsigned int n) { p[0] = n; }`
	known := d.props.DriverVersion >= 12040
	for what, params := range map[string][]device.Param{
		"fits": {ptr, word}, "too few": {ptr},
		"too many": {ptr, word, word}, "other sizes": {word, ptr},
	} {
		_, err := d.load(kernelSource("two", code, params))
		if (err == nil) != (what == "fits" || !known) || err != nil && !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	k, err := d.Compile("two", strings.TrimPrefix(code, `extern "C" `))
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Compile("two", code)
	if err != nil || again != k {
		t.Errorf("the same source is compiled twice: %v", err)
	}
	t.Logf("blocks of %d threads; a million elements: %+v", k.(*kernel).block, k.Cover(1_000_000))
	if k.(*kernel).block < 32 {
		t.Error("the driver says nothing about occupancy")
	}
	if err := d.checkParams(k.(*kernel)); err != nil {
		t.Error(err)
	}
}

// A device without a compiler refuses to compile and runs the set.
func TestCompileWithoutNVRTC(t *testing.T) {
	d := openGPU(t, Options{NVRTC: []string{}})
	defer closeGPU(t, d)
	if _, err := d.Compile("slow", slowCode); !errors.Is(err, device.ErrNotSupported) ||
		!bytes.Contains([]byte(err.Error()), []byte("NVRTC")) {
		t.Error(err)
	}
	runSum(t, d)
}
