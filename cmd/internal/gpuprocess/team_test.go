package gpuprocess

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// teamTexts are swarms whose ticks several devices make, with the most value of an observation, and
// as many agents.
var teamTexts = map[string]struct {
	text         string
	most, agents int
}{
	"grid": {"name: x\naddressed: agent\ndevices: 3\npage_size: 64KiB\ncell: {kind: life}\nneighbours: {width: 384, " +
		"height: 301, periodic: true}\n", 1, 384 * 301},
	"graph": {"name: x\naddressed: agent\ndevices: 3\npage_size: 64KiB\nagents: 115584\ncell: {kind: sir, params: " +
		"{infection: 0.1, recovery: 0.05}}\nneighbours: {random: {degree: 10, seed: 1}}\n", 2, 115_584},
	"neurons": {"name: x\naddressed: agent\ndevices: 3\npage_size: 64KiB\nagents: 12000\ncell: {kind: lif, params: " +
		"{noise: 0.4, inhibitory: 0.2}}\nneighbours: {random: {degree: 10, seed: 1, delay: [1, 3]}}\n", 1, 12_000},
}

// teamLife is entries of such a swarm: observations, ticks, and at last its states.
func teamLife(t *testing.T, most, agents int) (entries []swarms.Entry) {
	t.Helper()
	r := rand.New(rand.NewPCG(60, 1))
	add := func(kind string, v any) {
		data, err := json.Marshal(v)
		if o, ok := v.(*batch.AgentObservations); ok {
			data, err = o.Encode()
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, swarms.Entry{Kind: kind, Data: data})
	}
	for i := range 6 {
		o := &batch.AgentObservations{Width: 1}
		for range 30_000 {
			o.Agent = append(o.Agent, uint32(r.IntN(agents)))
			o.Features = append(o.Features, float32(r.IntN(most+1)))
		}
		add(swarms.EntryObserve, o)
		count := []int{40, 1, 100, 75, 40, 90}[i]
		if testing.Short() {
			count = (count + 3) / 4
		}
		add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: count})
	}
	for first := uint32(0); first < uint32(agents); first += 60_000 {
		q := swarms.Query{Version: jobs.Version}
		for id := first; id < min(first+60_000, uint32(agents)); id++ {
			q.Agents = append(q.Agents, id)
		}
		add(swarms.EntryQuery, q)
	}
	return entries
}

// on is the answers of a swarm to entries, by kind and content. before is called before the last
// half.
func (r *rig) on(t *testing.T, id, text string, agents int, entries []swarms.Entry, before func()) (answers []string) {
	t.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(id, 0, d).Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.putAll(t, id, text, agents)
	for i, e := range entries {
		if i == len(entries)/2 {
			before()
		}
		e.Ref = uint64(i) + 1
		if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(t.Context(), uint64(i), e); err != nil {
			t.Fatal(err)
		}
		got := r.reply(t, id, i+1)
		answers = append(answers, got.Kind+string(got.Data))
	}
	return answers
}

// TestTeam: an agent with three devices makes the ticks of a swarm with devices: 3 on all of them,
// shows them, and answers as an agent with one. When a member fails, the failure counts at that
// device, the shard starts again from its log, and continues with the devices that work.
func TestTeam(t *testing.T) {
	t.Parallel()
	for name, c := range teamTexts {
		if testing.Short() && name != "neurons" {
			continue // minutes with the race detector; neurons have the same goroutines
		}
		t.Run(name, func(t *testing.T) {
			entries := teamLife(t, c.most, c.agents)
			single := newRig(t)
			single.start(t, gpuagents.Options{})
			want := single.on(t, name, c.text, c.agents, entries, func() {})
			for _, failing := range []bool{false, true} {
				s := newSeveral(t, 100, 100, 100)
				launches := s.devices[1].Calls(faults.Launch)
				got := s.on(t, name, c.text, c.agents, entries, func() {
					teams := s.agent.Teams()
					if len(teams) != 1 || !slices.Equal(teams[0].Devices, []string{"gpu0", "gpu1", "gpu2"}) ||
						teams[0].Shard != swarms.LeaseKey(name, 0) {
						t.Fatalf("the teams are %+v", teams)
					}
					if r := record(s.agent, s.opened(), nil, nil, 9); len(r.Teams) != 1 {
						t.Errorf("the registry says %+v", r.Teams)
					}
					if a, b := s.labelled(t, "exoswarm_gpuagent_shared_shards", "gpu0"),
						s.labelled(t, "exoswarm_gpuagent_shared_shards", "gpu2"); a != 0 || b != 1 {
						t.Errorf("%v and %v shards share devices", a, b)
					}
					if failing {
						s.devices[1].Fail(faults.Launch, 0, 1<<30, device.ErrTransient)
					}
				})
				if s.devices[1].Calls(faults.Launch) == launches {
					t.Error("a member has made nothing")
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("failing %v: answer %d differs from an agent with one device", failing, i+1)
					}
				}
				levels := s.agent.Levels()
				if !failing {
					if !slices.Equal(levels, []pool.Level{pool.Normal, pool.Normal, pool.Normal}) {
						t.Errorf("levels %v", levels)
					}
					continue
				}
				if levels[0] != pool.Normal || levels[1] != pool.OnHost || levels[2] != pool.Normal {
					t.Errorf("levels %v, want the member on the host", levels)
				}
				if teams := s.agent.Teams(); len(teams) != 1 ||
					!slices.Equal(teams[0].Devices, []string{"gpu0", "gpu2"}) {
					t.Errorf("the teams are %+v, want one without the device that fails", teams)
				}
			}
		})
	}
}

// opened is the devices of an agent.
func (s *several) opened() (all []device.Device) {
	for _, d := range s.devices {
		all = append(all, d)
	}
	return all
}

// putAll writes the record of a swarm of a number of agents.
func (r *rig) putAll(t *testing.T, id, text string, agents int) {
	t.Helper()
	spec, err := swarm.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if int64(agents) != spec.Agents {
		t.Fatalf("%d agents, want %d", spec.Agents, agents)
	}
	r.record(t, swarms.Swarm{Version: jobs.Version, ID: id, Name: spec.Name, Spec: data, Groups: spec.Groups()})
}
