//go:build cuda

package driver

import (
	"context"
	"errors"
	flags "flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/host"
)

var ranks = flags.Int("ranks", 2, "GPUs of the collectives of tests and benchmarks")

// openRanks opens the first GPUs, as many as -ranks says, or skips the test on a machine that has
// fewer.
func openRanks(t testing.TB) []device.Device {
	t.Helper()
	needGPU(t)
	if n, _ := Init(); n < *ranks {
		t.Skipf("this test needs %d GPUs, and the machine has %d", *ranks, n)
	}
	var all []device.Device
	for i := range *ranks {
		d, err := Open(context.Background(), i, Options{Logger: quiet(), CUBLAS: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func openNCCL(t testing.TB) device.Collective {
	c, err := OpenNCCL(context.Background(), openRanks(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openRelay(t testing.TB) device.Collective {
	c, err := host.NewRelay(openRanks(t), "a test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNCCL(t *testing.T) { devicetest.RunCollective(t, openNCCL) }

// TestRelay: GPUs meet in host memory as host devices do.
func TestRelay(t *testing.T) { devicetest.RunCollective(t, openRelay) }

func BenchmarkNCCL(b *testing.B)  { devicetest.BenchCollective(b, openNCCL) }
func BenchmarkRelay(b *testing.B) { devicetest.BenchCollective(b, openRelay) }

// TestNCCLRefusals: what NCCL does not serve is ErrNotSupported, and nothing is left of it.
func TestNCCLRefusals(t *testing.T) {
	all := openRanks(t)
	again, err := Open(context.Background(), 0, Options{Logger: quiet(), CUBLAS: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		devices []device.Device
		names   []string
		want    error
	}{
		"no devices":    {nil, nil, device.ErrInvalidArgument},
		"one GPU twice": {[]device.Device{all[0], again}, nil, device.ErrNotSupported},
		"no library":    {all, []string{"libnothing.so.0"}, device.ErrNotSupported},
		"no names":      {all, []string{}, device.ErrNotSupported},
	} {
		if _, err := OpenNCCL(context.Background(), c.devices, c.names); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := OpenNCCL(over, all, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	for _, d := range append(all, again) {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenNCCL(context.Background(), all, nil); !errors.Is(err, device.ErrClosed) {
		t.Errorf("closed devices: %v", err)
	}
}

// TestNCCLLeak: a device that is closed before its collective says so, and the collective's Close
// is harmless.
func TestNCCLLeak(t *testing.T) {
	all := openRanks(t)
	c, err := OpenNCCL(context.Background(), all, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].Close(); !errors.Is(err, device.ErrLeak) || !strings.Contains(err.Error(), "collective") {
		t.Error(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	for _, d := range all[1:] {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFakeNCCL runs this file's tests on libraries made of host memory.
func TestFakeNCCL(t *testing.T) {
	if os.Getenv("EXOSWARM_LIBCUDA") != "" {
		t.Skip("another driver is asked for")
	}
	dir := t.TempDir()
	for _, name := range []string{"fakecuda", "fakenccl"} {
		source := filepath.Join("testdata", name+".c")
		if _, err := os.Stat(source); err != nil {
			t.Skip("the test binary runs away from its sources: ", err)
		}
		if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-o",
			filepath.Join(dir, "lib"+name+".so"), source, "-lpthread", "-ldl").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, n := range []string{"2", "3"} {
		cmd := exec.Command(os.Args[0],
			"-test.run=^(TestNCCL|TestRelay|TestNCCLRefusals|TestNCCLLeak|TestFakeNCCLFaults)$", "-test.v", "-ranks="+n)
		cmd.Env = append(os.Environ(), "FAKE_DEVICES="+n, "EXOSWARM_LIBCUDA="+filepath.Join(dir, "libfakecuda.so"),
			"EXOSWARM_LIBNCCL="+filepath.Join(dir, "libfakenccl.so"),
			"EXOSWARM_SKIP_GPU=", "NCCL_NVLS_ENABLE=", "NCCL_SOCKET_IFNAME=")
		for i := len(cmd.Env) - 2; i < len(cmd.Env); i++ { // exec keeps the last: take them out
			name, _, _ := strings.Cut(cmd.Env[i], "=")
			cmd.Env[i] = "WITHOUT_" + name + "=1"
		}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "\n--- PASS: ") != 5 {
			t.Errorf("%s GPUs: %v\n%s", n, err, out)
		}
	}
}

// TestFakeNCCLFaults: a library that does not start is ErrNotSupported; a call that fails, at once
// or behind the call, is ErrSticky and breaks the collective, and another one works.
func TestFakeNCCLFaults(t *testing.T) {
	if filepath.Base(os.Getenv("EXOSWARM_LIBNCCL")) != "libfakenccl.so" {
		t.Skip("runs inside TestFakeNCCL")
	}
	all := openRanks(t)
	t.Setenv("FAKE_NCCL", "start")
	if _, err := OpenNCCL(t.Context(), all, nil); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("start: %v", err)
	}
	for _, how := range []string{"call", "end", "async", ""} {
		t.Setenv("FAKE_NCCL", "")
		c, err := OpenNCCL(t.Context(), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		var places []device.Place
		for _, d := range all {
			b, err := d.Alloc(64, "test")
			if err != nil {
				t.Fatal(err)
			}
			s, err := d.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, device.Place{Stream: s, Buffer: b})
		}
		t.Setenv("FAKE_NCCL", how)
		class := device.ErrSticky
		if how == "" {
			class = nil
		}
		if err := c.Sum(t.Context(), device.KindUint32, 4, places); !errors.Is(err, class) {
			t.Errorf("%q: %v", how, err)
		}
		t.Setenv("FAKE_NCCL", "")
		if err := c.Gather(t.Context(), 16, places); how != "" && !errors.Is(err, class) {
			t.Errorf("after %q: %v", how, err)
		}
		for rank, p := range places {
			if err := errors.Join(p.Stream.Close(), p.Buffer.Close()); err != nil {
				t.Errorf("%q: rank %d: %v", how, rank, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("%q: %v", how, err)
		}
	}
	for _, d := range all {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
