package policy

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"sort"
)

func hits(create New, capacity int, trace []uint64) int {
	n := 0
	x := create(capacity, func(uint64) {})
	for _, page := range trace {
		if x.Access(page) {
			n++
		}
	}
	return n
}

// tierHits runs a trace over a tier of real pages that an Adaptive rules.
func tierHits(a *Adaptive, capacity int, trace []uint64) int {
	n := 0
	resident := map[uint64]bool{}
	for _, page := range trace {
		if resident[page] {
			n++
			a.Access(page)
			continue
		}
		a.Access(page)
		if len(resident) >= capacity {
			gone, ok := a.Victim(func(uint64) bool { return true })
			if !ok || !resident[gone] {
				panic("no victim, or one that is not resident")
			}
			delete(resident, gone)
			a.Evicted(gone)
		}
		resident[page] = true
		a.Added(page)
	}
	return n
}

// optimum is Belady's: the page whose next use is farthest goes. Refusing a page costs nothing.
func optimum(capacity int, trace []uint64) int {
	next := make([]int, len(trace))
	last := map[uint64]int{}
	for i := len(trace) - 1; i >= 0; i-- {
		next[i] = math.MaxInt
		if j, ok := last[trace[i]]; ok {
			next[i] = j
		}
		last[trace[i]] = i
	}
	n := 0
	h := &farthest{}
	until := map[uint64]int{} // resident pages and their next use
	for i, page := range trace {
		if _, ok := until[page]; ok {
			n++
		}
		until[page] = next[i]
		heap.Push(h, use{page, next[i]})
		for len(until) > capacity {
			u := heap.Pop(h).(use)
			if until[u.page] == u.at {
				delete(until, u.page)
			}
		}
	}
	return n
}

type use struct {
	page uint64
	at   int
}

// farthest is a heap with the farthest use on top. Stale entries are skipped by the caller.
type farthest []use

func (h farthest) Len() int           { return len(h) }
func (h farthest) Less(i, j int) bool { return h[i].at > h[j].at }
func (h farthest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *farthest) Push(x any)        { *h = append(*h, x.(use)) }
func (h *farthest) Pop() any {
	old := *h
	u := old[len(old)-1]
	*h = old[:len(old)-1]
	return u
}

// zipf draws page numbers with probability proportional to 1/rank^s, spread over the id space.
type zipf struct {
	cdf []float64
	rng *rand.Rand
}

func newZipf(n int, s float64, rng *rand.Rand) *zipf {
	z := &zipf{cdf: make([]float64, n), rng: rng}
	sum := 0.0
	for i := range z.cdf {
		sum += math.Pow(float64(i+1), -s)
		z.cdf[i] = sum
	}
	for i := range z.cdf {
		z.cdf[i] /= sum
	}
	return z
}

func (z *zipf) next() uint64 {
	return uint64(sort.SearchFloat64s(z.cdf, z.rng.Float64())) * 2654435761 % 4294967311
}

// row is a load: a trace and the capacities to run it at.
type row struct {
	name  string
	trace []uint64
	at    []int
}

// generated are the loads of shared/traces/README.md that are to be written oneself, and phases of
// them.
func generated(seed uint64) []row {
	rng := rand.New(rand.NewPCG(seed, seed))
	draw := func(n int, s float64, count int) []uint64 {
		z := newZipf(n, s, rng)
		t := make([]uint64, count)
		for i := range t {
			t[i] = z.next()
		}
		return t
	}
	loop := func(n, count int) []uint64 {
		t := make([]uint64, count)
		for i := range t {
			t[i] = 1<<40 + uint64(i%n)
		}
		return t
	}
	scan := func() []uint64 { // Every 20,000 accesses, a scan of 5,000 pages never seen again.
		z := newZipf(100000, 0.9, rng)
		var t []uint64
		fresh := uint64(1 << 50)
		for len(t) < 300000 {
			for range 20000 {
				t = append(t, z.next())
			}
			for range 5000 {
				t = append(t, fresh)
				fresh++
			}
		}
		return t
	}
	sprinkled := func() []uint64 { // One access in five is to a page never seen again.
		z := newZipf(100000, 0.9, rng)
		t := make([]uint64, 300000)
		for i := range t {
			t[i] = z.next()
			if rng.IntN(5) == 0 {
				t[i] = 1<<51 + uint64(i)
			}
		}
		return t
	}
	tick := func(pages, sparse, rounds int) []uint64 {
		z := newZipf(pages, 0.9, rng)
		var t []uint64
		for range rounds {
			for p := range pages {
				t = append(t, uint64(p)*2654435761%4294967311)
			}
			for range sparse {
				t = append(t, z.next())
			}
		}
		return t
	}
	phases := append(append(append(draw(20000, 1.0, 100000), loop(5000, 100000)...), draw(20000, 0.9, 100000)...),
		scan()[:100000]...)
	drift := func() []uint64 { // The popular pages change slowly.
		z := newZipf(20000, 1.0, rng)
		t := make([]uint64, 300000)
		for i := range t {
			t[i] = z.next() + uint64(i/10000)<<33
			if rng.IntN(2) == 0 {
				t[i] = z.next()
			}
		}
		return t
	}
	return []row{
		{"zipf 0.9", draw(100000, 0.9, 400000), []int{1000, 5000, 20000}},
		{"zipf 1.0", draw(100000, 1.0, 400000), []int{1000, 5000, 20000}},
		{"zipf 0.9 and scans", scan(), []int{1000, 5000, 20000}},
		{"zipf 0.9 and strays", sprinkled(), []int{1000, 5000}},
		{"loop 10000", loop(10000, 200000), []int{1000, 5000, 9000}},
		{"swarm tick", tick(10000, 5000, 15), []int{1000, 5000, 8000}},
		{"swarm tick, sparse", tick(5000, 20000, 10), []int{500, 2000, 4000}},
		{"phases", phases, []int{1000, 4000}},
		{"drift", drift(), []int{500, 2000, 8000}},
	}
}
