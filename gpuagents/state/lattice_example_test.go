package state

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestLatticeExample: the example of reaction and diffusion equals the plain twin after its first
// tick, which seeds it, on a smaller grid.
func TestLatticeExample(t *testing.T) {
	folder := filepath.Join("..", "..", "examples", "reaction-diffusion")
	text, err := os.ReadFile(filepath.Join(folder, "swarm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := swarm.ParseIn(os.DirFS(folder), "swarm.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	g := celltest.Grid{Width: 128, Height: 70, Depth: 1, Periodic: true}
	spec.Neighbours.Width, spec.Neighbours.Height = int64(g.Width), int64(g.Height)
	spec.Agents, spec.AgentsPerGroup, spec.PageSize = int64(g.Len()), g.Width, 16*testPage
	s, err := newWhole(openCompiling(t), nil, spec, spec.Groups())
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	// The first step of the twin is of agents at rest but for the seeds, which nobody hears yet.
	used, v := make([]float32, g.Len()), make([]float32, g.Len())
	const feed, kill, refill, spread = float32(0.037), float32(0.06), float32(0.8), float32(0.4)
	for id := range used {
		x, y, _ := g.Place(id)
		if x%64 < 12 && y%64 < 12 && celltest.Number(spec.Seed, 0, uint32(id), 0) < 0.7 {
			const eaten = float32(0.5 * 0.5 * 0.5)
			v[id] = 0.5 + float32(spread*-0.5) + eaten - float32((feed+kill)*0.5)
			used[id] = 0.5 + float32(refill*-0.5) + eaten - float32(feed*0.5)
		}
	}
	const ticks = 40
	for range ticks - 1 {
		used, v = g.StepGrayScott(used, v)
	}
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: ticks})
	q := swarms.Query{Version: jobs.Version}
	for i := range v {
		q.Agents = append(q.Agents, uint32(i))
	}
	found, err := batch.DecodeAgentStates(mustApply(t, s, swarms.EntryQuery, q).Data)
	if err != nil {
		t.Fatal(err)
	}
	most := 0.0
	for i, want := range v {
		// The example adds its terms in another order than the twin.
		if away := math.Abs(float64(found.State[i] - want)); !(away < 1e-5) {
			t.Fatalf("agent %d has %v, the twin %v", i, found.State[i], want)
		}
		if shade := byte(min(24*found.State[i], 7)); found.Vote[i] != shade {
			t.Fatalf("agent %d with %v votes for shade %d", i, found.State[i], found.Vote[i])
		}
		most = max(most, float64(want))
	}
	if most < 0.2 {
		t.Errorf("the substance is gone: at most %v is left", most)
	}
}
