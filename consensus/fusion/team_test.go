package fusion_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/host"
)

var deviceNames = flag.String("devices", "host,host,host", "the devices of a team, two or more, between commas")

// collective opens the devices of a team. At its end nothing may be open on them.
func collective(t testing.TB) device.Collective {
	t.Helper()
	var all []device.Device
	t.Cleanup(func() {
		for _, d := range all {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	log := slog.New(slog.DiscardHandler)
	for name := range strings.SplitSeq(*deviceNames, ",") {
		d, err := cuda.Open(t.Context(), name, cuda.Options{Logger: log, CacheDir: os.TempDir() + "/exoswarm-kernels"})
		ok(t, err)
		all = append(all, d)
	}
	c, err := cuda.OpenCollective(t.Context(), all, log)
	ok(t, err)
	t.Logf("route %+v over %s", c.Route(), *deviceNames)
	t.Cleanup(func() { ok(t, c.Close()) })
	return c
}

func team(t testing.TB, c device.Collective, word *consensus.Word, fusers []*fusion.Fuser) *fusion.Team {
	t.Helper()
	m, err := fusion.NewTeam(c, word, fusers)
	ok(t, err)
	t.Cleanup(func() { ok(t, m.Close(), m.Close()) })
	return m
}

// randomNodes have sums of all magnitudes, so that the order of additions shows.
func randomNodes(t testing.TB, r *rand.Rand, nodes, dim int) fusion.Nodes {
	t.Helper()
	n, err := fusion.NewNodes(nodes, dim)
	ok(t, err)
	for i := range n.Sums {
		n.Sums[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(160)-80))
	}
	for i := range n.Counts {
		n.Counts[i], n.Weights[i] = r.Uint64()>>4>>r.IntN(60), r.Uint64()>>4>>r.IntN(60)
	}
	return n
}

func merged(t testing.TB, fusers []*fusion.Fuser, nodes, dim int) (fusion.Nodes, error) {
	t.Helper()
	var word consensus.Word
	m, err := fusion.NewMerger(&word, nodes, dim, len(fusers))
	ok(t, err, m.Open(1))
	for s, f := range fusers {
		part, err := f.Partial(t.Context(), s, 1)
		ok(t, err)
		if _, err := m.Add(part); err != nil {
			return fusion.Nodes{}, err
		}
	}
	total, err := m.Merge()
	ok(t, err)
	return total.Nodes()
}

// TestTeam: the nodes of several devices merge to the bits of a Merger, whatever their number and
// shape, and are adopted bit for bit.
func TestTeam(t *testing.T) {
	c, r := collective(t), rand.New(rand.NewPCG(45, 46))
	for _, shape := range [][2]int{{1, 8}, {7, 16}, {300, 512}, {2000, 64}} {
		nodes, dim := shape[0], shape[1]
		var word consensus.Word
		var fusers []*fusion.Fuser
		for _, d := range c.Devices() {
			fusers = append(fusers, made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: 50}))
		}
		m := team(t, c, &word, fusers)
		for round := uint64(1); round < 8; round++ {
			for _, f := range fusers {
				switch r.IntN(4) {
				case 0: // zeros that nobody has written
					ok(t, f.Reset(t.Context()))
				case 1: // what it fuses itself
					s := &swarm{members: make([]uint32, 50), rows: make([]float32, 50*dim)}
					for i := range s.members {
						s.members[i] = uint32(r.IntN(nodes))
					}
					for i := range s.rows {
						s.rows[i] = r.Float32() - 0.5
					}
					ok(t, s.tell(f), f.Reset(t.Context()))
					_, err := f.Fuse(t.Context())
					ok(t, err)
				default:
					ok(t, f.Write(t.Context(), randomNodes(t, r, nodes, dim)))
				}
			}
			want, err := merged(t, fusers, nodes, dim)
			ok(t, err, m.Merge(t.Context(), round))
			got, err := m.Nodes()
			ok(t, err)
			same(t, fmt.Sprintf("%d nodes of %d, round %d", nodes, dim, round), got, want)
			if err := m.Merge(t.Context(), round); !errors.Is(err, fusion.ErrRound) {
				t.Fatalf("round %d again: %v", round, err)
			}
			if round%3 == 0 {
				ok(t, m.Merge(t.Context(), 100*round), m.Adopt(t.Context()))
				for rank, f := range fusers {
					mine, err := f.Read(t.Context())
					ok(t, err)
					same(t, fmt.Sprintf("adopted by rank %d", rank), mine, want)
				}
				word = consensus.Word{} // the numbers of this loop again
			}
		}
	}
}

