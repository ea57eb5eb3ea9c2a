package state

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// boxText is boids over several pages of testPage.
const boxText = "name: x\naddressed: agent\nagents: 3000\ncell: {kind: boids}\nagents_per_group: 100\n" +
	"neighbours: {space: {size: [30, 20, 15], radius: 2, periodic: true}}\nseed: 7\n"

// colonyText is a colony over as many pages.
const colonyText = "name: x\naddressed: agent\nagents: 3000\nagents_per_group: 100\n" +
	"cell: {kind: colony, params: {birth: 0.3, death: 0.05, first: 40, hunger: 0.002}}\n" +
	"neighbours: {space: {size: [30, 20, 15], radius: 2, periodic: true}}\nseed: 7\n"

// boxStates returns the answer to a question for all agents.
func boxStates(t *testing.T, s State) []byte {
	t.Helper()
	q := swarms.Query{Version: jobs.Version}
	for i := range s.Info().Agents {
		q.Agents = append(q.Agents, uint32(i))
	}
	return mustApply(t, s, swarms.EntryQuery, q).Data
}

// TestBoxState applies a log to boids in one process, and in processes that end and go on from a
// checkpoint, with replays of the rest of the log. They agree to the bit, and nobody is lost.
// Agents of a colony die and are born meanwhile.
func TestBoxState(t *testing.T) {
	for name, text := range map[string]string{
		"boids": boxText, "colony": colonyText,
		"boids, nearest": strings.Replace(boxText, "radius: 2", "radius: 3, nearest: 7", 1),
	} {
		cell, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) { testBoxState(t, cell, text) })
	}
}

func testBoxState(t *testing.T, cell, text string) {
	t.Helper()
	d, r, disk := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(4, 51)), newDisk()
	plain := openPaged(t, d, nil, text)
	testkit.Close(t, plain)
	s := openStored(t, d, disk, text)
	if s.Info().Digest != plain.Info().Digest || s.Info().Cell != cell || s.Info().Agents != 3000 {
		t.Errorf("%+v and %+v", s.Info(), plain.Info())
	}
	entry := func(f func(s State) []byte) { s.applyBoth(plain, f) }
	for range 25 {
		switch k := r.IntN(6); k {
		case 0:
			o := &batch.AgentObservations{Width: 3}
			if cell == "boids" {
				o.Width = 6
			}
			for range 1 + r.IntN(50) {
				o.Agent = append(o.Agent, r.Uint32N(3000))
				o.Features = append(o.Features, 29*r.Float32(), 19*r.Float32(), 14*r.Float32())
				if cell == "boids" {
					o.Features = append(o.Features, r.Float32(), 0, -r.Float32())
				}
			}
			entry(func(s State) []byte {
				a := mustApply(t, s, swarms.EntryObserve, o)
				got, err := batch.DecodeAgentDecisions(a.Data)
				if err != nil || len(got.Vote) != len(o.Agent) || got.Vote[0] != kernels.AgentNoVote {
					t.Fatalf("%+v, %v, want no votes", got, err)
				}
				return a.Data
			})
		case 1, 2:
			n := 1 + r.IntN(9)
			entry(func(s State) []byte {
				a := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n})
				got := a.Ticked
				if got.Stepped != uint64(n)*3000 || got.Tally[0]+got.Tally[1] != 3000 || got.Tally[1] == 0 {
					t.Fatalf("%+v", got)
				}
				return a.Data
			})
		case 3:
			s.checkpoint()
		case 4:
			if r.IntN(4) == 0 {
				entry(func(s State) []byte { return bytesOf(t, s.Reset(t.Context())) })
			}
		default:
			s.restart()
		}
		if !slices.Equal(boxStates(t, s), boxStates(t, plain)) {
			t.Fatal("the agents differ")
		}
	}
	s.end()
}

// bytesOf fails the test if there is an error.
func bytesOf(t *testing.T, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return nil
}

// TestBoxRefuses: what boids do not take is refused with the cure, and changes nothing.
func TestBoxRefuses(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, boxText))
	nan := float32(math.NaN())
	observe := func(id uint32, f ...float32) []byte {
		return encoded(t, &batch.AgentObservations{Agent: []uint32{id}, Features: f, Width: len(f)})
	}
	refusesAll(t, s, []refusal{
		{swarms.EntryObserve, observe(3000, 1, 1, 1, 0, 0, 0), "observation 0 is for agent 3000 of 3000"},
		{swarms.EntryObserve, observe(1, 1, 1, 1), "observations have 3 features, the swarm takes 6"},
		{
			swarms.EntryObserve, observe(1, 30, 1, 1, 0, 0, 0),
			"observation 0: agent 1 has the x 30: use 0 or more, below the side, 30",
		},
		{swarms.EntryObserve, observe(1, 1, -1, 1, 0, 0, 0), "agent 1 has the y -1: use 0 or more, below the side, 20"},
		{swarms.EntryObserve, observe(1, 1, 1, nan, 0, 0, 0), "agent 1 has the z NaN"},
		{
			swarms.EntryObserve, observe(1, 1, 1, 1, 3, 0, 0),
			"agent 1 has the vx 3: use a speed from -2 to 2, the radius",
		},
		{swarms.EntryObserve, observe(1, 1, 1, 1, 0, 0, nan), "agent 1 has the vz NaN"},
		{swarms.EntryQuery, []byte(`{"v":1,"groups":[1]}`), "query: groups in a box do not vote"},
		{swarms.EntryVote, []byte(`{"v":1,"round":1}`), "vote: agents in a box do not vote"},
		{swarms.EntryFuse, []byte(`{"v":1,"by":"all"}`), "fuse: agents in a box have no embeddings"},
	})
}

// TestBoxRoom: agents that the device has no room for are refused with the cure.
func TestBoxRoom(t *testing.T) {
	d, err := cuda.Open(t.Context(), "host", cuda.Options{MemoryLimit: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec, err := swarm.Parse("test.yaml", []byte(strings.Replace(boxText, "3000", "100000", 1)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = newWhole(d, nil, spec, spec.Groups())
	var refused *jobs.Error
	if !errors.As(err, &refused) || refused.Code != jobs.CodeDevice ||
		!strings.Contains(refused.Message, "neighbours: a box of 100000 agents takes") {
		t.Errorf("100,000 boids in 8 MiB: %v, want a refusal", err)
	}
}

// TestBoxCompute: expressions count the agents in a state, and take the speeds of boids.
func TestBoxCompute(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, boxText))
	ticked := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 3}).Ticked
	compute := func(text string) uint64 {
		a := mustApply(t, s, swarms.EntryCompute, swarms.Compute{Version: jobs.Version, Text: text})
		got, err := swarms.DecodeComputed(a.Data)
		if err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(append(slices.Clone(got.Outputs[0].Bits), make([]byte, 8)...))
	}
	if got := compute("sum(state == 1)"); got != ticked.Tally[1] {
		t.Errorf("%d agents are near another one, the tick has counted %d", got, ticked.Tally[1])
	}
	speed := math.Float64frombits(compute("max(sqrt(vx * vx + vy * vy + vz * vz))"))
	if speed < 0.05 || speed > 0.10001 {
		t.Errorf("the highest speed is %v radii a tick", speed)
	}
	if _, vars := Variables(s); len(vars) != 8 || vars[0].Name != "state" || vars[6].Name != "vz" ||
		vars[7].Name != "places" {
		t.Errorf("the variables are %+v", vars)
	}
}
