//go:build cuda

package driver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The conformance suite runs on a driver that is made of host memory (testdata/fakecuda.c): it
// shows on any machine that this package calls the driver rightly.
func TestFakeDriver(t *testing.T) {
	if os.Getenv("EXOSWARM_LIBCUDA") != "" {
		t.Skip("another driver is asked for")
	}
	t.Parallel()
	// This binary was built with the sanitizers (make sanitize): the fake driver is too, so that
	// what crosses the border is watched on both sides.
	sanitized := os.Getenv("EXOSWARM_SANITIZE") != ""
	// This binary was built with the tag valgrind (make valgrind) and runs under Valgrind, which
	// does not know the signals with which Go preempts. Go's heap has no leaks in its sense.
	var command []string
	watched := os.Getenv("EXOSWARM_VALGRIND") != ""
	if watched {
		command = []string{
			"valgrind", "--quiet", "--leak-check=no", "--error-exitcode=9", "--suppressions=testdata/valgrind.supp",
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"fakecuda", "fakenvml"} {
		source := filepath.Join("testdata", name+".c")
		if _, err := os.Stat(source); err != nil {
			t.Skip("the test binary runs away from its sources: ", err)
		}
		args := []string{
			"-shared", "-fPIC", "-O1", "-Wall", "-o", filepath.Join(dir, "lib"+name+".so"), source,
			"-lpthread",
		}
		if sanitized {
			args = append([]string{"-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}, args...)
		}
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run := func(tests string, n int, env ...string) {
		t.Helper()
		pattern := "^(" + tests + ")$"
		if sanitized || watched {
			// the other tests are of kernels, which the C code only starts
			pattern += "/^(properties|buffer|copy|event|graph|memory)"
		}
		line := append(command, os.Args[0], "-test.run="+pattern, "-test.v")
		cmd := exec.Command(line[0], line[1:]...)
		// The search for leaks of C memory follows pointers into the fake's device memory, which
		// faults; the suite's own search finds leaks of buffers.
		cmd.Env = append(append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0",
			"EXOSWARM_LIBCUDA="+filepath.Join(dir, "libfakecuda.so"), "EXOSWARM_SKIP_GPU="), env...)
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Count(out, []byte("\n--- PASS: ")) != n {
			t.Errorf("%v\n%s", err, out)
		}
	}
	switch {
	case watched: // a fault leaves the memory of the context that broke
		run("TestConformancePTX|TestMemoryLog", 2, "GODEBUG=asyncpreemptoff=1")
		return
	case sanitized:
		run("TestConformancePTX|TestFakeFault|TestMemoryLog", 3)
	default:
		run("TestConformance|TestConformancePTX|TestCycles|TestFakeFault|TestMemoryLog|TestPriority", 6)
	}
	run("TestFakeSensors|TestCounters", 2, "EXOSWARM_LIBNVML="+filepath.Join(dir, "libfakenvml.so"))
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
