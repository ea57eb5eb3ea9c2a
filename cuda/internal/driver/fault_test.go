//go:build cuda

package driver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/internal/driver/bare"
)

// alone runs the calling test in a new process, because a fault of a kernel may take the GPU from
// its whole process. It returns true in that process; in the parent it reports the child's outcome
// and the test is over.
func alone(t *testing.T) bool {
	t.Helper()
	const key = "DRIVER_TEST_ALONE"
	if os.Getenv(key) == t.Name() {
		return true
	}
	out, err := child(t, t.Name(), key+"="+t.Name())
	if err != nil {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("in a process of its own:\n%s", out)
	}
	return false
}

// child runs one test of this binary in a process with an addition to its environment.
func child(t *testing.T, name, env string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pattern := "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+pattern, "-test.v", "-test.timeout=50s")
	cmd.Env = append(os.Environ(), env)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// faults are the bodies of kernels that fail on every GPU, by name.
var faults = map[string]string{
	"illegal_address": "*(volatile unsigned int *)(0x10000000ull + n) = 1;",
	"misaligned":      "*(volatile unsigned long long *)((char *)out + 1) = n;",
	"trap":            `asm volatile("trap;");`,
	"assert":          "assert(n == v + 1);",
}

// Each kind of fault in a kernel breaks its device, is told by every call, and leaves the process
// able to continue: with a new opening of the GPU, or with the word that only a new process can
// have one.
func TestFaultsAreSticky(t *testing.T) {
	for name, body := range faults {
		t.Run(name, func(t *testing.T) {
			if !alone(t) {
				return
			}
			testFault(t, func(t *testing.T, d *Device) *kernel {
				return loadTest(t, d, "fault",
					`extern "C" __global__ void fault(unsigned int *out, unsigned long long n, unsigned `+
						`int v) { `+body+` }`,
					device.Param{Name: "out", Kind: device.KindBuffer},
					device.Param{Name: "n", Kind: device.KindUint64}, device.Param{Name: "v", Kind: device.KindUint32})
			}, 0)
		})
	}
}

// testFault launches a kernel that fails with the scalar n. Every call of its device then says so;
// so does every call of another opening of the GPU in the process, unless the driver kept it whole.
// Afterwards the GPU can be opened again, or Open says that the process must be restarted; a new
// opening refuses the handles of the broken one.
func testFault(t *testing.T, fault func(*testing.T, *Device) *kernel, n uint64) {
	other := openGPU(t, Options{})
	d := openGPU(t, Options{})
	k := fault(t, d)
	b, err := d.Alloc(1024, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	untold, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	args := []device.Arg{device.Ptr(b), device.Uint64(n), device.Uint32(0)}
	g := device.Geometry{Grid: 1, Block: 1}
	if err := s.Launch(k, g, args...); err != nil {
		t.Fatal(err)
	}
	err = s.Sync(context.Background())
	t.Log(err)
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, device.ErrSticky) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("sync", err)
	check("sync again", s.Sync(context.Background()))
	check("launch", s.Launch(k, g, args...))
	check("write", b.Write(0, []byte{1}))
	_, err = d.Alloc(1, "test")
	check("alloc", err)
	_, err = d.NewStream()
	check("stream", err)
	_, err = d.Kernel("checksum")
	check("kernel", err)
	check("close of a stream that was told nothing", untold.Close())
	_, err = other.Alloc(1, "test")
	check("alloc of another opening of the GPU", err)
	if err := errors.Join(s.Close(), b.Close(), d.Close()); err != nil {
		t.Errorf("close: %v", err)
	}

	// The other opening is not closed yet: Open clears it away.
	again, err := Open(context.Background(), 0, Options{Logger: quiet()})
	if err != nil {
		t.Logf("opened again: %v", err)
		if !errors.Is(err, device.ErrRestart) {
			t.Errorf("a failed second opening does not ask for a new process: %v", err)
		}
		if err := other.Close(); err != nil {
			t.Errorf("close of the other opening: %v", err)
		}
		return
	}
	t.Log("opened again: works")
	defer closeGPU(t, again)
	_, err = other.Alloc(1, "test")
	check("the other opening, cleared away", err)
	if err := other.Close(); err != nil {
		t.Errorf("close of the other opening: %v", err)
	}
	runSum(t, again)
	fresh, err := again.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if err := fresh.Launch(k, g, args...); !errors.Is(err, device.ErrInvalidArgument) {
		t.Errorf("a kernel of the broken device: %v", err)
	}
	fill, err := again.Kernel("fill_u32")
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.Launch(fill, g, args...); !errors.Is(err, device.ErrInvalidArgument) {
		t.Errorf("a buffer of the broken device: %v", err)
	}
}

// TestFaultLaboratory prints what this driver does after a fault, one experiment a line. It judges
// nothing: the words are for DESIGN.md and for whoever changes the handling of sticky errors.
func TestFaultLaboratory(t *testing.T) {
	needGPU(t)
	library := os.Getenv("EXOSWARM_LIBCUDA")
	if library == "" {
		library = "libcuda.so.1"
	}
	const key, sound = "DRIVER_TEST_FAULT", "DRIVER_TEST_SOUND"
	if os.Getenv(sound) != "" {
		t.Logf("FAULTLAB another process: %v", bare.Sound(library))
		return
	}
	if kind, strategy, ok := strings.Cut(os.Getenv(key), "/"); ok {
		t.Logf("FAULTLAB %s %s:%s", kind, strategy, bare.RunFault(library, kind, strategy))
		if strategy == "alive" { // while this process holds a broken context
			out, err := child(t, t.Name(), sound+"=1")
			t.Logf("FAULTLAB %s another process while this one is broken: %v\n%s", kind, err, out)
		}
		return
	}
	try := func(kind, strategy string) {
		out, err := child(t, t.Name(), key+"="+kind+"/"+strategy)
		for line := range bytes.Lines(out) {
			if i := bytes.Index(line, []byte("FAULTLAB")); i >= 0 {
				t.Logf("%s", bytes.TrimSpace(line[i:]))
			}
		}
		if err != nil {
			t.Logf("FAULTLAB %s %s: the process ended with %v\n%s", kind, strategy, err, out)
		}
	}
	for _, strategy := range bare.FaultStrategies {
		try("illegal", strategy)
	}
	for _, kind := range bare.FaultKinds[1:] {
		for _, strategy := range []string{"one", "two", "namespace"} {
			try(kind, strategy)
		}
	}
}
