//go:build cuda

package driver

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
)

// openPair opens two GPUs, or skips the test on a machine that has one.
func openPair(t testing.TB) (one, two *Device) {
	t.Helper()
	needGPU(t)
	if n, _ := Init(); n < 2 {
		t.Skip("this test needs two GPUs, and the machine has one")
	}
	d := openGPU(t, Options{})
	other, err := Open(context.Background(), 1, Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return d, other
}

// TestPeers copies between two GPUs, both ways at once, and launches on both.
func TestPeers(t *testing.T) {
	one, two := openPair(t)
	defer closeGPU(t, one)
	defer closeGPU(t, two)
	for _, d := range []*Device{one, two} {
		p := d.Properties()
		t.Logf("%s: %s, PCIe generation %d with %d lanes, peers %+v", p.Name, p.UUID, p.PCIeGeneration, p.PCIeLanes,
			p.Peers)
		if len(p.Peers) < 1 {
			t.Errorf("%s has no peers", p.Name)
		}
		runSum(t, d)
	}
	const n = 1 << 30
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	sum := devicetest.Checksum(data)
	var bufs [4]device.Buffer // a and b on one, c and d on two: a to c, d to b
	for i := range bufs {
		d := one
		if i >= 2 {
			d = two
		}
		b, err := d.Alloc(n, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		bufs[i] = b
	}
	for _, i := range []int{0, 3} {
		if err := bufs[i].Write(0, data); err != nil {
			t.Fatal(err)
		}
	}
	s1, err1 := one.NewStream()
	s2, err2 := two.NewStream()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer s1.Close()
	defer s2.Close()
	ctx := context.Background()
	for _, both := range []bool{false, true} {
		best := time.Hour
		for range 5 {
			start := time.Now()
			err := s1.Copy(bufs[2], 0, bufs[0], 0, n)
			if both {
				err = errors.Join(err, s2.Copy(bufs[1], 0, bufs[3], 0, n))
			}
			if err := errors.Join(err, s1.Sync(ctx), s2.Sync(ctx)); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(start))
		}
		t.Logf("1 GiB from GPU to GPU, both ways %v: %v, %.0f GB/s each way", both, best, n/best.Seconds()/1e9)
	}
	for _, i := range []int{1, 2} {
		c := &benchCopy{d: bufs[i].(*buffer).dev}
		s, err := c.d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		c.streams[0] = s
		if got := c.sum(t, bufs[i]); got != sum {
			t.Errorf("buffer %d has other bytes", i)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A fault on one GPU leaves another of the same process as it is, or every call on that one says
// that it is broken too: driver 580.159 does the latter (DESIGN.md). Nothing hangs, and the process
// continues.
func TestPeerFault(t *testing.T) {
	needGPU(t)
	if n, _ := Init(); n < 2 {
		t.Skip("this test needs two GPUs, and the machine has one")
	}
	if !alone(t) {
		return
	}
	one, two := openPair(t)
	k := loadTest(t, one, "fault", `extern "C" __global__ void fault(unsigned int *out) { asm volatile("trap;"); }`,
		device.Param{Name: "out", Kind: device.KindBuffer})
	b, err := one.Alloc(64, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := one.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.Launch(k, device.Geometry{Grid: 1, Block: 1}, device.Ptr(b)), s.Sync(context.Background()))
	if !errors.Is(err, device.ErrSticky) {
		t.Fatalf("the fault: %v", err)
	}
	h := two.Health(context.Background())
	t.Logf("health of the other GPU: %v %q", h.State, h.Reasons)
	if h.State != device.Failed {
		runSum(t, two)
		closeGPU(t, two)
	} else {
		if _, err := two.Alloc(64, "test"); !errors.Is(err, device.ErrSticky) {
			t.Errorf("a call on the other GPU: %v", err)
		}
		if err := two.Close(); err != nil {
			t.Errorf("close of the other GPU: %v", err)
		}
		again, err := Open(context.Background(), 1, Options{Logger: quiet()})
		t.Logf("another opening of the other GPU: %v", err)
		switch {
		case err == nil:
			runSum(t, again)
			closeGPU(t, again)
		case !errors.Is(err, device.ErrSticky) || !errors.Is(err, device.ErrRestart):
			t.Errorf("another opening of the other GPU: %v", err)
		}
	}
	if err := errors.Join(s.Close(), b.Close(), one.Close()); err != nil {
		t.Error(err)
	}
}
