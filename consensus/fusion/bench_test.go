package fusion_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// What the benchmarks run, for tuning; 0: what the package chooses.
var (
	grid   = flag.Int("grid", 0, "blocks of a launch")
	block  = flag.Int("block", 0, "threads of a block")
	phases = flag.Int("phases", 0, "launches of an unsorted fusion, each for a range of the nodes; -1: agents are "+
		"sorted by their node")
	runRows = flag.Int("runrows", 0, "rows of a run of a static fusion")
	agents  = flag.Int("agents", 10_000_000, "agents of a fusion; the host device takes a hundredth")
	dims    = flag.String("dims", "64", "numbers of columns, as in 8,64,512")
)

// warmup is the number of fusions before the timed ones: code is loaded and clocks are up.
const warmup = 5

// BenchmarkCopy is the ceiling of the same run: what a copy on the device reads and writes, of 1
// GiB, in GB/s.
func BenchmarkCopy(b *testing.B) {
	d := opened(b)
	size := int64(1) << 30
	if d.Properties().ComputeMajor == 0 {
		size = 1 << 27
	}
	b.ReportMetric(ceiling(b, d, size)/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// ceiling is bytes a second that a copy reads and writes, by the best of several. A call's own time
// is spread over eight copies.
func ceiling(b *testing.B, d device.Device, size int64) float64 {
	from, err := d.Alloc(size, "bench")
	ok(b, err)
	defer from.Close()
	to, err := d.Alloc(size, "bench")
	ok(b, err)
	defer to.Close()
	s, err := d.NewStream()
	ok(b, err)
	defer s.Close()
	ok(b, from.Fill(0, size, 0x5A))
	best := 0.0
	for range 5 {
		const copies = 8
		start := time.Now()
		for range copies {
			ok(b, s.Copy(to, 0, from, 0, size))
		}
		ok(b, s.Sync(context.Background()))
		best = max(best, float64(2*copies*size)/time.Since(start).Seconds())
	}
	return best
}

// membership makes members: uniform, sorted, 99 of 100 on one node, or on eight of them.
func membership(kind string, n, nodes int) []uint32 {
	r := rand.New(rand.NewPCG(uint64(n), uint64(nodes)))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = r.Uint32N(uint32(nodes))
		heavy := uint32(nodes) / 3
		switch {
		case kind == "skewed" && r.IntN(100) != 0:
			ids[i] = heavy
		case kind == "heavy8" && r.IntN(100) != 0:
			ids[i] = (heavy + 13*r.Uint32N(8)) % uint32(nodes)
		}
	}
	if kind != "ordered" {
		return ids
	}
	counts := make([]int, nodes)
	for _, id := range ids {
		counts[id]++
	}
	ids = ids[:0]
	for id, n := range counts {
		for range n {
			ids = append(ids, uint32(id))
		}
	}
	return ids
}

// BenchmarkFuse is the wall time of Reset and Fuse, until the nodes hold the sums: static with
// members in order and not, unsorted; uniform, and with 99 % of the memberships on one node and on
// eight. Bytes count what has to move: each embedding once, each member or place once, each node
// written once. Run it with -benchtime 100x.
func BenchmarkFuse(b *testing.B) {
	d := opened(b)
	n, size := *agents, int64(1)<<30
	if d.Properties().ComputeMajor == 0 {
		n, size = n/100, 1<<27
	}
	top := ceiling(b, d, size)
	for _, text := range strings.Split(*dims, ",") {
		dim, err := strconv.Atoi(text)
		ok(b, err)
		for _, elem := range elems {
			benchmarkFuse(b, d, n*64/max(dim, 64), dim, elem, top)
		}
	}
}

// benchRows are values from -0.5 to 0.5, by all cores: the machine with the device is not to wait
// for them.
func benchRows(n, dim int, elem device.Elem) []byte {
	rows := make([]byte, int64(n)*int64(dim)*elem.Bytes())
	var wg sync.WaitGroup
	parts := runtime.GOMAXPROCS(0)
	for part := range parts {
		wg.Go(func() {
			x := uint64(part) + 1
			value := func() float32 { // the upper bits of Knuth's linear congruential generator
				x = x*6364136223846793005 + 1442695040888963407
				return float32(x>>40)/(1<<24) - 0.5
			}
			from, end := part*n/parts*dim, (part+1)*n/parts*dim
			if elem == device.F32 {
				values := device.Of[float32](rows)[from:end]
				for i := range values {
					values[i] = value()
				}
				return
			}
			values := device.Of[uint16](rows)[from:end]
			for i := range values {
				values[i] = device.ToBF16(value())
			}
		})
	}
	wg.Wait()
	return rows
}

func benchmarkFuse(b *testing.B, d device.Device, n, dim int, elem device.Elem, top float64) {
	rows := benchRows(n, dim, elem)
	memory, err := d.Alloc(int64(len(rows)), "bench")
	ok(b, err)
	defer memory.Close()
	ok(b, memory.Write(0, rows))
	for _, nodes := range []int{1024, 1_000_000} {
		if nodes > n {
			nodes = n / 10
		}
		for _, mode := range []fusion.Mode{fusion.Static, fusion.Unsorted} {
			for _, kind := range []string{"uniform", "skewed", "heavy8", "ordered"} {
				name := fmt.Sprintf("%v/%d/%dx%d/%s/%s", elem, nodes, n, dim, []string{"static", "unsorted"}[mode],
					kind)
				members := sync.OnceValue(func() []uint32 { return membership(kind, n, nodes) })
				b.Run(name, func(b *testing.B) {
					f := made(b, d, fusion.Tuned(fusion.Options{
						Nodes: nodes, Dim: dim, Agents: n, Type: elem, Mode: mode,
						Geometry: device.Geometry{Grid: *grid, Block: *block},
					}, *phases, *runRows))
					ids := members()
					ok(b, f.Point(memory, 0), f.Members(ids))
					bytes := int64(len(rows)) + 4*int64(nodes)*int64(dim) + 16*int64(nodes)
					if mode == fusion.Unsorted || kind != "ordered" {
						bytes += 4 * int64(n)
					}
					timed(b, f, bytes, top)
					verify(b, f, ids, rows, elem, nodes, dim)
				})
			}
		}
	}
}

func timed(b *testing.B, f *fusion.Fuser, bytes int64, top float64) {
	ctx := context.Background()
	took := make([]time.Duration, 0, b.N)
	for i := range b.N + warmup {
		start := time.Now()
		err := f.Reset(ctx)
		if err == nil {
			_, err = f.Fuse(ctx)
		}
		t := time.Since(start)
		ok(b, err)
		if i >= warmup {
			took = append(took, t)
		}
	}
	slices.Sort(took)
	us := func(t time.Duration) float64 { return float64(t.Nanoseconds()) / 1e3 }
	median := us(took[len(took)/2])
	b.ReportMetric(median, "p50-us")
	b.ReportMetric(us(took[len(took)*99/100]), "p99-us")
	b.ReportMetric(float64(bytes)/median/1e3, "GB/s")
	b.ReportMetric(100*float64(bytes)/median*1e6/top, "%copy")
	b.ReportMetric(0, "ns/op")
}

// verify compares a sample of the nodes with sums in float64.
func verify(b *testing.B, f *fusion.Fuser, ids []uint32, rows []byte, elem device.Elem, nodes, dim int) {
	b.Helper()
	have, err := f.Read(context.Background())
	ok(b, err)
	step := 1 + nodes/50
	sums := map[uint32][]float64{}
	counts := make([]uint64, nodes)
	for i, id := range ids {
		counts[id]++
		if int(id)%step != 0 && int(id) != nodes/3 {
			continue
		}
		if sums[id] == nil {
			sums[id] = make([]float64, 2*dim)
		}
		for c := range dim {
			v := 0.0
			if elem == device.F32 {
				v = float64(device.Of[float32](rows)[i*dim+c])
			} else {
				v = float64(device.FromBF16(device.Of[uint16](rows)[i*dim+c]))
			}
			sums[id][c] += v
			sums[id][dim+c] += max(v, -v)
		}
	}
	if !slices.Equal(counts, have.Counts) {
		b.Fatal("other counts")
	}
	for id, want := range sums {
		for c := range dim {
			// Rounding errors of many terms partly cancel: a thousandth of the bound of any order,
			// plus the bound of ten terms.
			bound := (10 + float64(counts[id])/1000) * want[dim+c] / (1 << 24)
			if diff := float64(have.Sums[int(id)*dim+c]) - want[c]; !(max(diff, -diff) <= bound) {
				b.Fatalf("column %d of node %d: %v, want %v within %v", c, id, have.Sums[int(id)*dim+c], want[c], bound)
			}
		}
	}
}
