package shard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

const (
	// testPage is the size of the pages of pagedTexts.
	testPage = 4 << 10
	// pagedGroups is the number of groups of a swarm whose groups are addressed.
	pagedGroups = 24
)

// pagedTexts are swarms with several pages.
var pagedTexts = map[string]string{
	"gru": "name: x\naddressed: agent\nagents: 540\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"leaky": "name: x\naddressed: agent\nagents: 2000\nagents_per_group: 10\ncell: {kind: leaky}\n" +
		"vote: {rule: quorum, quorum: 0.3}\n",
	"lif": "name: x\nagents_per_group: 90\ncell: {kind: lif}\nfeatures: [a]\n",
	"own": "name: x\nagents_per_group: 20\ncell: {kind: gru, weights: group, params: {hidden: 4}}\nfeatures: [a]\n" +
		"observations: {duplicate: drop}\n",
}

// gruText is a swarm of a gru in one page.
const gruText = "name: x\naddressed: agent\nagents: 3300\nagents_per_group: 33\npage_size: 64KiB\n" +
	"features: [a, b]\nseed: 3\ncell: {kind: gru, params: {hidden: 5}}\n" +
	"vote: {candidates: [a, b, c], rule: majority}\n"

// parse returns the specification of a text, and its JSON.
func parse(t testing.TB, text string) (*swarm.Spec, []byte) {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	testkit.NoError(t, "swarm.Parse", err)
	data, err := json.Marshal(spec)
	testkit.NoError(t, "json.Marshal", err)
	return spec, data
}

// openWhole opens the state of a swarm of one shard; the caller closes it. pageBytes 0 uses the
// page size of the text.
func openWhole(t testing.TB, d device.Device, b *pages.Budget, text string, pageBytes int) state.State {
	t.Helper()
	spec, _ := parse(t, text)
	if pageBytes > 0 {
		spec.PageSize = testPage
	}
	groups := pagedGroups
	if spec.Topology().ByAgent {
		groups = spec.Groups()
	}
	s, err := state.New(d, b, spec, state.GroupRange{Shards: 1, Groups: groups, All: groups})
	testkit.NoError(t, "state.New", err)
	return s
}

// openPaged is openWhole with pages of testPage bytes.
func openPaged(t testing.TB, d device.Device, b *pages.Budget, text string) state.State {
	t.Helper()
	return openWhole(t, d, b, text, testPage)
}

// openSnapshotter opens a state that is begun as a snapshot, and the record of its swarm.
func openSnapshotter(
	t *testing.T, d device.Device, store snapshot.Store, text string, from *swarms.SnapshotRef,
) (*state.Snapshotter, swarms.Swarm) {
	t.Helper()
	spec, data := parse(t, text)
	s := swarms.Swarm{
		Version: jobs.Version, ID: "kept", Name: "kept", Spec: data, Groups: spec.Groups(), Shards: spec.Shards,
		From: from,
	}
	has := state.RangeOf(s, 0)
	st, err := state.New(d, nil, spec, has)
	testkit.NoError(t, "state.New", err)
	testkit.Close(t, st)
	return state.NewSnapshotter(st, s, spec, has, store), s
}

// openStore opens a store of snapshots.
func openStore(t *testing.T) snapshot.Store {
	t.Helper()
	b, err := bucket.OpenFolder(t.TempDir())
	testkit.NoError(t, "folder.Open", err)
	testkit.Close(t, b)
	return b
}

// take has a swarm write a snapshot.
func take(t *testing.T, k *state.Snapshotter, name string, seq uint64) swarms.Snapshotted {
	t.Helper()
	a, err := k.Apply(t.Context(), swarms.Entry{
		Seq: seq, Kind: swarms.EntrySnapshot, Data: []byte(`{"v":1,"name":"` + name + `"}`),
	})
	if err != nil || a.Kind != swarms.EntrySnapshotted {
		t.Fatalf("the snapshot is answered with %q, %v, want %q", a.Kind, err, swarms.EntrySnapshotted)
	}
	s, err := swarms.DecodeSnapshotted(a.Data)
	testkit.NoError(t, "swarms.DecodeSnapshotted", err)
	return s
}

// disk is a page store that can be opened again.
type disk struct {
	fs       *tierstest.Mem
	capacity int64
}

func newDisk() *disk { return &disk{tierstest.NewMem(1 << 30), 64 << 20} }

