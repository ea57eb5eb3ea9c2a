package quantum

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var benchQubits = flag.Int("qubits", 0, "qubits of the benchmarks; 0: 30, and 24 on the host device")

// bench is a simulator with a state, for times on the device.
type bench struct {
	*testing.B
	s        *Simulator
	v        *vector
	qubits   int
	from, to device.Event
}

// newBench opens the device. Sizes that do not fit are skipped.
func newBench(b *testing.B, qubits int) *bench {
	d := opentest.Open(b, *opentest.Name, cuda.Options{})
	s, err := New(d, Options{MaxQubits: circuit.MaxQubits})
	testkit.NoError(b, "New", err)
	testkit.Close(b, s)
	if qubits == 0 {
		if qubits = *benchQubits; qubits == 0 {
			qubits = 30
		}
	}
	if d.Properties().ComputeMajor == 0 {
		qubits = min(qubits, 24)
	}
	if err := s.room(qubits); err != nil {
		b.Skip(err)
	}
	n := &bench{B: b, s: s, qubits: qubits}
	n.v, err = s.newVector(1, qubits)
	testkit.NoError(b, "newVector", err)
	b.Cleanup(func() { testkit.NoError(b, "close", n.v.close()) })
	n.from, err = d.NewEvent()
	testkit.NoError(b, "NewEvent", err)
	testkit.Close(b, n.from)
	n.to, err = d.NewEvent()
	testkit.NoError(b, "NewEvent", err)
	testkit.Close(b, n.to)
	n.run(n.scrambled()) // random amplitudes: zeros would be faster
	return n
}

// scrambled is a circuit after which no amplitude is 0.
func (n *bench) scrambled() *program {
	return n.lower(build(n, n.qubits, 0).scramble(rand.New(rand.NewPCG(1, 1))), true)
}

func (n *bench) lower(c *builder, fresh bool) *program {
	p, err := lower(&c.Circuit, identity(n.qubits), n.v.qubits, lowerOptions{n.s.unplanned, fresh})
	testkit.NoError(n, "lower", err)
	return p
}

func (n *bench) run(p *program) {
	r := &rowsOf{v: n.v, inputs: [][]float64{nil}, bits: []uint64{0}}
	testkit.NoError(n, "apply", n.s.apply(n.Context(), p, r))
	testkit.NoError(n, "Sync", n.s.stream.Sync(n.Context()))
	testkit.NoError(n, "forget", n.v.forget())
}

// time returns the median time of f on the device in seconds, over b.N calls and three at least.
func (n *bench) time(f func()) float64 {
	f()
	var all []time.Duration
	host := n.s.d.Properties().ComputeMajor == 0
	for range max(3, n.N) {
		testkit.NoError(n, "Record", n.s.stream.Record(n.from))
		began := time.Now()
		f()
		testkit.NoError(n, "Record", n.s.stream.Record(n.to))
		testkit.NoError(n, "Sync", n.s.stream.Sync(n.Context()))
		took, err := n.to.Since(n.from)
		testkit.NoError(n, "Since", err)
		if host {
			took = time.Since(began)
		}
		all = append(all, took)
		testkit.NoError(n, "forget", n.v.forget())
	}
	slices.Sort(all)
	return all[len(all)/2].Seconds()
}

// program returns the time of the passes of a circuit on the device, and their number.
func (n *bench) program(c *builder) (seconds float64, passes int) {
	p := n.lower(c, false)
	g := &p.segments[0]
	return n.time(func() { testkit.NoError(n, "passes", n.s.passes(n.Context(), g, n.v, nil)) }), len(g.passes)
}

// copy returns the time of a copy within the state that moves as many bytes as a pass: by all
// cores, if the device is the host.
func (n *bench) copy() float64 {
	half := n.v.buffer.Size() / 2
	if n.s.d.Properties().ComputeMajor == 0 {
		from, to := bytes.Repeat([]byte{1}, int(half)), bytes.Repeat([]byte{2}, int(half))
		parts := 4 * runtime.GOMAXPROCS(0)
		return 2 * n.time(func() {
			var wg sync.WaitGroup
			for i := range parts {
				wg.Go(func() {
					first, end := i*len(from)/parts, (i+1)*len(from)/parts
					copy(to[first:end], from[first:end])
				})
			}
			wg.Wait()
		})
	}
	return 2 * n.time(func() {
		testkit.NoError(n, "Copy", n.s.stream.Copy(n.v.buffer, half, n.v.buffer, 0, half))
	})
}

