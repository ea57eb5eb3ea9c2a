package command

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Holdings are what a process has open, read from its folder in /proc at each scrape. A GPU agent
// has device handles, and no listener except for its metrics; a CPU agent has no device handle and
// maps no library of NVIDIA's. Alerts watch that this stays so.
type Holdings struct{ proc string }

// NewHoldings reads the holdings of the process of a folder, as in /proc/self.
func NewHoldings(proc string) Holdings { return Holdings{proc} }

var (
	openDesc = prometheus.NewDesc("exoswarm_process_open", "What the process has open, by kind: gpu (device files "+
		"of NVIDIA), listener (TCP), socket (listeners included), file, other.", []string{"kind"}, nil)
	mapsDesc = prometheus.NewDesc("exoswarm_process_gpu_libraries", "GPU libraries mapped into the process. On a "+
		"CPU agent anything but 0 is a breach of its isolation.", nil, nil)
)

// Describe implements prometheus.Collector.
func (h Holdings) Describe(out chan<- *prometheus.Desc) {
	out <- openDesc
	out <- mapsDesc
}

// Collect implements prometheus.Collector. A system without /proc has no values.
func (h Holdings) Collect(out chan<- prometheus.Metric) {
	files, err := os.ReadDir(filepath.Join(h.proc, "fd"))
	if err != nil {
		return
	}
	listening := h.listening()
	counts := map[string]int{"gpu": 0, "listener": 0, "socket": 0, "file": 0, "other": 0}
	for _, fd := range files {
		to, err := os.Readlink(filepath.Join(h.proc, "fd", fd.Name()))
		switch {
		case err != nil: // closed since it was listed
		case strings.HasPrefix(to, "/dev/nvidia"):
			counts["gpu"]++
		case strings.HasPrefix(to, "socket:["):
			counts["socket"]++
			if listening[to] {
				counts["listener"]++
			}
		case strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/"):
			counts["file"]++
		default: // pipes, timers, terminals
			counts["other"]++
		}
	}
	for kind, n := range counts {
		out <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(n), kind)
	}
	libraries := 0
	for _, found := range gpuMappings(h.proc) {
		if strings.HasPrefix(found, "the library ") {
			libraries++
		}
	}
	out <- prometheus.MustNewConstMetric(mapsDesc, prometheus.GaugeValue, float64(libraries))
}

// listening are the sockets of the process's network namespace that accept TCP connections, named
// as in /proc/self/fd.
func (h Holdings) listening() map[string]bool {
	const listen = "0A" // the state, in the fourth column; the inode is in the tenth
	found := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(h.proc, "net", table))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[3] == listen {
				found["socket:["+fields[9]+"]"] = true
			}
		}
		f.Close()
	}
	return found
}

// GPUFree is a check of /readyz for a CPU agent: it fails while the process maps a GPU library or
// has a device file of NVIDIA open.
func (h Holdings) GPUFree(context.Context) error {
	if found := gpuMappings(h.proc); len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrGPUCode, strings.Join(found, ", "))
	}
	return nil
}
