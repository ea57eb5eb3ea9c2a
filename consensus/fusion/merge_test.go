package fusion_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
)

// TestMergeProperty: in whatever order partials come, however often, and mixed with partials of
// other rounds, the total is the sum of the shards heard, in their order.
func TestMergeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, nodes := rapid.IntRange(1, 9).Draw(t, "shards"), rapid.IntRange(1, 4).Draw(t, "nodes")
		const dim, round = 8, 7
		var word consensus.Word
		m, err := fusion.NewMerger(&word, nodes, dim, shards)
		if err != nil {
			t.Fatal(err)
		}
		parts := make([]fusion.Partial, shards)
		for s := range parts {
			n, _ := fusion.NewNodes(nodes, dim)
			for i := range n.Sums {
				n.Sums[i] = rapid.Float32Range(-1e30, 1e30).Draw(t, "sum")
			}
			for i := range n.Counts {
				n.Counts[i], n.Weights[i] = rapid.Uint64Range(0, 1<<40).Draw(t, "count"),
					rapid.Uint64Range(0, 1<<50).Draw(t, "weight")
			}
			parts[s] = fusion.Partial{Shard: s, Round: round, Nodes: n}
		}
		if err := m.Open(round); err != nil {
			t.Fatal(err)
		}
		heard := make([]bool, shards)
		for _, s := range rapid.SliceOf(rapid.IntRange(0, shards-1)).Draw(t, "deliveries") {
			late := parts[s]
			late.Round = rapid.Uint64Range(0, round-1).Draw(t, "late")
			if counted, err := m.Add(late); counted || err != nil {
				t.Fatalf("a late partial: %v, %v", counted, err)
			}
			counted, err := m.Add(parts[s])
			if err != nil || counted == heard[s] {
				t.Fatalf("shard %d, heard before %v: %v, %v", s, heard[s], counted, err)
			}
			heard[s] = true
		}
		want := fusion.Total{
			Round: round, Dim: dim, Sums: make([]float64, nodes*dim), Weights: make([]uint64, nodes),
			Counts: make([]uint64, nodes),
		}
		missing := 0
		for s, p := range parts {
			if !heard[s] {
				missing++
				continue
			}
			want.Shards++
			for i, v := range p.Nodes.Sums {
				want.Sums[i] += float64(v)
			}
			for i := range want.Counts {
				want.Counts[i] += p.Nodes.Counts[i]
				want.Weights[i] += p.Nodes.Weights[i]
			}
		}
		if got := m.Missing(); got != missing {
			t.Fatalf("%d missing, want %d", got, missing)
		}
		got, err := m.Merge()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v (%v)", got, want, err)
		}
		if counted, err := m.Add(parts[0]); counted || err != nil {
			t.Fatalf("a partial of a round that is over: %v, %v", counted, err)
		}
		if _, err := m.Merge(); !errors.Is(err, fusion.ErrRound) {
			t.Fatalf("a second merge: %v", err)
		}
	})
}

// TestShards: the nodes of shards, each fused on a device, merge to the nodes of one swarm, and can
// be written back.
func TestShards(t *testing.T) {
	const shards, agents, nodes, dim = 3, 400, 6, 16
	d := opened(t)
	var word consensus.Word
	m, err := fusion.NewMerger(&word, nodes, dim, shards)
	ok(t, err, m.Open(1))
	var fusers []*fusion.Fuser
	whole := &swarm{}
	for shard := range shards {
		f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: agents})
		s := &swarm{members: make([]uint32, agents), rows: make([]float32, agents*dim)}
		for i := range s.members {
			s.members[i] = uint32((i + shard) % (nodes + 1)) // the last is no node
			for c := range dim {
				s.rows[i*dim+c] = float32(i%7) / float32(3+c)
			}
		}
		whole.members, whole.rows = append(whole.members, s.members...), append(whole.rows, s.rows...)
		ok(t, s.tell(f))
		_, err := f.Fuse(t.Context())
		ok(t, err)
		part, err := f.Partial(t.Context(), shard, 1)
		ok(t, err)
		if counted, err := m.Add(part); !counted || err != nil {
			t.Fatal(counted, err)
		}
		fusers = append(fusers, f)
	}
	total, err := m.Merge()
	ok(t, err)
	common, err := total.Nodes()
	ok(t, err)
	within(t, "merged", whole, common, agents)
	means, mine := make([]float32, nodes*dim), make([]float32, nodes*dim)
	ok(t, total.Means(means))
	for _, f := range fusers {
		ok(t, f.Write(t.Context(), common), f.Means(t.Context(), mine))
		for i := range means {
			if diff := math.Abs(float64(means[i] - mine[i])); diff > 1e-6*math.Abs(float64(means[i])) {
				t.Fatalf("mean %d is %v, want %v", i, mine[i], means[i])
			}
		}
	}
}

func TestMergerRefusals(t *testing.T) {
	var word consensus.Word
	if _, err := fusion.NewMerger(&word, 1, 8, 0); !errors.Is(err, fusion.ErrShard) {
		t.Error(err)
	}
	if _, err := fusion.NewMerger(&word, 1, 7, 1); !errors.Is(err, fusion.ErrShape) {
		t.Error(err)
	}
	m, err := fusion.NewMerger(&word, 1, 8, 2)
	ok(t, err)
	if _, err := m.Merge(); !errors.Is(err, fusion.ErrRound) {
		t.Errorf("a merge before a round: %v", err)
	}
	ok(t, m.Open(3))
	n, err := fusion.NewNodes(1, 8)
	ok(t, err)
	other, err := fusion.NewNodes(2, 8)
	ok(t, err)
	endless, full := n, n
	endless.Sums = slices.Repeat([]float32{float32(math.Inf(1))}, 8)
	full.Weights = []uint64{math.MaxUint64}
	for what, c := range map[string]struct {
		part fusion.Partial
		want error
	}{
		"no shard":   {fusion.Partial{Shard: 2, Round: 3, Nodes: n}, fusion.ErrShard},
		"early":      {fusion.Partial{Shard: 1, Round: 4, Nodes: n}, fusion.ErrRound},
		"another":    {fusion.Partial{Shard: 1, Round: 3, Nodes: other}, fusion.ErrLength},
		"infinite":   {fusion.Partial{Shard: 1, Round: 3, Nodes: endless}, fusion.ErrValue},
		"zero value": {fusion.Partial{Shard: 1, Round: 3}, fusion.ErrLength},
	} {
		if counted, err := m.Add(c.part); counted || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", what, counted, err)
		}
	}
	if counted, err := m.Add(fusion.Partial{Shard: 1, Round: 3, Nodes: full}); !counted || err != nil {
		t.Error(counted, err)
	}
	full.Weights = []uint64{1}
	if counted, err := m.Add(fusion.Partial{Shard: 0, Round: 3, Nodes: full}); counted ||
		!errors.Is(err, fusion.ErrOverflow) {
		t.Error(counted, err)
	}
	if err := m.Open(3); !errors.Is(err, fusion.ErrRound) {
		t.Error(err)
	}
	if !word.Elect(0, 3) { // another has closed it
		t.Fatal("not elected")
	}
	if _, err := m.Merge(); !errors.Is(err, fusion.ErrRound) {
		t.Error(err)
	}
	huge := fusion.Total{Dim: 8, Sums: slices.Repeat([]float64{1e300}, 8), Weights: []uint64{1}, Counts: []uint64{1}}
	if _, err := huge.Nodes(); !errors.Is(err, fusion.ErrValue) {
		t.Error(err)
	}
	if err := huge.Means(nil); !errors.Is(err, fusion.ErrLength) {
		t.Error(err)
	}
}
