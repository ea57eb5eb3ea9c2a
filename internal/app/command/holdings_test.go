package command_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// gather reads the metrics of holdings: the number of things that are open by kind, and the number
// of libraries as "libraries".
func gather(t *testing.T, h command.Holdings) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(h)
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "exoswarm_process_open" {
				v[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			} else {
				v["libraries"] = m.GetGauge().GetValue()
			}
		}
	}
	return v
}

// TestHoldings: a listener, a file, and a library of NVIDIA's that this process maps show in its
// metrics, and the library in the check too.
func TestHoldings(t *testing.T) {
	h := command.NewHoldings("/proc/self")
	before := gather(t, h)
	if before["libraries"] != 0 || h.GPUFree(t.Context()) != nil {
		t.Fatalf("before: %v, %v", before, h.GPUFree(t.Context()))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// What the library holds is of no matter: that it is mapped is.
	f, err := os.Create(filepath.Join(t.TempDir(), "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	after := gather(t, h)
	for kind, more := range map[string]float64{"listener": 1, "socket": 1, "file": 1, "libraries": 1, "gpu": 0} {
		if got := after[kind] - before[kind]; got != more {
			t.Errorf("%s: %v more, want %v", kind, got, more)
		}
	}
	if err := h.GPUFree(t.Context()); !errors.Is(err, command.ErrGPUCode) {
		t.Errorf("a mapped library: %v", err)
	}
	if err := syscall.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	if err := h.GPUFree(t.Context()); err != nil || gather(t, h)["libraries"] != 0 {
		t.Errorf("after it is unmapped: %v", err)
	}
	proc := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(proc, "fd"), 0o700),
		os.Symlink("/dev/nvidia0", filepath.Join(proc, "fd", "3"))); err != nil {
		t.Fatal(err)
	}
	if v := gather(t, command.NewHoldings(proc)); v["gpu"] != 1 {
		t.Errorf("an open device: %v", v)
	}
}
