package agents

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// twenty is a circuit of 4 qubits and 20 gates, and bits that are not in the order of its qubits.
const twenty = `OPENQASM 3.0;
include "stdgates.inc";
input float a;
input float b;
qubit[4] q;
bit[3] c;
ry(a) q[0]; ry(b) q[1]; rx(a - b) q[2]; h q[3];
cx q[0], q[1]; cx q[1], q[2]; cx q[2], q[3]; cz q[3], q[0];
ry(b) q[0]; ry(a) q[1]; rz(b) q[2]; ry(a) q[3];
cx q[0], q[1]; cx q[1], q[2]; cx q[2], q[3]; crz(a) q[3], q[0];
ry(a) q[0]; ry(b) q[1]; ry(a) q[2]; t q[3];
c[0] = measure q[2];
c[1] = measure q[0];
c[2] = measure q[3];
`

func quantumCell(t testing.TB, text string, features int) *cells.Addressed {
	t.Helper()
	cell, err := cells.AddressQuantum(text, map[string]float64{"a": 0.7, "b": 1.9}, 50, features,
		cells.Voting{Rule: kernels.RulePlurality})
	testkit.NoError(t, "AddressQuantum", err)
	return cell
}

// plainAgent is an agent of twenty in plain Go.
type plainAgent struct {
	id    uint32
	seed  uint64
	gates *circuit.Circuit // without measurements
	state []complex128
	draws uint32
	vote  int // -1: none
}

// observe prepares the state by RY.
func (p *plainAgent) observe(angles []float32) {
	p.state = make([]complex128, 16)
	for r := range p.state {
		a := 1.0
		for q := range 4 {
			angle := 0.0
			if q < len(angles) {
				angle = float64(angles[q])
			}
			if sin, cos := math.Sincos(angle / 2); r>>q&1 == 1 {
				a *= sin
			} else {
				a *= cos
			}
		}
		p.state[r] = complex(a, 0)
	}
	p.draws++
	p.draw(uint64(p.draws))
}

func (p *plainAgent) tick(t testing.TB, n int) {
	t.Helper()
	for range n {
		if p.state == nil {
			p.observe(nil)
			p.draws--
		}
		var err error
		p.state, _, err = circuittest.RunFrom(p.state, p.gates, []float64{0.7, 1.9}, nil)
		testkit.NoError(t, "RunFrom", err)
		p.draws++
	}
	p.draw(uint64(p.draws))
}

func (p *plainAgent) draw(number uint64) {
	random := kernels.Philox([2]uint32{uint32(p.seed), uint32(p.seed >> 32)},
		[4]uint32{0, p.id, uint32(number), uint32(number >> 32)})[0]
	at, sum, index := float64(random)/(1<<32), 0.0, 0
	for r, a := range p.state {
		sum += real(a)*real(a) + imag(a)*imag(a)
		if sum <= at {
			index = r + 1
		}
	}
	p.vote = index>>2&1 | index&1<<1 | index>>3&1<<2
}

