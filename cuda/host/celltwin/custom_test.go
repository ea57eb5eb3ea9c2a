package celltwin

import (
	"bytes"
	"encoding/csv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	spec "github.com/exoswarm/exoswarm/gpuagents/swarm"
)

func bindCustom(t testing.TB, of celltest.Cell, agents, features int, v cells.Voting) *cells.Bound {
	t.Helper()
	c, err := cells.Custom(of.State, of.Params, of.Step, of.Candidates)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Bind(of.Params, agents, features, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func customEmulator(t *testing.T, c *cells.Cell) string {
	t.Helper()
	return emulatorOf(t, kernels.Source{
		Name: c.Kernel, File: c.Kernel + ".cu",
		Code: c.Source + "\nusing exoswarm_frame::Run;\n",
	})
}

// customBatch is observations of several groups of one page, some of them hostile.
func customBatch(rng *rand.Rand, slots, features int, hostile bool) (runs []kernels.Run, times []int64, x []float32) {
	for _, slot := range rng.Perm(min(slots, 3))[:2] {
		n := 30 + rng.IntN(30)
		runs = append(runs, kernels.Run{Slot: uint32(slot), First: uint32(len(times)), Count: uint32(n)})
		for _, e := range randomEvents(rng, n, 1, features) {
			times, x = append(times, e.time), append(x, e.features...)
			if k := len(times) - 1 - rng.IntN(4); hostile && k >= int(runs[len(runs)-1].First) {
				times[len(times)-1] = times[k] // late, or a duplicate
			}
			if hostile && rng.IntN(20) == 0 {
				x[len(x)-1] = hostileValue(rng)
			}
		}
	}
	return runs, times, x
}

// values are the bytes of a variable in the slots of a page that are in use.
func (s *swarm) values(name string) (out []byte) {
	for i, v := range s.layout.Vars {
		if v.Name != name {
			continue
		}
		n := v.Width * v.Elem.Bytes() * s.layout.Agents
		if v.Group {
			n /= s.layout.Agents
		}
		for c := range v.Width {
			part := n / v.Width
			for slot := range 3 {
				at := int(s.layout.Offsets[i]) + (c*s.layout.Slots+slot)*part
				out = append(out, s.page[at:][:part]...)
			}
		}
	}
	return out
}

// TestCustomEqualsBuiltIn runs built-in cells, written as custom ones and compiled for the CPU, and
// the built-in cells: the same outputs and the same state, to the bit.
func TestCustomEqualsBuiltIn(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	for name, own := range map[string]celltest.Cell{"leaky": celltest.Leaky(20), "lif": celltest.Lif(20)} {
		t.Run(name, func(t *testing.T) {
			program, loud := "", 0
			for i, size := range []struct{ agents, threads, features int }{
				{5, 1, 64},
				{7, 7, 1},
				{33, 12, 3},
				{70, 32, 1},
			} {
				rule := cells.Voting{Rule: kernels.Rule(i % 5), Quorum: 0.6}
				b := bindCustom(t, own, size.agents, size.features, rule)
				if program == "" {
					program = customEmulator(t, b.Cell)
				}
				twin := bind(t, name, map[string]float64{"warmup": 20}, size.agents, size.features, rule)
				b.Drop, twin.Drop = kernels.Drop(i%4), kernels.Drop(i%4)
				builtIn, custom := newSwarm(t, twin, 1<<18), newSwarm(t, b, 1<<18)
				rng := rand.New(rand.NewPCG(uint64(size.agents), 3))
				for batch := range 2 {
					runs, times, x := customBatch(rng, custom.layout.Slots, size.features, true)
					want, got := builtIn.observe(runs, times, x),
						custom.emulate(t, program, size.threads, runs, times, doubles(x))
					if !got.equal(want) {
						t.Errorf("%+v, batch %d: other outputs than the built-in cell's", size, batch)
					}
					for _, v := range builtIn.layout.Vars {
						if !bytes.Equal(custom.values(v.Name), builtIn.values(v.Name)) {
							t.Errorf("%+v, batch %d: another %s than the built-in cell's", size, batch, v.Name)
						}
					}
					for n, d := range want.decisions {
						if d != kernels.VoteNormal && want.scores[n] > 0 {
							loud++
						}
					}
				}
			}
			if loud == 0 {
				t.Error("nothing but normal: the comparison proves nothing")
			}
		})
	}
}

// TestCustomEqualsTwin runs a cell with variables of every type and its Go twin, in one batch and
// in single observations.
func TestCustomEqualsTwin(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	program := ""
	for _, size := range []struct {
		agents, threads, features int
		rule                      kernels.Rule
	}{{1, 32, 1, kernels.RuleWeighted}, {40, 7, 2, kernels.RuleWeighted}, {33, 64, 1, kernels.RuleQuorum}} {
		b := bindCustom(t, celltest.Oscillator(), size.agents, size.features,
			cells.Voting{Rule: size.rule, Quorum: 0.5})
		if program == "" {
			program = customEmulator(t, b.Cell)
		}
		s := newSwarm(t, b, 1<<18)
		const seed = 0xFEDCBA9876543210
		s.table = b.Weights(seed)
		twins := [3]*celltest.OscillatorTwin{}
		for i := range twins {
			twins[i] = celltest.NewOscillator(size.agents, seed, size.rule, 1<<15)
		}
		rng := rand.New(rand.NewPCG(uint64(size.agents), 4))
		decided := map[uint32]bool{}
		for batch := range 2 {
			runs, times, x := customBatch(rng, s.layout.Slots, size.features, false)
			got := s.emulate(t, program, size.threads, runs, times, doubles(x))
			for _, r := range runs {
				for n := int(r.First); n < int(r.First+r.Count); n++ {
					want := twins[r.Slot].Observe(times[n], x[n*size.features:][:size.features])
					have := celltest.Outcome{
						Score: got.scores[n], Decision: got.decisions[n], Leader: got.leaders[n],
						Counts: [4]uint32(got.counts[4*n:]), Round: got.rounds[n],
					}
					if have != want {
						t.Fatalf("%+v, batch %d, observation %d: %+v, the twin has %+v", size, batch, n, have, want)
					}
					decided[want.Decision] = true
				}
			}
		}
		if size.agents > 1 && len(decided) < 3 {
			t.Errorf("%+v: decided only %v", size, decided)
		}
		places, turns, sums := device.Of[float32](slices.Clone(s.values("place"))), s.values("turns"),
			device.Of[uint64](slices.Clone(s.values("sum")))
		for slot, g := range twins {
			for i, a := range g.Agents {
				k := slot*size.agents + i
				if places[k] != a.Place || turns[k] != a.Turns || sums[k] != a.Sum {
					t.Fatalf("%+v, slot %d, agent %d: %v %d %d, the twin has %+v", size, slot, i, places[k], turns[k],
						sums[k], a)
				}
			}
		}
	}
}

// TestCustomExample: the example finds the swing in its data, rows 420 to 539, and not the two
// outliers.
func TestCustomExample(t *testing.T) {
	const folder = "../../../examples/custom-cell"
	text, err := os.ReadFile(folder + "/swarm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of, err := spec.ParseIn(os.DirFS(folder), "swarm.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := of.Bind()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(folder + "/data/service.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 721 {
		t.Fatal(len(rows), err)
	}
	var times []int64
	var x []float32
	for _, row := range rows[1:] {
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			t.Fatal(err)
		}
		v, err := strconv.ParseFloat(row[1], 32)
		if err != nil {
			t.Fatal(err)
		}
		times, x = append(times, at.UnixNano()), append(x, float32(v))
	}
	s := newSwarm(t, b, 1<<18)
	s.table = b.Weights(of.Seed)
	out := s.emulate(t, customEmulator(t, b.Cell), 1, []kernels.Run{{Count: uint32(len(times))}}, times, doubles(x))
	swinging, highest := []int{}, [2]float32{}
	for n, d := range out.decisions {
		inside := 0
		if n >= 420 && n < 600 {
			inside = 1
		}
		if d == 1 {
			swinging = append(swinging, n)
		}
		highest[inside] = max(highest[inside], out.scores[n])
	}
	t.Logf("swinging in %d rows, %v; highest score %.3f, elsewhere %.3f", len(swinging), swinging, highest[1],
		highest[0])
	if len(swinging) < 40 || swinging[0] < 420 || swinging[len(swinging)-1] >= 600 || highest[1] <= highest[0] {
		t.Errorf("swinging in rows %v, highest score %.3f, elsewhere %.3f", swinging, highest[1], highest[0])
	}
}
