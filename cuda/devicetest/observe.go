package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// Cell is what the suite must know of a cell to run its observe kernel, for groups of one size.
type Cell struct {
	// Kernel is the name of the observe kernel.
	Kernel string
	// Vars are the state variables.
	Vars []kernels.Var
	// Params and Weights are the kernel's arguments of those names.
	Params  []uint32
	Weights []float32
	// Inputs and Candidates are the widths of an observation's features and counts.
	Inputs, Candidates int
	// Threads are the block sizes to compare; nil: 32, 128 and 256.
	Threads []int
	// Shared is the dynamic shared memory of a block in bytes.
	Shared int
	// Feature draws one feature; nil: the normal distribution, with an outlier now and then.
	Feature func(r *rand.Rand) float32
}

// Agents are the group sizes that RunObserve takes: around a warp, around a block, and past
// the largest block.
var Agents = []int{1, 31, 32, 33, 64, 256, 300, 1024, 1500}

// RunObserve runs the observe kernel of a cell on the device under test and on the host device, and
// requires the same bits: every output and every byte of every page, after each of several batches,
// at groups of each size of ObserveAgents, in slots at the start, the middle and the end of several
// pages, with several runs a batch, at each block size. It also requires that a batch cut into
// single observations leaves the same bits.
func RunObserve(t *testing.T, open launches.Opener, cell func(agents int) Cell) {
	dev, ref := launches.Open(t, open), launches.Reference(t)
	for _, agents := range Agents {
		if testing.Short() && agents > 33 && agents != 300 {
			continue // compute-sanitizer takes minutes for one of those
		}
		c := cell(agents)
		if c.Threads == nil {
			c.Threads = []int{32, 128, 256}
		}
		if c.Feature == nil {
			c.Feature = normalFeature
		}
		t.Run(fmt.Sprintf("%s/%d", c.Kernel, agents), func(t *testing.T) { compareObserve(t, dev, ref, c, agents) })
	}
}

// Observation is one launch of an observe kernel: its runs, and the observations that they address.
type Observation struct {
	Runs     []kernels.Run
	Times    []int64
	Features []float64
}

// observeFrames is the number of page frames in the comparison.
const observeFrames = 3

// compareObserve compares the device under test with the reference, for groups of one size: the
// same batches at every block size, and one observation at a time.
func compareObserve(t *testing.T, dev, ref device.Device, c Cell, agents int) {
	layout := observeLayout(t, c.Vars, agents)
	r := rand.New(rand.NewPCG(uint64(agents), 9))
	batches := make([]Observation, testkit.Of(4, 2))
	clock := make([]int64, observeFrames*layout.Slots)
	for i := range batches {
		batches[i] = randomObservation(r, c, layout, clock)
	}

	need := make([][][]byte, len(batches))
	host := newObserver(t, ref, c, layout, false)
	for i, b := range batches {
		need[i] = host.observe(t, b, c.Threads[0])
	}
	for k, threads := range c.Threads {
		o := newObserver(t, dev, c, layout, k%2 == 1) // of some, a frame is in host memory
		for i, b := range batches {
			got := o.observe(t, b, threads)
			for j, name := range observeOutputs {
				if err := launches.EqualWithin(got[j], need[i][j], 0); err != nil {
					t.Fatalf("block %d, batch %d: %s: %v", threads, i, name, err)
				}
			}
		}
	}
	// Batches are for speed only: single observations must leave the same bits.
	single := newObserver(t, dev, c, layout, true)
	for i, b := range batches {
		cut := single.observeSingly(t, b, c.Threads[0])
		for j, name := range observeOutputs {
			if err := launches.EqualWithin(cut[j], need[i][j], 0); err != nil {
				t.Fatalf("one observation at a time, batch %d: %s: %v", i, name, err)
			}
		}
	}
}

// observeLayout returns the layout of the smallest page, a power of two in bytes, that holds three
// groups or more.
func observeLayout(t *testing.T, vars []kernels.Var, agents int) kernels.Layout {
	t.Helper()
	for size := 4096; size <= 256<<20; size *= 2 {
		if l, err := kernels.NewLayout(vars, agents, size); err == nil && l.Slots >= 3 {
			return l
		}
	}
	t.Fatalf("no page of 256 MiB or less holds three groups of %d agents", agents)
	return kernels.Layout{}
}

// randomObservation returns runs of 1 to 9 observations for some of the groups, including the first
// and the last of all and the last and the first of neighbouring pages. clock has the last time of
// each group, in nanoseconds, and is advanced. Some observations of a group have the same time, and
// some come late.
func randomObservation(r *rand.Rand, c Cell, l kernels.Layout, clock []int64) Observation {
	var o Observation
	groups := r.Perm(len(clock))[:min(len(clock), 12)]
	for _, edge := range []int{0, len(clock) - 1, l.Slots - 1, l.Slots} {
		if !slices.Contains(groups, edge) {
			groups = append(groups, edge)
		}
	}
	for _, g := range groups {
		count := 1 + r.IntN(9)
		o.Runs = append(o.Runs, kernels.Run{
			Frame: uint32(g / l.Slots), Slot: uint32(g % l.Slots),
			First: uint32(len(o.Times)), Count: uint32(count), Group: uint32(g),
		})
		for range count {
			if clock[g] == 0 {
				clock[g] = 1_700_000_000_000_000_000 + r.Int64N(1e12)
			} else if r.IntN(8) > 0 {
				clock[g] += 1 + r.Int64N(10_000_000_000)
			}
			if r.IntN(6) == 0 { // another half hour, or another day
				clock[g] += r.Int64N(100_000_000_000_000)
			}
			at := clock[g]
			if r.IntN(8) == 0 {
				at -= 1 + r.Int64N(10_000_000_000)
			}
			o.Times = append(o.Times, at)
			for range c.Inputs {
				o.Features = append(o.Features, float64(c.Feature(r))+float64(g%3)*1e12)
			}
		}
	}
	return o
}

