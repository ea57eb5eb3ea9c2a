//go:build cuda

package driver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The conformance suite runs on a driver that is made of host memory (testdata/fakecuda.c): it shows on any machine that
// this package calls the driver rightly.
func TestFakeDriver(t *testing.T) {
	if os.Getenv("EXOSWARM_LIBCUDA") != "" {
		t.Skip("another driver is asked for")
	}
	dir := t.TempDir()
	for _, name := range []string{"fakecuda", "fakenvml"} {
		source := filepath.Join("testdata", name+".c")
		if _, err := os.Stat(source); err != nil {
			t.Skip("the test binary runs away from its sources: ", err)
		}
		if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", filepath.Join(dir, "lib"+name+".so"), source, "-lpthread").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run := func(tests string, n int, env ...string) {
		t.Helper()
		cmd := exec.Command(os.Args[0], "-test.run=^("+tests+")$", "-test.v")
		cmd.Env = append(append(os.Environ(), "EXOSWARM_LIBCUDA="+filepath.Join(dir, "libfakecuda.so"), "EXOSWARM_SKIP_GPU="), env...)
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Count(out, []byte("\n--- PASS: ")) != n {
			t.Errorf("%v\n%s", err, out)
		}
	}
	run("TestConformance|TestConformancePTX|TestCycles|TestFakeFault", 4)
	run("TestFakeSensors", 1, "EXOSWARM_LIBNVML="+filepath.Join(dir, "libfakenvml.so"))
	run("TestFakeFault", 1, "FAKE_POISON=1")
}

// A kernel that leaves its buffer breaks the device and the other openings of its GPU.
func TestFakeFault(t *testing.T) {
	if filepath.Base(os.Getenv("EXOSWARM_LIBCUDA")) != "libfakecuda.so" {
		t.Skip("runs inside TestFakeDriver")
	}
	testFault(t, func(t *testing.T, d *Device) *kernel {
		k, err := d.Kernel("fill_u32")
		if err != nil {
			t.Fatal(err)
		}
		return k.(*kernel)
	}, 1<<40)
}