// BenchmarkGate: the time of one gate, and copy-% is its share of the rate of a copy. A controlled
// gate has the share of a gate.
func BenchmarkGate(b *testing.B) {
	n := newBench(b, 0)
	copied := n.copy()
	last := n.qubits - 1
	for _, gate := range []struct {
		name   string
		angles []float64
	}{{"h", nil}, {"u3", []float64{1, 2, 3}}, {"rx", []float64{1}}, {"rz", []float64{1}}, {"x", nil}, {"t", nil}} {
		for _, target := range []int{0, 1, 2, 3, 4, 5, 8, 11, 12, 16, 20, 24, last - 1, last} {
			if target > last {
				continue
			}
			b.Run(fmt.Sprintf("%s/target=%d", gate.name, target), func(b *testing.B) {
				n.B = b
				took, _ := n.program(build(b, n.qubits, 0).gate(gate.name, gate.angles, target))
				b.ReportMetric(took*1e3, "device-ms")
				b.ReportMetric(100*copied/took, "copy-%")
			})
		}
	}
	n.B = b
	whole, _ := n.program(build(n, n.qubits, 0).add("h", last))
	for _, pair := range [][2]int{{last, 0}, {0, last}, {4, last}, {last, last - 1}, {12, 5}, {5, 12}, {last, 3}} {
		for _, gate := range []string{"cx", "ch"} {
			b.Run(fmt.Sprintf("%s/control=%d/target=%d", gate, pair[0], pair[1]), func(b *testing.B) {
				n.B = b
				took, _ := n.program(build(b, n.qubits, 0).add(gate, pair[0], pair[1]))
				b.ReportMetric(took*1e3, "device-ms")
				b.ReportMetric(100*took/whole, "gate-%")
			})
		}
	}
}

// BenchmarkCircuit: large circuits, planned and gate by gate. passes-% is the rate of the passes as
// a share of the rate of a copy.
func BenchmarkCircuit(b *testing.B) {
	layers := func(depth int) func(c *builder) *builder {
		return func(c *builder) *builder {
			r := rand.New(rand.NewPCG(2, 2))
			for range depth {
				c.scramble(r)
				for q := 0; q+1 < c.Qubits; q += 2 {
					c.add("cx", q, q+1)
				}
			}
			return c
		}
	}
	for _, c := range []struct {
		name   string
		qubits int // 0: of the flag
		make   func(c *builder) *builder
		single bool
	}{
		{"dense1", 0, layers(1), false},
		{"dense2", 0, layers(2), false},
		{"dense4", 0, layers(4), false},
		{"qft", 29, (*builder).qft, false},
		{"qft-single", 29, (*builder).qft, true},
		{"qft-basic", 29, (*builder).basicQFT, false},
		{"qft-basic-single", 29, (*builder).basicQFT, true},
		{"ising", 33, (*builder).ising, false},
		{"ising", 34, (*builder).ising, false},
	} {
		b.Run(fmt.Sprintf("%s/qubits=%d", c.name, c.qubits), func(b *testing.B) {
			n := newBench(b, c.qubits)
			copied := n.copy()
			n.s.unplanned = c.single
			took, passes := n.program(c.make(build(b, n.qubits, 0)))
			b.ReportMetric(took*1e3, "device-ms")
			b.ReportMetric(float64(passes), "passes")
			b.ReportMetric(100*copied*float64(passes)/took, "passes-%")
		})
	}
}

// BenchmarkPass: a gate on each of some neighbours, which a pass has with the lowest qubits.
func BenchmarkPass(b *testing.B) {
	n := newBench(b, 0)
	copied := n.copy()
	for _, first := range []int{4, n.qubits / 2, n.qubits - 8} {
		for _, count := range []int{2, 6, 7, 8} {
			for gate, angles := range map[string][]float64{"x": nil, "u3": {1, 2, 3}} {
				b.Run(fmt.Sprintf("%s/first=%d/count=%d", gate, first, count), func(b *testing.B) {
					n.B = b
					c := build(b, n.qubits, 0)
					for q := range count {
						c.gate(gate, angles, first+q)
					}
					took, passes := n.program(c)
					b.ReportMetric(took*1e3, "device-ms")
					b.ReportMetric(100*copied*float64(passes)/took, "copy-%")
				})
			}
		}
	}
}

// BenchmarkSample: shots of a random state. passes is the time in passes of a gate.
func BenchmarkSample(b *testing.B) {
	n := newBench(b, 0)
	gate, _ := n.program(build(b, n.qubits, 0).add("h", n.qubits-1))
	for _, shots := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("shots=%d", shots), func(b *testing.B) {
			n.B = b
			r := &rowsOf{v: n.v, inputs: [][]float64{nil}, bits: []uint64{0}, seed: 5}
			reads := allReads(identity(n.qubits), n.v.qubits)
			took := n.time(func() {
				samples, _, err := n.s.samples(b.Context(), r, shots, reads)
				testkit.NoError(b, "samples", err)
				if len(samples) != shots {
					b.Fatalf("%d samples", len(samples))
				}
			})
			b.ReportMetric(took*1e3, "ms")
			b.ReportMetric(took/gate, "passes")
		})
	}
}

