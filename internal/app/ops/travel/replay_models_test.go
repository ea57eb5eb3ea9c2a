package travel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/model/modeltest"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// noSnapshots is a place that shows no snapshots.
type noSnapshots struct{ snapshot.Store }

func (noSnapshots) Folders(context.Context) ([]string, error) { return nil, nil }

// cellsModel returns a file of random weights for cells.
func (c *testCluster) cellsModel() []byte {
	c.t.Helper()
	spec, err := swarm.Parse("swarm.yaml", []byte(cells))
	testkit.NoError(c.t, "swarm.Parse", err)
	cell, err := spec.Address()
	testkit.NoError(c.t, "Address", err)
	var all []safetensors.Values
	for name, shape := range map[string][2]int64{
		"weight_ih": {12, int64(cell.Features + cell.Hears)}, "weight_hh": {12, 4}, "bias_ih": {12, 0},
		"bias_hh": {12, 0}, "readout.weight": {2, 4}, "readout.bias": {2, 0},
	} {
		v := safetensors.Values{Name: name, Shape: []int64{shape[0]}}
		if shape[1] > 0 {
			v.Shape = append(v.Shape, shape[1])
		}
		for range shape[0] * max(1, shape[1]) {
			v.Of = append(v.Of, float32(c.rng.NormFloat64()))
		}
		all = append(all, v)
	}
	var b bytes.Buffer
	testkit.NoError(c.t, "safetensors.Write", safetensors.Write(&b, all))
	return b.Bytes()
}

// TestReplayModels: a replay adopts what the agents have adopted, from the log, from a snapshot and
// from a kept moment, and leaves out what they have refused, though the model is there now.
func TestReplayModels(t *testing.T) {
	c := newCluster(t)
	c.agent("a", nil)
	s := c.create(cells)
	late := c.cellsModel()
	adopt := func(ref swarms.ModelRef, want string) {
		t.Helper()
		data, err := json.Marshal(swarms.Adopt{Version: jobs.Version, ModelRef: ref})
		testkit.NoError(t, "json.Marshal", err)
		n := c.append(s, 0, swarms.Entry{Kind: swarms.EntryAdopt, Data: data})
		if e := c.answered(s, 0, n); e.Kind != want {
			t.Fatalf("the adoption of %s is answered with %s %s, want %s", ref.Name, e.Kind, e.Data, want)
		}
	}
	save := func(in snapshot.Store, name string, data []byte) swarms.ModelRef {
		t.Helper()
		_, digest, err := model.Save(t.Context(), in, name, data)
		testkit.NoError(t, "model.Save", err)
		return swarms.ModelRef{Name: name, SHA256: digest}
	}
	elsewhere, err := bucket.OpenFolder(t.TempDir())
	testkit.NoError(t, "bucket.OpenFolder", err)
	testkit.Close(t, elsewhere)
	missing := save(elsewhere, "late", late)
	var marks []uint64
	for _, name := range []string{"one", "two"} {
		c.fill(s, 0, 10)
		adopt(save(c.snapshots, name, c.cellsModel()), swarms.EntryAdopted)
		adopt(missing, swarms.EntryRejected)
		c.fill(s, 0, 10)
		marks = append(marks, c.snapshot(s, 0, name))
	}
	save(c.snapshots, "late", late)
	fromLog, fromSnapshot := c.replayer(func(o *ReplayOptions) { o.Snapshots = noSnapshots{c.snapshots} }),
		c.replayer(withSnapshots(c))
	for i, entry := range marks {
		want, err := fromSnapshot.At(t.Context(), s, 0, entry, Bounds{})
		testkit.NoError(t, "At by a snapshot", err)
		for _, r := range []*Replayer{fromLog, c.replayer(func(o *ReplayOptions) {
			o.Snapshots = noSnapshots{c.snapshots}
		})} {
			got, err := r.At(t.Context(), s, 0, entry, Bounds{})
			testkit.NoError(t, "At", err)
			if same, err := got.Same(want); err != nil || !same {
				t.Errorf("entry %d from %+v: the replay differs from the live state: %v", entry, got.Start, err)
			}
			if r == fromLog && i == 1 && got.Start.Kind != StartMoment {
				t.Errorf("the second replay begins with %+v, want a kept moment", got.Start)
			}
		}
	}
	if _, err := c.replayer(nil).At(t.Context(), s, 0, marks[0], Bounds{}); err == nil ||
		!strings.Contains(err.Error(), "model one: no models are read here") {
		t.Errorf("without a place: %v, want an error that names the model", err)
	}
}

// TestReplayConversations: a replay draws the tokens that the agents have drawn.
func TestReplayConversations(t *testing.T) {
	c := newCluster(t)
	ref := modeltest.Load(t, c.snapshots)
	files := bucket.FilesOf(c.snapshots.(bucket.Bucket), "")
	testkit.Close(t, files)
	c.models = files
	c.agent("a", nil)
	s := c.create("name: talk\naddressed: agent\nagents: 6\ncell: {kind: transformer, model: small, model_sha256: " +
		ref.SHA256 + ", exact: true, cache_bytes: 256, params: {context: 64}}\npage_size: 64KiB\n")
	say := func(kind, format string, args ...any) uint64 {
		t.Helper()
		n := c.append(s, 0, swarms.Entry{Kind: kind, Data: fmt.Appendf(nil, format, args...)})
		if e := c.answered(s, 0, n); e.Kind == swarms.EntryRejected {
			t.Fatalf("%s is refused: %s", kind, e.Data)
		}
		return n
	}
	for agent := range 4 {
		say(swarms.EntryPrompt, `{"v":1,"agent":%d,"tokens":[3,%d],"max":9,"sampling":{"temperature":1}}`, agent, agent)
		say(swarms.EntryTick, `{"v":1,"count":2}`)
	}
	last := say(swarms.EntryTick, `{"v":1,"count":20}`)
	saved := c.snapshot(s, 0, "kept")
	at := func(entry uint64, place snapshot.Store) (*ReplayMoment, error) {
		r := c.replayer(func(o *ReplayOptions) { o.Models, o.Snapshots = files, place })
		return r.At(t.Context(), s, 0, entry, Bounds{})
	}
	want, err := at(saved, c.snapshots)
	testkit.NoError(t, "At by a snapshot", err)
	got, err := at(last, noSnapshots{c.snapshots})
	testkit.NoError(t, "At", err)
	if same, err := got.Same(want); err != nil || !same {
		t.Errorf("the replay differs from the snapshot: %v", err)
	}
	if _, err := c.replayer(withSnapshots(c)).At(t.Context(), s, 0, last, Bounds{}); err == nil ||
		!strings.Contains(err.Error(), "no language models are read here") {
		t.Errorf("without files of models: %v, want an error", err)
	}
}
