package gpuprocess

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestOutcomeGoesOn: agents that hear decisions are the same, and so are outcomes and terms, when
// one agent process serves the swarm and when several come one after another: with checkpoints, and
// without, where each replays the log from its start. So they are when the shard is parked between
// entries.
func TestOutcomeGoesOn(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(25, 4))
	var all []swarms.Entry
	add := func(kind string, v any) {
		t.Helper()
		data, err := json.Marshal(v)
		if o, ok := v.(*batch.AgentObservations); ok {
			data, err = o.Encode()
		}
		if err != nil {
			t.Fatalf("encode a %s: %v", kind, err)
		}
		all = append(all, swarms.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: data})
	}
	for range 6 {
		add(swarms.EntryObserve, inputs(r))
		add(swarms.EntryVote, swarms.Vote{Version: jobs.Version, Priority: swarms.PrioritySeeded})
		add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 2})
		add(swarms.EntryQuery, swarms.Query{Version: jobs.Version, Outcome: true})
		add(swarms.EntryQuery, swarms.Query{Version: jobs.Version, Agents: []uint32{0, 1, 2, 17, 500, 899}})
	}
	text := "hear: [decision, leader]\ncell: {kind: gru, params: {hidden: 5}}\n"
	want := serveHearing(t, text, nil, all, false, false, len(all))
	for i, e := range all {
		if e.Kind != swarms.EntryVote {
			continue
		}
		if got := strings.TrimPrefix(want[i+2], "outcome "); got != strings.TrimPrefix(want[i], "voted ") ||
			!strings.Contains(got, `"term":`) {
			t.Fatalf("the outcome is %s after the vote %s", got, want[i])
		}
	}
	goesOn(t, text, nil, all, want)
}

// goesOn compares answers with the answers of several processes that serve a swarm one after
// another. models is their place of snapshots; nil: they have none.
func goesOn(t *testing.T, text string, models snapshot.Store, all []swarms.Entry, want []string) {
	t.Helper()
	if d := cmp.Diff(want, serveHearing(t, text, models, all, true, false, 7)); d != "" {
		t.Errorf("with checkpoints: difference (-one process +several):\n%s", d)
	}
	if testing.Short() {
		return // the others take half a minute with the race detector
	}
	if d := cmp.Diff(want, serveHearing(t, text, models, all, false, false, 4)); d != "" {
		t.Errorf("with replays: difference (-one process +several):\n%s", d)
	}
	if d := cmp.Diff(want, serveHearing(t, text, models, all, false, true, len(all))); d != "" {
		t.Errorf("parked: difference (-one process +parked):\n%s", d)
	}
}

// serveHearing returns the answers to entries of a swarm of 900 agents that hear something.
// Processes serve it one after another, each a number of entries: with checkpoints if keep is set,
// and parked between entries if park is. models is their place of snapshots; nil: they have none.
func serveHearing(
	t *testing.T, text string, models snapshot.Store, all []swarms.Entry, keep, park bool, each int,
) (said []string) {
	t.Helper()
	rig, dir := newRig(t), t.TempDir()
	rig.logs(t, "x", nil)
	rig.put(t, "x", "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\npage_size: 64KiB\n"+
		"features: [a, b]\n"+text+
		"vote: {candidates: [a, b, c], rule: majority}\ncheckpoint: {interval: 1h, entries: 3}\n")
	others := 0
	if park {
		rig.logs(t, "other", nil)
		rig.put(t, "other", byAgent)
	}
	for from := 0; from < len(all); from += each {
		o := gpuagents.Options{Snapshots: models}
		if keep {
			o.Checkpoints = checkpointsIn(filepath.Join(dir, "kept"))
		}
		if park {
			o.OpenShards = 1
		}
		a := rig.start(t, o)
		for i := from; i < min(from+each, len(all)); i++ {
			answer := rig.told(t, "x", i+1, all[i])
			said = append(said, answer.Kind+" "+string(answer.Data))
			if park && i%4 == 1 { // behind a vote or another entry, the other swarm takes the place
				others++
				rig.told(t, "other", others,
					swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)})
				rig.crowd(t, a, 1)
			}
		}
		a.Stop()
	}
	return said
}
