package fusion_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened opens the device under test. At its end nothing may be open on it.
func opened(t testing.TB) device.Device { t.Helper(); return opentest.Device(t) }

func made(t testing.TB, d device.Device, o fusion.Options) *fusion.Fuser {
	t.Helper()
	f, err := fusion.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

type swarm struct {
	members []uint32
	rows    []float32
	halves  []uint16 // the rows in bf16, which they then are rounded to
	weights []uint32
}

// random makes agents with hostile embeddings, absent and invalid members, of uniform, heavy,
// sorted or few nodes.
func random(r *rand.Rand, agents, nodes, dim int, elem device.Elem) *swarm {
	s := &swarm{members: make([]uint32, agents), rows: make([]float32, agents*dim)}
	character, heavy := r.IntN(4), r.IntN(nodes)
	for i := range s.members {
		s.members[i] = uint32(r.IntN(nodes))
		switch {
		case character == 0 && r.IntN(100) != 0:
			s.members[i] = uint32(heavy)
		case character == 1:
			s.members[i] = uint32((heavy + r.IntN(3)) % nodes)
		}
		switch r.IntN(40) {
		case 0:
			s.members[i] = fusion.None
		case 1:
			s.members[i] = uint32(nodes) + r.Uint32N(3)
		}
	}
	if character == 2 {
		slices.Sort(s.members)
	}
	for i := range s.rows {
		s.rows[i] = float32(r.NormFloat64()) * float32(int64(1)<<r.IntN(10))
		switch r.IntN(60 * dim) {
		case 0:
			s.rows[i] = float32(math.NaN())
		case 1:
			s.rows[i] = float32(math.Inf(1 - 2*r.IntN(2)))
		case 2:
			s.rows[i] = math.Float32frombits(r.Uint32() & 0x807fffff) // subnormal
		}
	}
	if elem == device.BF16 {
		s.halves = make([]uint16, len(s.rows))
		for i, v := range s.rows {
			s.halves[i] = device.ToBF16(v)
			s.rows[i] = device.FromBF16(s.halves[i])
		}
	}
	if r.IntN(2) == 0 {
		s.weights = make([]uint32, agents)
		for i := range s.weights {
			s.weights[i] = r.Uint32() >> r.IntN(32)
			if r.IntN(10) == 0 {
				s.weights[i] = 0
			}
		}
	}
	return s
}

func (s *swarm) tell(f *fusion.Fuser) error {
	if s.halves != nil {
		return errors.Join(f.Members(s.members), f.EmbedBF16(s.halves), f.Weigh(s.weights))
	}
	return errors.Join(f.Members(s.members), f.Embed(s.rows), f.Weigh(s.weights))
}

// size is a random number of agents, nodes and columns whose product is small enough for plain
// loops.
func size(r *rand.Rand) (agents, nodes, dim int) {
	dim = []int{8, 16, 24, 64, 136, 264, 512}[r.IntN(7)]
	agents = []int{0, 1, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 20_000}[r.IntN(12)]
	return min(agents, 400_000/dim), min(1+r.IntN(1<<r.IntN(15)), 800_000/dim), dim
}

var elems = []device.Elem{device.F32, device.BF16}

// TestStatic: a device has the bits of Nodes.Accumulate, fusion after fusion, at every launch
// shape.
func TestStatic(t *testing.T) {
	cases := 250
	if testing.Short() {
		cases = 40
	}
	d, r := opened(t), rand.New(rand.NewPCG(31, 32))
	for i := range cases {
		agents, nodes, dim := size(r)
		elem := elems[i%2]
		o := fusion.Options{Nodes: nodes, Dim: dim, Agents: agents, Type: elem}
		if i%3 == 0 {
			o.Geometry = device.Geometry{Grid: 1 + r.IntN(9), Block: 1 + r.IntN(256)}
		}
		f, err := fusion.New(d, o)
		ok(t, err)
		need, err := fusion.NewNodes(nodes, dim)
		ok(t, err)
		for range 1 + r.IntN(3) {
			s := random(r, agents, nodes, dim, elem)
			ok(t, s.tell(f))
			want, err := need.Accumulate(s.members, s.rows, s.weights)
			ok(t, err)
			got, err := f.Fuse(t.Context())
			if err != nil || got != want || got.Agents() != uint64(agents) {
				t.Fatalf("%+v: report %+v, want %+v (%v)", o, got, want, err)
			}
			if r.IntN(4) == 0 {
				ok(t, f.Reset(t.Context()))
				need, err = fusion.NewNodes(nodes, dim)
				ok(t, err)
			}
			have, err := f.Read(t.Context())
			ok(t, err)
			same(t, fmt.Sprintf("%+v", o), have, need)
			have.Sums = make([]float32, len(have.Sums))
			means := make([]float32, len(have.Sums))
			ok(t, f.Means(t.Context(), means), need.Means(have.Sums))
			for k, v := range means {
				if math.Float32bits(v) != math.Float32bits(have.Sums[k]) {
					t.Fatalf("%+v: mean %d is %v, want %v", o, k, v, have.Sums[k])
				}
			}
		}
		ok(t, f.Close())
	}
}

func same(t testing.TB, what string, have, need fusion.Nodes) {
	t.Helper()
	if !slices.Equal(have.Counts, need.Counts) || !slices.Equal(have.Weights, need.Weights) {
		t.Fatalf("%s: counts or weights differ", what)
	}
	for i, v := range have.Sums {
		if math.Float32bits(v) != math.Float32bits(need.Sums[i]) {
			t.Fatalf("%s: column %d of node %d is %v, want %v", what, i%need.Dim, i/need.Dim, v, need.Sums[i])
		}
	}
}

// exact is the fusion in float64, and the sums of the absolute products.
func exact(s *swarm, nodes, dim int) (sums, sizes []float64) {
	sums, sizes = make([]float64, nodes*dim), make([]float64, nodes*dim)
	for i, id := range s.members {
		row := s.rows[i*dim:][:dim]
		if int(id) >= nodes || slices.ContainsFunc(row, func(v float32) bool { return v-v != 0 }) {
			continue
		}
		w := 1.0
		if s.weights != nil {
			w = float64(s.weights[i]) / consensus.One
		}
		for c, v := range row {
			sums[int(id)*dim+c] += w * float64(v)
			sizes[int(id)*dim+c] += math.Abs(w * float64(v))
		}
	}
	return sums, sizes
}

// within checks sums against the error bounds of the package's documentation; the factor of a
// weight is rounded too.
func within(t testing.TB, what string, s *swarm, have fusion.Nodes, steps float64) {
	t.Helper()
	const u = 1.0 / (1 << 24)
	sums, sizes := exact(s, have.Len(), have.Dim)
	for i, v := range have.Sums {
		bound := (steps+2)*u*sizes[i] + float64(have.Counts[i/have.Dim])*math.Ldexp(1, -126)
		if diff := math.Abs(float64(v) - sums[i]); !(diff <= bound) {
			t.Fatalf("%s: column %d of node %d is %v, want %v within %v", what, i%have.Dim, i/have.Dim, v, sums[i],
				bound)
		}
	}
}

// TestUnsorted: sums are within the bound, and all that is counted is exact.
func TestUnsorted(t *testing.T) {
	cases := 200
	if testing.Short() {
		cases = 40
	}
	d, r := opened(t), rand.New(rand.NewPCG(33, 34))
	for i := range cases {
		agents, nodes, dim := size(r)
		elem := elems[i%2]
		o := fusion.Tuned(fusion.Options{Nodes: nodes, Dim: dim, Agents: agents, Type: elem, Mode: fusion.Unsorted},
			[]int{0, 1, 2, 3, fusion.SortAgents, fusion.SortAgents}[r.IntN(6)], 0)
		if i%3 == 0 {
			o.Geometry = device.Geometry{Grid: 1 + r.IntN(9), Block: 1 + r.IntN(256)}
		}
		f, err := fusion.New(d, o)
		ok(t, err)
		for range 2 {
			s := random(r, agents, nodes, dim, elem)
			ok(t, s.tell(f), f.Reset(t.Context()))
			need, err := fusion.NewNodes(nodes, dim)
			ok(t, err)
			want, err := need.Accumulate(s.members, s.rows, s.weights)
			ok(t, err)
			got, err := f.Fuse(t.Context())
			if err != nil || got != want {
				t.Fatalf("%+v: report %+v, want %+v (%v)", o, got, want, err)
			}
			have, err := f.Read(t.Context())
			ok(t, err)
			if !slices.Equal(have.Counts, need.Counts) || !slices.Equal(have.Weights, need.Weights) {
				t.Fatalf("%+v: counts or weights differ", o)
			}
			within(t, fmt.Sprintf("%+v", o), s, have, float64(agents)+1)
		}
		ok(t, f.Close())
	}
}

// TestManyNodes: the agents are sorted where the package chooses so, fusion after fusion, with
// members that change and a node that has most of them.
func TestManyNodes(t *testing.T) {
	const agents, nodes, dim = 70_000, 65_536, 8
	d, r := opened(t), rand.New(rand.NewPCG(41, 42))
	f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: agents, Mode: fusion.Unsorted})
	if !f.Sorts() {
		t.Fatal("agents are not sorted")
	}
	for few, o := range map[string]fusion.Options{
		"nodes":  {Nodes: nodes - 1, Dim: dim, Agents: agents, Mode: fusion.Unsorted},
		"agents": {Nodes: nodes, Dim: dim, Agents: nodes - 1, Mode: fusion.Unsorted},
		"modes":  {Nodes: nodes, Dim: dim, Agents: agents},
	} {
		if made(t, d, o).Sorts() {
			t.Errorf("agents are sorted for few %s", few)
		}
	}
	need, err := fusion.NewNodes(nodes, dim)
	ok(t, err)
	for range 4 {
		s := random(r, agents, nodes, dim, device.F32)
		for i := range s.rows { // small integers, whose sums are exact
			s.rows[i] = float32(r.IntN(33) - 16)
		}
		s.weights = nil
		ok(t, s.tell(f))
		want, err := need.Accumulate(s.members, s.rows, s.weights)
		ok(t, err)
		got, err := f.Fuse(t.Context())
		if err != nil || got != want {
			t.Fatalf("report %+v, want %+v (%v)", got, want, err)
		}
		have, err := f.Read(t.Context())
		ok(t, err)
		same(t, "many nodes", have, need)
	}
}

