package state

import (
	"flag"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

var (
	pagedPages = flag.Int("paged-pages", 0,
		"pages of the swarms of the benchmarks of paging; 0: 12,288, and 96 on the host device")
	pagedBytes = flag.Int("paged-bytes", 2<<20, "the size of those pages")
	pagedBatch = flag.Int("paged-batch", 65536, "observations of a batch of BenchmarkPagedGroups")
	pagedWarm  = flag.Int("paged-warm", 10,
		"batches of BenchmarkPagedGroups before the measured batches, in which pages change places")
	pagedFar = flag.Bool("paged-far", false,
		"the pages that BenchmarkPagedGroups observes most are in host memory at first")
)

// openNamed opens a device for a test.
func openNamed(t testing.TB, name string) device.Device {
	t.Helper()
	return opentest.Open(t, name, cuda.Options{Poison: true})
}

// median returns the middle of some numbers.
func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// pagesOf reads all pages of agents on which no work is under way.
func pagesOf(t testing.TB, a *agents.Agents) []byte {
	t.Helper()
	size := a.Layout().PageBytes
	data := make([]byte, a.Memory().Count()*size)
	for p := range a.Memory().Count() {
		if err := a.Memory().Read(t.Context(), uint64(p), data[p*size:][:size]); err != nil {
			t.Fatalf("Read: %v, want no error", err)
		}
	}
	return data
}

// column reads a variable of all agents or groups.
func column(t testing.TB, a *agents.Agents, v int) []byte {
	t.Helper()
	all, of, l := pagesOf(t, a), a.Layout().Vars[v], a.Layout()
	size := of.Width * of.Elem.Bytes()
	if !of.Group {
		size *= l.Agents
	}
	var out []byte
	for g := range a.Groups() {
		out = append(out, all[g/l.Slots*l.PageBytes+int(l.Offsets[v])+g%l.Slots*size:][:size]...)
	}
	return out
}

// values reads a variable of F32 or BF16 as float64.
func values(t testing.TB, a *agents.Agents, v int) []float64 {
	t.Helper()
	var out []float64
	data := column(t, a, v)
	if a.Layout().Vars[v].Elem == kernels.BF16 {
		for _, x := range device.Of[uint16](data) {
			out = append(out, float64(device.FromBF16(x)))
		}
		return out
	}
	for _, x := range device.Of[float32](data) {
		out = append(out, float64(x))
	}
	return out
}

// newWhole makes all agents of a swarm of one shard; see newShard.
func newWhole(dev device.Device, b *pages.Budget, spec *swarm.Spec, groups int) (State, error) {
	return New(dev, b, spec, GroupRange{Shards: 1, Groups: groups, All: groups})
}