// normalFeature draws from the normal distribution, with an outlier or a zero now and then.
func normalFeature(r *rand.Rand) float32 {
	v := r.NormFloat64()
	switch r.IntN(20) {
	case 0:
		v *= 100
	case 1:
		v = 0
	}
	return float32(v)
}

// observeOutputs are the names of the outputs that observe returns, in order.
var observeOutputs = []string{"scores", "decisions", "counts", "leaders", "rounds", "pages"}

// observer holds the pages and the constant arguments of one device between batches.
type observer struct {
	dev             device.Device
	cell            Cell
	layout          kernels.Layout
	kernel          device.Kernel
	stream          device.Stream
	pages           device.Buffer
	host            device.HostBuffer
	inHost          bool // frame 1 is in host memory
	table, par, wts device.Buffer
}

// newObserver uploads the constant arguments and makes empty pages. With inHost, frame 1 is in host
// memory.
func newObserver(t *testing.T, d device.Device, c Cell, l kernels.Layout, inHost bool) *observer {
	t.Helper()
	o := &observer{
		inHost: inHost, dev: d, cell: c, layout: l, kernel: launches.FindKernel(t, d, c.Kernel),
		stream: launches.NewStream(t, d),
	}
	o.pages = launches.Upload(t, d, make([]byte, observeFrames*l.PageBytes))
	var err error
	if o.host, err = d.AllocHost(int64(observeFrames*l.PageBytes), "frames in host memory"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.host.Close(); err != nil {
			t.Error(err)
		}
	})
	clear(o.host.Bytes())
	o.table = launches.Upload(t, d, device.Bytes(l.Table()))
	o.par = launches.Upload(t, d, device.Bytes(c.Params))
	o.wts = launches.Upload(t, d, device.Bytes(c.Weights))
	return o
}

func (o *observer) observe(t *testing.T, b Observation, threads int) [][]byte {
	t.Helper()
	return append(o.launch(t, b, threads), o.frames(t))
}

func (o *observer) frames(t *testing.T) []byte {
	t.Helper()
	all, size := launches.Download(t, o.pages), o.layout.PageBytes
	if o.inHost {
		if bytes.Count(all[size:2*size], []byte{0}) != size {
			t.Fatal("a frame on the device was written in place of one in host memory")
		}
		copy(all[size:2*size], o.host.Bytes()[size:])
	}
	return all
}

// launch launches one batch and returns the outputs without the pages. It ends the test if the
// kernel writes around its parameters.
func (o *observer) launch(t *testing.T, b Observation, threads int) [][]byte {
	t.Helper()
	n := len(b.Times)
	words := make([]uint32, 0, 4*len(b.Runs))
	for _, r := range b.Runs {
		if o.inHost && r.Frame == 1 {
			r.Frame |= 1 << kernels.RunHostBit
		}
		words = r.Words(words)
	}
	// The outputs in the order of observeOutputs, without the pages.
	sizes := []int{4 * n, 4 * n, 4 * n * o.cell.Candidates, 4 * n, 8 * n}
	args := []device.Arg{
		device.Ptr(o.pages), device.Uint64(uint64(o.layout.PageBytes)), device.Ptr(o.table),
		device.Ptr(o.par), device.Ptr(o.wts),
	}
	// take allocates a parameter between two guards.
	var buffers []device.Buffer
	take := func(size int64, data []byte) {
		b, err := o.dev.Alloc(size+2*launches.Guard, "observe")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Fill(0, b.Size(), launches.Poison); err != nil {
			t.Fatal(err)
		}
		launches.Write(t, b, launches.Guard, data)
		buffers = append(buffers, b)
		args = append(args, device.Range(b, launches.Guard, size))
	}
	for _, in := range [][]byte{device.Bytes(words), device.Bytes(b.Times), device.Bytes(b.Features)} {
		take(int64(len(in)), in)
	}
	for _, size := range sizes {
		take(int64(size), nil)
	}
	args = append(args, device.Mapped(o.host, 0, o.host.Size()))
	shape := device.Geometry{Grid: len(b.Runs), Block: threads, Shared: o.cell.Shared}
	launches.Start(t, o.stream, o.kernel, shape, args...)
	launches.Wait(t, o.stream)
	var out [][]byte
	for i, buf := range buffers {
		whole := launches.Download(t, buf)
		end := len(whole) - launches.Guard
		if launches.CountOther(whole[:launches.Guard])+launches.CountOther(whole[end:]) > 0 {
			t.Fatalf("%s, block %d: bytes around parameter %d were overwritten", o.cell.Kernel, threads, i+5)
		}
		if i >= 3 {
			out = append(out, whole[launches.Guard:end])
		}
		if err := buf.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// observeSingly launches each observation of a batch by itself, in an order that keeps the order of
// each group, and returns the outputs in the batch's order.
func (o *observer) observeSingly(t *testing.T, b Observation, threads int) [][]byte {
	t.Helper()
	var out [][]byte
	for _, run := range b.Runs {
		for i := run.First; i < run.First+run.Count; i++ {
			one := Observation{
				Runs:     []kernels.Run{{Frame: run.Frame, Slot: run.Slot, Count: 1, Group: run.Group}},
				Times:    b.Times[i : i+1],
				Features: b.Features[int(i)*o.cell.Inputs : int(i+1)*o.cell.Inputs],
			}
			got := o.launch(t, one, threads)
			if out == nil {
				out = make([][]byte, len(got))
			}
			for j := range got {
				out[j] = append(out[j], got[j]...)
			}
		}
	}
	return append(out, o.frames(t))
}