// TestBounds: the plain form keeps its stated bound, which is far below the bound of any order.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	for _, agents := range []int{1, 100, 128, 129, 16384, 16385, 50_000} {
		s := random(r, agents, 2, 8, device.F32)
		n, err := fusion.NewNodes(2, 8)
		ok(t, err)
		_, err = n.Accumulate(s.members, s.rows, s.weights)
		ok(t, err)
		levels := 0.0
		for rows := agents; rows > 1; rows = (rows + fusion.RunRows - 1) / fusion.RunRows {
			levels++
		}
		within(t, fmt.Sprint(agents), s, n, 1+levels*fusion.RunRows)
	}
}

// TestPointed: embeddings, members and weights that stand in device memory, beside other things.
func TestPointed(t *testing.T) {
	const agents, nodes, dim = 500, 7, 24
	d, r := opened(t), rand.New(rand.NewPCG(37, 38))
	s := random(r, agents, nodes, dim, device.F32)
	s.weights = make([]uint32, agents)
	for i := range s.weights {
		s.weights[i] = r.Uint32N(5) * consensus.One
	}
	f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: agents, Mode: fusion.Unsorted})
	b, err := d.Alloc(16+4*agents*dim+4*agents+4*agents+4*nodes*dim, "test")
	ok(t, err)
	defer b.Close()
	atMembers := int64(16 + 4*agents*dim)
	atWeights, atMeans := atMembers+4*agents, atMembers+8*agents
	ok(t, b.Write(16, device.Bytes(s.rows)), b.Write(atMembers, device.Bytes(s.members)),
		b.Write(atWeights, device.Bytes(s.weights)))
	ok(t, f.Point(b, 16), f.PointMembers(b, atMembers), f.PointWeights(b, atWeights))
	_, err = f.Fuse(t.Context())
	ok(t, err, f.MeansTo(t.Context(), b, atMeans))
	have, err := f.Read(t.Context())
	ok(t, err)
	within(t, "pointed", s, have, agents+1)
	means, want := make([]float32, nodes*dim), make([]float32, nodes*dim)
	ok(t, b.Read(atMeans, device.Bytes(means)), have.Means(want))
	if !slices.Equal(means, want) {
		t.Error("other means")
	}
}