// BenchmarkExpect: Pauli strings of a chain: all of Z Z, and one X.
func BenchmarkExpect(b *testing.B) {
	n := newBench(b, 0)
	gate, _ := n.program(build(b, n.qubits, 0).add("h", n.qubits-1))
	chain := func(letters string, count int) (all []string) {
		for q := range count {
			text := make([]byte, n.qubits)
			for k := range text {
				text[k] = 'I'
			}
			copy(text[q:], letters)
			all = append(all, string(text))
		}
		return all
	}
	for name, paulis := range map[string][]string{"zz": chain("ZZ", n.qubits-1), "x": chain("X", 1)} {
		b.Run(name, func(b *testing.B) {
			n.B = b
			took := n.time(func() {
				_, err := n.s.expectations(b.Context(), n.v, 1, paulis, identity(n.qubits))
				testkit.NoError(b, "expectations", err)
			})
			b.ReportMetric(took*1e3, "ms")
			b.ReportMetric(took/gate, "passes")
		})
	}
}

// BenchmarkSmall: circuits of 10 qubits and 100 gates, each with angles of its own, and their
// expectation values. device-ms is the time of the passes, and TB/s-shared the bytes that a gate
// would read and write in shared memory, of each gate by itself: an H200 has some 30.
func BenchmarkSmall(b *testing.B) {
	const qubits, gates = 10, 100
	d := opentest.Open(b, *opentest.Name, cuda.Options{})
	circuits := 100_000
	if d.Properties().ComputeMajor == 0 {
		circuits = 100
	}
	s, err := New(d, Options{})
	testkit.NoError(b, "New", err)
	testkit.Close(b, s)
	r := rand.New(rand.NewPCG(3, 3))
	c := build(b, qubits, 0)
	for i := range gates {
		c.Inputs = append(c.Inputs, fmt.Sprintf("a%d", i))
		if i%10 < 7 {
			c.symbolic([]string{"ry", "rx", "rz"}[r.IntN(3)], []circuit.Angle{circuit.Input(i)}, i%qubits)
		} else {
			c.add("cx", i%qubits, (i+1+r.IntN(qubits-1))%qubits)
		}
	}
	inputs := make([][]float64, circuits)
	for i := range inputs {
		inputs[i] = make([]float64, gates)
		for k := range inputs[i] {
			inputs[i][k] = r.Float64() * 2 * math.Pi
		}
	}
	batch := Batch{Circuit: &c.Circuit, Inputs: inputs, Expect: []string{"ZZIIIIIIII"}}
	b.Run("batch", func(b *testing.B) {
		for b.Loop() {
			testkit.NoError(b, "RunBatch", s.RunBatch(b.Context(), batch, func(int, *Row) error { return nil }))
		}
		b.ReportMetric(float64(circuits)*float64(b.N)/b.Elapsed().Seconds(), "circuits/s")
	})
	b.Run("device", func(b *testing.B) {
		n := &bench{B: b, s: s, qubits: qubits}
		var err error
		n.v, err = s.newVector(int64(circuits), qubits)
		testkit.NoError(b, "newVector", err)
		defer func() { testkit.NoError(b, "close", n.v.close()) }()
		for _, e := range []*device.Event{&n.from, &n.to} {
			*e, err = d.NewEvent()
			testkit.NoError(b, "NewEvent", err)
			testkit.Close(b, *e)
		}
		p, err := lower(&c.Circuit, identity(qubits), n.v.qubits, lowerOptions{fresh: true})
		testkit.NoError(b, "lower", err)
		g := &p.segments[0]
		matrices, err := d.Alloc(matrixBytes*int64(g.recipes.slots)*n.v.rows, purpose)
		testkit.NoError(b, "Alloc", err)
		testkit.Close(b, matrices)
		testkit.NoError(b, "Fill", matrices.Fill(0, matrices.Size(), 0))
		took := n.time(func() { testkit.NoError(b, "passes", s.passes(b.Context(), g, n.v, matrices)) })
		moved := 16 * float64(gates) * float64(int64(circuits)<<qubits)
		b.ReportMetric(took*1e3, "device-ms")
		b.ReportMetric(float64(circuits)/took, "circuits/s")
		b.ReportMetric(moved/took/1e12, "TB/s-shared")
	})
}