// TestQuantumAgents: of a million agents, in a shard that is not the first, 100 have the
// probabilities and the ballots of a plain form, after observations, ticks and votes, in pages that
// are on the device and in few frames.
func TestQuantumAgents(t *testing.T) {
	const first = 3
	ctx, seed, n := t.Context(), uint64(0xfeed<<40|7), int64(testkit.Of(1_000_000, 100_000))
	cell, r := quantumCell(t, twenty, 2), rand.New(rand.NewPCG(1, 2))
	c, err := qasm.Parse(twenty)
	testkit.NoError(t, "qasm.Parse", err)
	c.Ops = slices.DeleteFunc(c.Ops, func(op circuit.Op) bool { return op.Kind == circuit.Measure })
	d := openNamed(t, *opentest.Name)
	open := func(o Options) *Agents {
		o.Seed = seed
		b := pages.NewBudget(o.PageMemory, o.HostPageMemory)
		a, err := NewShard(d, b, cell, n, first, first+int(n)/50, o)
		testkit.NoError(t, "NewShard", err)
		testkit.Close(t, a)
		testkit.NoError(t, "Open", a.memory.Open(ctx, nil))
		return a
	}
	few := Options{PageBytes: 64 << 10, PageMemory: 20 * 64 << 10, HostPageMemory: 1 << 30}
	all := []*Agents{open(Options{}), open(few)}
	var plain []*plainAgent
	var ids []uint32
	for range 100 {
		id := uint32(r.IntN(int(n)))
		ids = append(ids, id)
		plain = append(plain, &plainAgent{id: id + first*50, seed: seed, gates: c, vote: -1})
	}
	check := func(what string) {
		t.Helper()
		for k, a := range all {
			states, err := a.AgentStates(ctx, ids)
			testkit.NoError(t, "AgentStates", err)
			for i, p := range plain {
				if int(int8(states.Vote[i])) != p.vote {
					t.Errorf("%s, swarm %d: agent %d votes for %d, want %d", what, k, p.id, int8(states.Vote[i]),
						p.vote)
				}
				for r := range 16 {
					want := 0.0
					if p.state != nil {
						want = real(p.state[r])*real(p.state[r]) + imag(p.state[r])*imag(p.state[r])
					} else if r == 0 {
						want = 1
					}
					if got := float64(states.State[16*i+r]); math.Abs(got-want) > 1e-5 {
						t.Fatalf("%s, swarm %d: probability %d of agent %d is %v, want %v", what, k, r, p.id, got, want)
					}
				}
			}
		}
	}
	measure := func(round uint64) {
		t.Helper()
		for _, a := range all {
			testkit.NoError(t, "Measure", a.Measure(ctx, round))
		}
		for _, p := range plain {
			if p.state != nil {
				p.draw(round | 1<<63)
			}
		}
		check(fmt.Sprint("round ", round))
	}
	check("at first")
	measure(1) // nobody has stepped
	inputs := make([]float32, 2*60)
	for i := range inputs {
		inputs[i] = 4 * float32(r.NormFloat64())
	}
	for _, a := range all {
		out, err := a.Observe(ctx, ids[:60], inputs)
		if err != nil || out.Stepped != 60 {
			t.Fatalf("Observe: %d steps, %v, want 60", out.Stepped, err)
		}
	}
	for i, p := range plain[:60] {
		p.observe(inputs[2*i:][:2])
	}
	check("observed")
	measure(2)
	for _, ticks := range []int{1, 2} {
		for _, a := range all {
			if r, err := a.Tick(ctx, ticks); err != nil || r.Stepped != uint64(ticks)*uint64(n) {
				t.Fatalf("Tick: %d steps, %v", r.Stepped, err)
			}
		}
		for _, p := range plain {
			p.tick(t, ticks)
		}
		check(fmt.Sprint("after ticks ", ticks))
	}
	measure(3)
	measure(1<<40 + 5)
	for _, v := range []int{kernels.AgentVarCounts, kernels.AgentVarRound} {
		if !bytes.Equal(column(t, all[0], v), column(t, all[1], v)) {
			t.Errorf("variable %d depends on where pages are", v)
		}
	}
}

// TestQuantumBallots: ballots have the distribution of a measurement, of steps and of votes, and
// two rounds have ballots that do not depend on each other.
func TestQuantumBallots(t *testing.T) {
	const n = 20_000
	ctx, cell := t.Context(), quantumCell(t, twenty, 2)
	a := makeAgents(t, openNamed(t, *opentest.Name), cell, n, Options{Seed: 5})
	if _, err := a.Tick(ctx, 1); err != nil {
		t.Fatalf("Tick: %v", err)
	}
	found, err := a.AgentStates(ctx, []uint32{0})
	testkit.NoError(t, "AgentStates", err)
	p := make([]float64, 8)
	for r, w := range found.State {
		p[r>>2&1|r&1<<1|r>>3&1<<2] += float64(w)
	}
	votes := [][]byte{column(t, a, kernels.AgentVarVote)}
	for round := range uint64(3) {
		testkit.NoError(t, "Measure", a.Measure(ctx, round+1))
		votes = append(votes, column(t, a, kernels.AgentVarVote))
	}
	for k, of := range votes {
		square, same := 0.0, 0.0
		for c, p := range p {
			d := float64(bytes.Count(of, []byte{byte(c + 1)})) - n*p
			square += d * d / (n * p)
		}
		if square > 24.3 { // 7 degrees of freedom, one in 1,000
			t.Errorf("draw %d: chi square is %v", k, square)
		}
		chance := 0.0
		for c := range p {
			chance += p[c] * p[c]
		}
		for i, v := range of {
			if v == votes[(k+1)%len(votes)][i] {
				same++
			}
		}
		if deviation := math.Sqrt(n * chance * (1 - chance)); math.Abs(same-n*chance) > 4*deviation {
			t.Errorf("draws %d and %d: %v ballots are the same, want about %v", k, k+1, same, n*chance)
		}
	}
}