// TestState: nodes are read, written, reset, and fused into again.
func TestState(t *testing.T) {
	const agents, nodes, dim = 300, 5, 8
	d, r := opened(t), rand.New(rand.NewPCG(39, 40))
	for _, mode := range []fusion.Mode{fusion.Static, fusion.Unsorted} {
		f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: agents, Mode: mode})
		empty, err := f.Read(t.Context())
		ok(t, err)
		zero, err := fusion.NewNodes(nodes, dim)
		ok(t, err)
		same(t, "before the first fusion", empty, zero)
		s := random(r, agents, nodes, dim, device.F32)
		ok(t, s.tell(f))
		known := fusion.Nodes{
			Dim: dim, Sums: make([]float32, nodes*dim), Weights: []uint64{1, 2, 3, 4, 5},
			Counts: []uint64{9, 8, 7, 6, 5},
		}
		for i := range known.Sums {
			known.Sums[i] = float32(i)
		}
		ok(t, f.Write(t.Context(), known))
		back, err := f.Read(t.Context())
		ok(t, err)
		same(t, "written", back, known)
		_, err = f.Fuse(t.Context())
		ok(t, err)
		_, err = known.Accumulate(s.members, s.rows, s.weights)
		ok(t, err)
		have, err := f.Read(t.Context())
		ok(t, err)
		if !slices.Equal(have.Counts, known.Counts) || !slices.Equal(have.Weights, known.Weights) {
			t.Errorf("%+v, want %+v", have, known)
		}
		if mode == fusion.Static {
			same(t, "fused after a write", have, known)
		}
		ok(t, f.Reset(t.Context()))
		empty, err = f.Read(t.Context())
		ok(t, err)
		same(t, "reset", empty, zero)
		bad := known
		bad.Sums = slices.Clone(known.Sums)
		bad.Sums[3] = float32(math.NaN())
		if err := f.Write(t.Context(), bad); !errors.Is(err, fusion.ErrValue) {
			t.Errorf("a NaN: %v", err)
		}
	}
}