func (d *disk) open(t testing.TB) *pagestore.Store {
	t.Helper()
	s, err := pagestore.Open(pagestore.Options{
		FS: d.fs, Tables: tierstest.Backend{FS: d.fs}, PageSize: testPage,
		Tiers: []pagestore.Tier{{
			Name: "disk", Dir: "/disk", Capacity: d.capacity, SegmentBytes: 64 << 10, DiskReserve: -1,
		}},
	})
	testkit.NoError(t, "pagestore.Open", err)
	return s
}

// encoded is the data of an entry.
func encoded(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if e, ok := v.(interface{ Encode() ([]byte, error) }); ok {
		data, err = e.Encode()
	}
	testkit.NoError(t, "json.Marshal", err)
	return data
}

// contents are all pages of a memory.
func contents(t testing.TB, m *pages.Memory) []byte {
	t.Helper()
	all := make([]byte, m.Count()*m.PageBytes())
	for page := range m.Count() {
		testkit.NoError(t, "m.Read", m.Read(t.Context(), uint64(page), all[page*m.PageBytes():][:m.PageBytes()]))
	}
	return all
}

// applyAll applies entries and returns their answers.
func applyAll(t *testing.T, s state.State, all []swarms.Entry) (answers []state.Answer) {
	t.Helper()
	for i, e := range all {
		a, err := s.Apply(t.Context(), e)
		if err != nil {
			t.Fatalf("entry %d, %s: %v", i, e.Kind, err)
		}
		answers = append(answers, a)
	}
	return answers
}

// randomAgents are observations of agents; some agents have several.
func randomAgents(r *rand.Rand, agents, n, features int) *batch.AgentObservations {
	o := &batch.AgentObservations{Width: features}
	for i := range n {
		id := uint32(r.IntN(agents))
		if i > 0 && r.IntN(8) == 0 {
			id = o.Agent[r.IntN(i)]
		}
		o.Agent = append(o.Agent, id)
		for range features {
			o.Features = append(o.Features, float32(r.NormFloat64()))
		}
	}
	return o
}

// randomEntry is an entry of a log of a swarm of pagedTexts.
func randomEntry(t testing.TB, r *rand.Rand, text string) swarms.Entry {
	t.Helper()
	spec, _ := parse(t, text)
	width := max(1, len(spec.Features))
	switch n := r.IntN(4); {
	case spec.Topology().ByAgent && n == 0:
		return swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":2}`)}
	case n == 1:
		data := fmt.Appendf(nil, `{"v":1,"groups":[%d]}`, r.IntN(pagedGroups))
		return swarms.Entry{Kind: swarms.EntryQuery, Data: data}
	case spec.Topology().ByAgent:
		o := randomAgents(r, int(spec.Agents), 1+r.IntN(200), width)
		return swarms.Entry{Kind: swarms.EntryObserve, Data: encoded(t, o)}
	}
	o := &batch.Observations{Width: width}
	rows := make([]uint64, pagedGroups)
	for i := range 1 + r.IntN(200) {
		g, v := r.IntN(pagedGroups), r.Float64()
		rows[g]++
		o.Group, o.Row, o.Time = append(o.Group, uint32(g)), append(o.Row, rows[g]), append(o.Time, int64(i)*1e9)
		o.Read, o.Timestamp, o.Value = append(o.Read, 0), append(o.Timestamp, ""), append(o.Value, v)
		for range width {
			o.Features = append(o.Features, float32(v))
		}
	}
	return swarms.Entry{Kind: swarms.EntryObserve, Data: encoded(t, o)}
}

// customSpec is a swarm with a custom cell.
func customSpec(t testing.TB, of celltest.Cell, agents int, rule string) *swarm.Spec {
	t.Helper()
	spec := swarm.Spec{
		Name: "x", Cell: swarm.Cell{Kind: "custom", Params: of.Params, State: of.State, Step: of.Step},
		AgentsPerGroup: agents, Vote: swarm.Vote{Candidates: of.Candidates, Rule: rule}, PageSize: 1 << 20, Seed: 1,
	}
	data, err := json.Marshal(spec)
	testkit.NoError(t, "json.Marshal", err)
	read, err := swarm.FromJSON(data)
	testkit.NoError(t, "swarm.FromJSON", err)
	return read
}
