package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// modelNeurons are neurons of Izhikevich, as a reader of the paper would have them. v and u are the
// variables of the paper.
type modelNeurons struct {
	v, u, current []float32
	spike         []byte
	links         *edges.Rows
	cell          *cells.Addressed
	seed          uint64
	mail          mail
}

// step makes tick number tick.
func (n *modelNeurons) step(tick uint32) {
	agents := len(n.spike)
	sums, spikes := n.mail.arrive(tick, n.spike, n.links, n.cell), make([]byte, agents)
	exciting := int(math.Round(float64(agents) * (1 - n.cell.Value("inhibitory"))))
	for id := range agents {
		of := ""
		if id >= exciting {
			of = "inhibitory_"
		}
		value := func(name string) float32 { return float32(n.cell.Value(of + name)) }
		if tick == 0 {
			n.v[id], n.u[id] = value("c"), float32(value("b")*value("c"))
		}
		input := n.current[id]
		if n.cell.Value("noise") != 0 || n.cell.Value("inhibitory_noise") != 0 {
			key := [2]uint32{uint32(n.seed), uint32(n.seed >> 32)}
			draw := kernels.Philox(key, [4]uint32{0, uint32(id / 4), tick})[id%4]
			input += float32((float32(draw>>8)/(1<<23) - 1) * value("noise"))
		}
		input += float32(sums[id]) / (1 << 16)
		v, u := n.v[id], n.u[id]
		for range 2 {
			square := float32(float32(float32(0.04*v)+5) * v)
			v += float32(0.5 * float32(float32(float32(square+140)-u)+input))
			v = min(max(v, -112.5), 30)
		}
		u += float32(value("a") * (float32(value("b")*v) - u))
		if v == 30 {
			spikes[id], v, u = 1, value("c"), u+value("d")
		}
		n.v[id], n.u[id] = v, u
	}
	n.spike = spikes
}

// TestIzhikevich compares random networks with neurons one by one, over many pages, with ticks of
// all numbers, currents that change between them, and parameters to their bounds.
func TestIzhikevich(t *testing.T) {
	d, r, spikes := openDevice(t), rand.New(rand.NewPCG(20, 3)), 0
	for round := range testkit.Of(60, 16) {
		group := 1 + r.IntN(40)
		agents := group * (2 + r.IntN(3000/group))
		params := map[string]float64{
			"weight": 3 * r.Float64(), "inhibitory": 0.5 * r.Float64(), "noise": float64(r.IntN(2)) * 9,
			"inhibitory_noise": float64(r.IntN(2)) * 3,
		}
		if round%4 == 0 { // far from any neuron
			for _, of := range []string{"", "inhibitory_"} {
				params[of+"a"], params[of+"b"] = r.Float64(), 2*r.Float64()-1
				params[of+"c"], params[of+"d"] = -100*r.Float64(), 200*r.Float64()-100
			}
			params["weight"] = 100
		}
		want := &modelNeurons{
			v: make([]float32, agents), u: make([]float32, agents), current: make([]float32, agents),
			spike: make([]byte, agents), cell: neuronsOf(t, cells.IzhikevichName, group, params), seed: r.Uint64(),
		}
		want.links = &edges.Rows{Offsets: []uint64{0}}
		for range agents {
			for range r.IntN(30) {
				want.links.Columns = append(want.links.Columns, uint32(r.IntN(agents)))
			}
			want.links.Offsets = append(want.links.Offsets, uint64(len(want.links.Columns)))
		}
		n := open(t, d, want.cell, Options{
			Agents: int64(agents), Links: edges.Links{Rows: want.links}, Seed: want.seed, PageBytes: 4096,
		})
		spikes += oneByOne(t, r, n, 60, 8, want.current, func(tick uint32) (spike []byte, potential []float32) {
			want.step(tick)
			return want.spike, want.v
		})
	}
	if spikes < 1000 {
		t.Errorf("%d spikes: too few for a comparison", spikes)
	}
}

// alone returns the ticks in which a neuron of a type spikes under a current of 10 for 300 ticks.
func alone(t *testing.T, kind cells.NeuronType) (spikes []int) {
	t.Helper()
	n := open(t, openDevice(t), neuronsOf(t, cells.IzhikevichName, 2, kind.Params(false)), Options{
		Agents: 2, Links: edges.Links{Degree: 1, Rewire: 0}, PageBytes: 4096,
	})
	if err := n.Set(t.Context(), []uint32{0, 1}, []float32{10, -10}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if tick(t, n, 1); states(t, n)[0] == 1 {
			spikes = append(spikes, i)
		}
	}
	return spikes
}

// TestNeuronTypes: neurons of the types spike as in figure 2 of the paper. Regular spiking ones
// adapt: the ways between their spikes grow. Fast spiking ones do not, and spike more often.
// Bursting and chattering ones begin with a burst; only chattering ones burst again.
func TestNeuronTypes(t *testing.T) {
	gaps := map[string][]int{}
	for _, kind := range cells.NeuronTypes {
		spikes := alone(t, kind)
		for i := range spikes[1:] {
			gaps[kind.Name] = append(gaps[kind.Name], spikes[i+1]-spikes[i])
		}
	}
	rs, fs := gaps["regular_spiking"], gaps["fast_spiking"]
	if len(rs) < 4 || rs[0]*3/2 > rs[len(rs)-1] {
		t.Errorf("regular spiking: the ways between spikes are %d, want growing ones", rs)
	}
	if len(fs) < 2*len(rs) || slices.Max(fs[2:]) > slices.Min(fs[2:])+2 {
		t.Errorf("fast spiking: the ways between spikes are %d, want even ones, twice as many as %d", fs, rs)
	}
	short := func(of []int) (n int) {
		for _, gap := range of {
			if gap <= 6 {
				n++
			}
		}
		return n
	}
	ib, ch := gaps["intrinsically_bursting"], gaps["chattering"]
	if ib[0] > 6 || short(ib[len(ib)/2:]) > 0 {
		t.Errorf("intrinsically bursting: the ways between spikes are %d, want one burst at the begin", ib)
	}
	if later := ch[len(ch)/2:]; ch[0] > 6 || short(later) < 2 || short(later) == len(later) {
		t.Errorf("chattering: the ways between spikes are %d, want bursts to the end", ch)
	}
	if t.Failed() {
		t.Log(fmt.Sprint(gaps))
	}
}

// TestIzhikevichFirst: before the first tick a neuron has the potential c of its type, and the
// network uses the kernels of the cell.
func TestIzhikevichFirst(t *testing.T) {
	cell := neuronsOf(t, cells.IzhikevichName, 2, map[string]float64{"inhibitory": 0.5, "c": -50})
	n := open(t, openDevice(t), cell, Options{Agents: 4, Links: edges.Links{Degree: 2, Rewire: 1}})
	if _, v, err := n.Get(t.Context(), []uint32{0, 3}); err != nil || !slices.Equal(v, []float32{-50, -65}) {
		t.Errorf("potentials %v, %v, want -50 and -65", v, err)
	}
	if got := strings.Join(n.Kernels(), " "); got != graphset.Links+" "+graphset.Push+" "+graphset.Izhikevich {
		t.Errorf("the kernels are %s", got)
	}
}