// TestGivenUp: a wait that is given up loses nothing.
func TestGivenUp(t *testing.T) {
	const agents = 1000
	d := opened(t)
	for _, phases := range []int{0, 1, fusion.SortAgents} {
		mode := fusion.Static
		if phases != 0 {
			mode = fusion.Unsorted
		}
		f := made(t, d, fusion.Tuned(fusion.Options{Nodes: 1, Dim: 8, Agents: agents, Mode: mode}, phases, 0))
		ok(t, f.Members(make([]uint32, agents)), f.Embed(make([]float32, 8*agents)))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			_, err := f.Fuse(gone)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		_, err := f.Fuse(t.Context())
		ok(t, err)
		n, err := f.Read(t.Context())
		ok(t, err)
		// A call whose context was over may have been refused before its launch, never after it
		// without effect.
		if n.Counts[0]%agents != 0 || n.Counts[0] < agents || n.Counts[0] > 4*agents ||
			n.Weights[0] != n.Counts[0]*consensus.One {
			t.Errorf("%d agents, weight %d", n.Counts[0], n.Weights[0])
		}
	}
}

func TestOverflow(t *testing.T) {
	d := opened(t)
	f := made(t, d, fusion.Options{Nodes: 2, Dim: 8, Agents: 1})
	n, err := fusion.NewNodes(2, 8)
	ok(t, err)
	n.Weights[1] = math.MaxUint64 - consensus.One
	ok(t, f.Write(t.Context(), n), f.Members([]uint32{1}), f.Embed(make([]float32, 8)))
	_, err = f.Fuse(t.Context())
	ok(t, err)
	if _, err := f.Fuse(t.Context()); !errors.Is(err, fusion.ErrOverflow) {
		t.Errorf("%v", err)
	}
	have, err := f.Read(t.Context())
	ok(t, err)
	if have.Weights[1] != math.MaxUint64 || have.Counts[1] != 1 {
		t.Errorf("%+v", have)
	}
	if _, err := have.Accumulate([]uint32{0, 1}, make([]float32, 16), []uint32{1, 1}); !errors.Is(err,
		fusion.ErrOverflow) || have.Counts[0] != 0 {
		t.Errorf("%v, %v", err, have.Counts)
	}
	ok(t, f.Reset(t.Context()))
	_, err = f.Fuse(t.Context())
	ok(t, err)
}

