package gpuprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// randomModel stores random weights of a gru of 4 units.
func randomModel(
	t *testing.T, store snapshot.Store, name string, inputs, candidates int64, seed uint64,
) swarms.ModelRef {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var all []safetensors.Values
	for name, shape := range map[string][]int64{
		"weight_ih": {12, inputs}, "weight_hh": {12, 4}, "bias_ih": {12}, "bias_hh": {12},
		"readout.weight": {candidates, 4}, "readout.bias": {candidates},
	} {
		v := safetensors.Values{Name: name, Shape: shape}
		n := shape[0]
		if len(shape) > 1 {
			n *= shape[1]
		}
		for range n {
			v.Of = append(v.Of, 2*r.Float32()-1)
		}
		all = append(all, v)
	}
	var data bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&data, all))
	_, digest, err := model.Save(t.Context(), store, name, data.Bytes())
	testkit.NoError(t, "model.Save", err)
	return swarms.ModelRef{Name: name, SHA256: digest}
}

// TestModels: a swarm with a model, which adopts another one and asks for one that is not there,
// goes on through agents with and without checkpoints as under one agent. An agent that needs a
// model that is gone waits for it, and names it.
func TestModels(t *testing.T) {
	t.Parallel()
	r, dir, data := newRig(t), t.TempDir(), t.TempDir()
	store := place(t, dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.String())
		}
	})
	one, two := randomModel(t, store, "one", 1, 2, 1), randomModel(t, store, "two", 1, 2, 2)
	late := randomModel(t, store, "late", 1, 2, 3)
	move := func(from, to string) {
		testkit.NoError(t, "os.Rename", os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	move("late.model", "late.away")
	spec, err := swarm.Parse("test.yaml", []byte("name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\n"+
		"page_size: 64KiB\nvote: {candidates: [a, b]}\ncheckpoint: {interval: 1h, entries: 1}\ncell: {kind: gru, "+
		"params: {hidden: 4}, model: one, model_sha256: "+one.SHA256+"}\n"))
	testkit.NoError(t, "swarm.Parse", err)
	text, err := json.Marshal(spec)
	testkit.NoError(t, "json.Marshal", err)
	begin := func(id string) {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			testkit.NoError(t, "Create", r.conn.Swarms.Log(id, 0, d).Create(t.Context()))
		}
		r.record(t, swarms.Swarm{Version: jobs.Version, ID: id, Name: "x", Spec: text, Groups: spec.Groups()})
	}
	entries := map[string]int{}
	add := func(id, kind string, v any) {
		r.entry(t, id, entries[id], kind, v)
		entries[id]++
	}
	look := func(id string) {
		add(id, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 3})
		add(id, swarms.EntryQuery, swarms.Query{Version: jobs.Version, Agents: []uint32{0, 9, 63}})
	}
	adopt := func(id string, ref swarms.ModelRef) {
		add(id, swarms.EntryAdopt, swarms.Adopt{Version: jobs.Version, ModelRef: ref})
	}
	begin("broken")
	begin("whole")
	first := func(id string) {
		look(id)
		adopt(id, two)
		adopt(id, late) // refused: it is not there yet
		look(id)
	}
	first("broken")
	first("whole")
	a := r.keepingAgent(t, nil, store)
	for _, id := range []string{"broken", "whole"} {
		for number, want := range map[int]string{
			3: swarms.EntryAdopted, 4: swarms.EntryRejected, entries[id]: swarms.EntryState,
		} {
			if e := r.reply(t, id, number); e.Kind != want {
				t.Fatalf("entry %d of %s is answered with %s %s, want %s", number, id, e.Kind, e.Data, want)
			}
		}
	}
	look("whole")
	look("whole")
	r.answered(t, "whole", entries["whole"])
	a.Stop()
	// The model that was refused is there now, and the replay is as before. The adopted one is
	// gone.
	move("late.away", "late.model")
	move("two.model", "two.away")
	look("broken")
	r.Reset()
	b := r.keepingAgent(t, checkpointsIn(data), store)
	r.logged(t, "shard failed, starting again\" swarm=broken error=\"log entry 3: model two: model not found")
	move("two.away", "two.model")
	r.answered(t, "broken", entries["broken"])
	b.Stop()
	// The checkpoint has the adopted model.
	r.Reset()
	look("broken")
	c := r.keepingAgent(t, checkpointsIn(data), store)
	r.logged(t, "shard resumed from its checkpoint\" swarm=broken")
	r.answered(t, "broken", entries["broken"])
	for k := range entries["whole"] {
		got, want := r.reply(t, "broken", k+1), r.reply(t, "whole", k+1)
		if got.Kind != want.Kind || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("answer %d is %s %q, want %s %q of the swarm that was served by one agent", k+1, got.Kind,
				got.Data, want.Kind, want.Data)
		}
	}
	c.Stop()
	// The model of the specification is gone: a new swarm is refused, with its name.
	move("one.model", "one.away")
	begin("late")
	d := r.keepingAgent(t, nil, store)
	if e := r.reply(t, "late", 1); e.Kind != swarms.EntryRejected ||
		!bytes.Contains(e.Data, []byte("model one: model not found")) {
		t.Errorf("without its model a swarm is answered with %s %s", e.Kind, e.Data)
	}
	d.Stop()
}

// TestModelsGoOn: a swarm that adopts one model after another, and hears its decisions, is the same
// when one agent process serves it and when several come one after another, with checkpoints, with
// replays and parked.
func TestModelsGoOn(t *testing.T) {
	t.Parallel()
	store, r := place(t, t.TempDir()), rand.New(rand.NewPCG(26, 12))
	var refs []swarms.ModelRef
	for k, name := range []string{"one", "two", "three"} {
		refs = append(refs, randomModel(t, store, name, 3, 3, uint64(k)))
	}
	refs = append(refs, swarms.ModelRef{Name: "gone", SHA256: refs[0].SHA256}) // refused
	var all []swarms.Entry
	add := func(kind, data string) {
		all = append(all, swarms.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: []byte(data)})
	}
	for range 8 {
		data, err := inputs(r).Encode()
		testkit.NoError(t, "Encode", err)
		add(swarms.EntryObserve, string(data))
		add(swarms.EntryVote, `{"v":1}`)
		ref := refs[r.IntN(len(refs))]
		add(swarms.EntryAdopt, fmt.Sprintf(`{"v":1,"name":%q,"sha256":%q}`, ref.Name, ref.SHA256))
		add(swarms.EntryTick, `{"v":1,"count":2}`)
		add(swarms.EntryQuery, `{"v":1,"agents":[0,1,2,17,500,899]}`)
	}
	text := "hear: [decision]\ncell: {kind: gru, params: {hidden: 4}}\n"
	want := serveHearing(t, text, store, all, false, false, len(all))
	for i, e := range all {
		kind, data, _ := strings.Cut(want[i], " ")
		if e.Kind == swarms.EntryAdopt && kind != swarms.EntryAdopted && !strings.Contains(data, "model gone") {
			t.Fatalf("entry %d: %s", i+1, want[i])
		}
	}
	goesOn(t, text, store, all, want)
}