// TestTeamChunks: nodes that need more than one gather.
func TestTeamChunks(t *testing.T) {
	c, r := collective(t), rand.New(rand.NewPCG(47, 48))
	const dim = 512
	nodes := (64<<20)/len(c.Devices())/(4*dim+16) + 77
	var word consensus.Word
	var fusers []*fusion.Fuser
	for _, d := range c.Devices() {
		f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim})
		n, err := fusion.NewNodes(nodes, dim)
		ok(t, err)
		for i := range n.Sums {
			n.Sums[i] = r.Float32()
		}
		for i := range n.Counts {
			n.Counts[i], n.Weights[i] = uint64(i), r.Uint64N(1<<40)
		}
		ok(t, f.Write(t.Context(), n))
		fusers = append(fusers, f)
	}
	m := team(t, c, &word, fusers)
	want, err := merged(t, fusers, nodes, dim)
	ok(t, err, m.Merge(t.Context(), 5))
	got, err := m.Nodes()
	ok(t, err)
	same(t, "chunks", got, want)
}

// TestTeamRefusals: what a Merger refuses a Team refuses, with the same class, and it goes on
// afterwards.
func TestTeamRefusals(t *testing.T) {
	c, r := collective(t), rand.New(rand.NewPCG(49, 50))
	const nodes, dim = 3, 8
	var word consensus.Word
	var fusers []*fusion.Fuser
	for _, d := range c.Devices() {
		fusers = append(fusers, made(t, d, fusion.Options{Nodes: nodes, Dim: dim, Agents: 2}))
	}
	m := team(t, c, &word, fusers)
	if _, err := m.Nodes(); !errors.Is(err, fusion.ErrRound) {
		t.Error(err)
	}
	if err := m.Adopt(t.Context()); !errors.Is(err, fusion.ErrRound) {
		t.Error(err)
	}
	round := uint64(0)
	refuse := func(what string, class error) {
		t.Helper()
		round++
		if _, err := merged(t, fusers, nodes, dim); !errors.Is(err, class) {
			t.Fatalf("%s: the merger says %v", what, err)
		}
		if err := m.Merge(t.Context(), round); !errors.Is(err, class) || word.Load() >= round {
			t.Errorf("%s: %v, round %d", what, err, word.Load())
		}
		if _, err := m.Nodes(); !errors.Is(err, fusion.ErrRound) {
			t.Errorf("%s: there are nodes: %v", what, err)
		}
	}
	fill := func(rank int, change func(*fusion.Nodes)) {
		n := randomNodes(t, r, nodes, dim)
		change(&n)
		ok(t, fusers[rank].Write(t.Context(), n))
	}
	largest := func(n *fusion.Nodes) { n.Sums[9] = math.MaxFloat32 }
	fill(0, largest)
	fill(1, largest)
	refuse("a sum outside float32", fusion.ErrValue)
	fill(0, func(n *fusion.Nodes) { n.Weights[2] = math.MaxUint64 })
	fill(1, func(n *fusion.Nodes) { n.Weights[2] = 1 })
	refuse("a weight that does not fit", fusion.ErrOverflow)
	fill(0, func(n *fusion.Nodes) { n.Counts[0] = math.MaxUint64 })
	fill(1, func(n *fusion.Nodes) { n.Counts[0] = 1 })
	refuse("a count that does not fit", fusion.ErrOverflow)
	fill(0, func(*fusion.Nodes) {})
	infinite := &swarm{members: []uint32{1, 1}, rows: slices.Repeat([]float32{math.MaxFloat32}, 2*dim)}
	ok(t, infinite.tell(fusers[1]), fusers[1].Reset(t.Context()))
	_, err := fusers[1].Fuse(t.Context())
	ok(t, err)
	refuse("a part that is not finite", fusion.ErrValue)

	fill(1, func(*fusion.Nodes) {})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Merge(over, round+1); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	want, err := merged(t, fusers, nodes, dim)
	ok(t, err, m.Merge(t.Context(), round+1))
	got, err := m.Nodes()
	ok(t, err)
	same(t, "afterwards", got, want)

	other := made(t, c.Devices()[1], fusion.Options{Nodes: nodes + 1, Dim: dim})
	for what, k := range map[string]struct {
		fusers []*fusion.Fuser
		want   error
	}{
		"too few":       {fusers[1:], fusion.ErrShard},
		"another order": {append([]*fusion.Fuser{fusers[1], fusers[0]}, fusers[2:]...), device.ErrInvalidArgument},
		"another shape": {append([]*fusion.Fuser{fusers[0], other}, fusers[2:]...), fusion.ErrLength},
		"nobody":        {append([]*fusion.Fuser{nil}, fusers[1:]...), device.ErrInvalidArgument},
	} {
		if _, err := fusion.NewTeam(c, &word, k.fusers); !errors.Is(err, k.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTeamFaults: a copy, a launch or a wait that fails on one device fails the merge with its
// class; the next merge is right.
func TestTeamFaults(t *testing.T) {
	const nodes, dim = 5, 8
	r := rand.New(rand.NewPCG(51, 52))
	sick := faults.New(opened(t))
	c, err := host.NewRelay([]device.Device{opened(t), sick}, "a test")
	ok(t, err)
	defer c.Close()
	var word consensus.Word
	var fusers []*fusion.Fuser
	for _, d := range c.Devices() {
		f := made(t, d, fusion.Options{Nodes: nodes, Dim: dim})
		ok(t, f.Write(t.Context(), randomNodes(t, r, nodes, dim)))
		fusers = append(fusers, f)
	}
	m := team(t, c, &word, fusers)
	want, err := merged(t, fusers, nodes, dim)
	ok(t, err)
	round := uint64(0)
	for _, op := range []faults.Op{faults.Copy, faults.Launch, faults.Wait} {
		sick.Fail(op, 0, 1, device.ErrTransient)
		round++
		if err := m.Merge(t.Context(), round); !errors.Is(err, device.ErrTransient) || word.Load() == round {
			t.Errorf("%v: %v", op, err)
		}
		round++
		ok(t, m.Merge(t.Context(), round))
		got, err := m.Nodes()
		ok(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %v: other nodes", op)
		}
	}
}

// BenchmarkTeam is a merge of nodes on all devices: by a Team, and by a Merger through the host
// with the total written back. The nodes are compared.
func BenchmarkTeam(b *testing.B) {
	c := collective(b)
	for _, nodes := range []int{1024, 65_536, 1_000_000} {
		const dim = 64
		var word consensus.Word
		var fusers []*fusion.Fuser
		r := rand.New(rand.NewPCG(1, 2))
		for _, d := range c.Devices() {
			f := made(b, d, fusion.Options{Nodes: nodes, Dim: dim})
			n, err := fusion.NewNodes(nodes, dim)
			ok(b, err)
			for i := range n.Sums {
				n.Sums[i] = r.Float32()
			}
			for i := range n.Counts {
				n.Counts[i], n.Weights[i] = 1, 1<<16
			}
			ok(b, f.Write(b.Context(), n))
			fusers = append(fusers, f)
		}
		m := team(b, c, &word, fusers)
		want, err := merged(b, fusers, nodes, dim)
		ok(b, err)
		round := uint64(0)
		run := func(name string, fn func() error) {
			b.Run(fmt.Sprintf("%s/%d", name, nodes), func(b *testing.B) {
				took := make([]time.Duration, 0, b.N)
				for range b.N + 2 {
					round++
					start := time.Now()
					ok(b, fn())
					took = append(took, time.Since(start))
				}
				took = took[2:]
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
				b.ReportMetric(float64(nodes)*(4*dim+16)*float64(len(fusers))/took[len(took)/2].Seconds()/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
		run("team", func() error { return m.Merge(context.Background(), round) })
		got, err := m.Nodes()
		ok(b, err)
		same(b, "team", got, want)
		run("merger", func() error { _, err := merged(b, fusers, nodes, dim); return err })
	}
}