func TestRefusals(t *testing.T) {
	d := opened(t)
	for what, o := range map[string]fusion.Options{
		"no nodes":        {Dim: 8},
		"many nodes":      {Nodes: fusion.MaxNodes + 1, Dim: 8},
		"no columns":      {Nodes: 1},
		"odd columns":     {Nodes: 1, Dim: 12},
		"many columns":    {Nodes: 1, Dim: 520},
		"negative agents": {Nodes: 1, Dim: 8, Agents: -1},
		"many agents":     {Nodes: 1, Dim: 8, Agents: fusion.MaxAgents + 1},
		"another type":    {Nodes: 1, Dim: 8, Type: 9},
		"another mode":    {Nodes: 1, Dim: 8, Mode: 2},
	} {
		if f, err := fusion.New(d, o); !errors.Is(err, fusion.ErrShape) || f != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	b, err := d.Alloc(1000, "test")
	ok(t, err)
	defer b.Close()
	static := made(t, d, fusion.Options{Nodes: 2, Dim: 8, Agents: 4})
	moving := made(t, d, fusion.Options{Nodes: 2, Dim: 8, Agents: 4, Mode: fusion.Unsorted, Type: device.BF16})
	_, early := static.Fuse(t.Context())
	small, err := fusion.NewNodes(1, 8)
	ok(t, err)
	crooked := small
	crooked.Weights = nil
	for what, c := range map[string]struct{ err, class error }{
		"too early":           {early, device.ErrInvalidArgument},
		"few members":         {static.Members(make([]uint32, 3)), fusion.ErrLength},
		"pointed static":      {static.PointMembers(b, 0), device.ErrInvalidArgument},
		"few rows":            {static.Embed(make([]float32, 31)), fusion.ErrLength},
		"another type":        {static.EmbedBF16(make([]uint16, 32)), fusion.ErrLength},
		"another type still":  {moving.Embed(make([]float32, 32)), fusion.ErrLength},
		"few weights":         {static.Weigh(make([]uint32, 5)), fusion.ErrLength},
		"no memory":           {static.Point(nil, 0), device.ErrInvalidArgument},
		"not aligned":         {static.Point(b, 8), device.ErrInvalidArgument},
		"before":              {static.Point(b, -16), device.ErrInvalidArgument},
		"behind":              {static.Point(b, 880), device.ErrInvalidArgument},
		"weights behind":      {static.PointWeights(b, 992), device.ErrInvalidArgument},
		"members behind":      {moving.PointMembers(b, 992), device.ErrInvalidArgument},
		"few means":           {static.Means(t.Context(), make([]float32, 15)), fusion.ErrLength},
		"means behind":        {static.MeansTo(t.Context(), b, 960), device.ErrInvalidArgument},
		"other nodes":         {static.Write(t.Context(), small), fusion.ErrLength},
		"crooked nodes":       {static.Write(t.Context(), crooked), fusion.ErrLength},
		"means of crooked":    {crooked.Means(make([]float32, 8)), fusion.ErrLength},
		"few plain means":     {small.Means(make([]float32, 7)), fusion.ErrLength},
		"pointed at the last": {static.Point(b, 864), nil},
	} {
		if !errors.Is(c.err, c.class) {
			t.Errorf("%s: %v, want %v", what, c.err, c.class)
		}
	}
	if _, err := small.Accumulate([]uint32{0}, make([]float32, 9), nil); !errors.Is(err, fusion.ErrLength) {
		t.Error(err)
	}
}