// TestQuantumNorm: many ticks leave the norm at 1.
func TestQuantumNorm(t *testing.T) {
	a := makeAgents(t, openNamed(t, *opentest.Name), quantumCell(t, twenty, 2), 50, Options{})
	if _, err := a.Tick(t.Context(), testkit.Of(1_000_000, 20_000)); err != nil {
		t.Fatalf("Tick: %v", err)
	}
	found, err := a.AgentStates(t.Context(), []uint32{7})
	testkit.NoError(t, "AgentStates", err)
	sum := 0.0
	for _, p := range found.State {
		sum += float64(p)
	}
	if math.Abs(sum-1) > 0x1.1p-12 {
		t.Errorf("the norm is %v, want 1", sum)
	}
}

// TestQuantumFresh: a circuit that begins with resets gives each tick the same state and other
// ballots.
func TestQuantumFresh(t *testing.T) {
	cell := quantumCell(t, "input float a; input float b; qubit[2] q; bit[2] c; reset q; U(pi/2, 0, pi) q; "+
		"c = measure q;", 1)
	a := makeAgents(t, openNamed(t, *opentest.Name), cell, 1000, Options{})
	seen := map[string]bool{}
	for _, ticks := range []int{1, 1, 2} {
		if _, err := a.Tick(t.Context(), ticks); err != nil {
			t.Fatalf("Tick: %v", err)
		}
		found, err := a.AgentStates(t.Context(), []uint32{999})
		testkit.NoError(t, "AgentStates", err)
		for _, p := range found.State {
			if math.Abs(float64(p)-0.25) > 1e-6 {
				t.Errorf("probabilities are %v, want a quarter each", found.State)
			}
		}
		seen[string(column(t, a, kernels.AgentVarVote))] = true
	}
	if len(seen) != 3 {
		t.Errorf("three ticks have %d sets of ballots, want 3", len(seen))
	}
}

// BenchmarkQuantumTick is a tick of a million agents of 4 qubits and 20 gates, with ballots,
// decisions and the tally. copy-% is the share of the rate of a copy that moves the bytes of their
// amplitudes. Run it with -benchtime 30x.
func BenchmarkQuantumTick(b *testing.B) {
	d, ctx := openNamed(b, *opentest.Name), context.Background()
	for _, name := range []string{"20-gates", "measure"} {
		b.Run(name, func(b *testing.B) {
			n := scaled(d, 1_000_000)
			cell, err := cells.AddressQuantum(twenty, map[string]float64{"a": 0.7, "b": 1.9}, 250, 2, cells.Voting{})
			testkit.NoError(b, "AddressQuantum", err)
			a := makeAgents(b, d, cell, n, Options{})
			if _, err := a.Tick(ctx, 1); err != nil {
				b.Fatalf("Tick: %v", err)
			}
			size := n * 128
			steps := map[string]int{"20-gates": 1, "measure": 0}[name]
			measured(b, a, 2*size, func(i int) {
				var err error
				if steps == 0 {
					err = a.Measure(ctx, uint64(i))
				} else {
					_, err = a.Tick(ctx, 1)
				}
				testkit.NoError(b, "Tick", err)
			}, func(int) error {
				return a.launchTick(ctx, a.memory.All()[0].Pages, steps, kernels.AgentTickPublish, false)
			})
			from, err := d.Alloc(size, "copy")
			testkit.NoError(b, "Alloc", err)
			defer from.Close()
			to, err := d.Alloc(size, "copy")
			testkit.NoError(b, "Alloc", err)
			defer to.Close()
			var took []time.Duration
			for range b.N + 3 {
				start, err := d.NewEvent()
				testkit.NoError(b, "NewEvent", err)
				end, err := d.NewEvent()
				testkit.NoError(b, "NewEvent", err)
				testkit.NoError(b, "Record", a.stream.Record(start))
				testkit.NoError(b, "Copy", a.stream.Copy(to, 0, from, 0, size))
				testkit.NoError(b, "Record", a.stream.Record(end))
				testkit.NoError(b, "Sync", a.stream.Sync(ctx))
				of, err := end.Since(start)
				testkit.NoError(b, "Since", err)
				took = append(took, of)
				testkit.NoError(b, "Close", start.Close())
				testkit.NoError(b, "Close", end.Close())
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "copy-us")
		})
	}
}
