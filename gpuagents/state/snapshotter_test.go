package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const keptGroups = 82

// keptTexts are swarms of both populations, and of all cells.
var keptTexts = map[string]string{
	"gru by agent":   gruText,
	"bf16":           strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1),
	"items by agent": askingText,
	"leaky by agent": "name: x\naddressed: agent\nagents: 3000\nagents_per_group: 10\npage_size: 64KiB\ncell: " +
		"{kind: leaky}\nvote: {rule: quorum, quorum: 0.3}\n",
	"quantum":   quantumText("agents: 3000\nagents_per_group: 10\npage_size: 64KiB\n"),
	"predictor": "name: x\nagents_per_group: 48\npage_size: 64KiB\n",
	"lif":       "name: x\nagents_per_group: 7\npage_size: 64KiB\ncell: {kind: lif}\nfeatures: [a, b]\n",
	"leaky":     "name: x\nagents_per_group: 16\npage_size: 64KiB\ncell: {kind: leaky}\n",
	"gru":       "name: x\nagents_per_group: 16\npage_size: 64KiB\ncell: {kind: gru}\n",
}

func openSnapshotter(t *testing.T, d device.Device, store snapshot.Store, text string, groups int,
	from *swarms.SnapshotRef,
) *Snapshotter {
	t.Helper()
	return openSnapshotterIn(t, d, nil, store, text, groups, from)
}

// openSnapshotterIn is openSnapshotter with pages of what b has.
func openSnapshotterIn(t *testing.T, d device.Device, b *pages.Budget, store snapshot.Store, text string, groups int,
	from *swarms.SnapshotRef,
) *Snapshotter {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	if spec.Topology().ByAgent {
		groups = spec.Groups()
	}
	return openShard(t, d, b, store, spec, groups, 0, from)
}

// openShard is a shard of a swarm with a number of groups.
func openShard(t testing.TB, d device.Device, b *pages.Budget, store snapshot.Store, spec *swarm.Spec, groups,
	shard int, from *swarms.SnapshotRef,
) *Snapshotter {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	s := swarms.Swarm{
		Version: jobs.Version, ID: "kept", Name: "kept", Spec: data, Groups: groups, Shards: spec.Shards,
		From: from,
	}
	has := RangeOf(s, shard)
	p, err := New(d, b, spec, has)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	testkit.Close(t, p)
	return NewSnapshotter(p, s, spec, has, store)
}

func openStore(t *testing.T) snapshot.Store {
	t.Helper()
	b, err := bucket.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatalf("folder.Open: %v, want no error", err)
	}
	testkit.Close(t, b)
	return b
}

// entriesFor are entries for the groups or agents that all swarms of a test have.
// cellOf returns the cell of a swarm whose agents are addressed and have no neighbours.
func cellOf(k *Snapshotter) *cells.Addressed { return k.State.(*agentState).agents.Cell() }

func entriesFor(k *Snapshotter, r *rand.Rand, n int) (all []swarms.Entry) {
	for range n {
		var v interface{ Encode() ([]byte, error) } = observations(r, keptGroups, 100, len(k.spec.Features))
		if k.spec.Topology().ByAgent {
			v = randomFor(r, 2500, 200, cellOf(k))
		}
		data, err := v.Encode()
		if err != nil {
			panic(err)
		}
		all = append(all, swarms.Entry{Kind: swarms.EntryObserve, Data: data})
		if k.spec.Topology().ByAgent {
			all = append(all,
				swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":2}`)},
				swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"agents":[0,1,2,17,2499]}`)},
				swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"groups":[0,1,2,17,80]}`)})
		}
	}
	return all
}

func applyAll(t *testing.T, p State, all []swarms.Entry) (answers []Answer) {
	t.Helper()
	for i, e := range all {
		a, err := p.Apply(t.Context(), e)
		if err != nil {
			t.Fatalf("entry %d, %s: %v", i, e.Kind, err)
		}
		answers = append(answers, a)
	}
	return answers
}

func take(t *testing.T, k *Snapshotter, name string, seq uint64) swarms.Snapshotted {
	t.Helper()
	a, err := k.Apply(t.Context(), swarms.Entry{
		Seq: seq, Kind: swarms.EntrySnapshot,
		Data: []byte(`{"v":1,"name":"` + name + `"}`),
	})
	if err != nil || a.Kind != swarms.EntrySnapshotted {
		t.Fatalf("the snapshot is answered with %q, %v, want %q", a.Kind, err, swarms.EntrySnapshotted)
	}
	s, err := swarms.DecodeSnapshotted(a.Data)
	if err != nil {
		t.Fatalf("swarms.DecodeSnapshotted: %v, want no error", err)
	}
	return s
}

// TestKept: of every kind of swarm a snapshot goes on as the swarm does, answer by answer and bit
// for bit, in pages of another size, among more groups, among fewer, and over a second snapshot,
// which is the same but for its swarm.
func TestKept(t *testing.T) {
	for name, text := range keptTexts {
		t.Run(name, func(t *testing.T) {
			d, store := openHost(t), openStore(t)
			k := openSnapshotter(t, d, store, text, keptGroups+10, nil)
			r := rand.New(rand.NewPCG(1, 2))
			applyAll(t, k, entriesFor(k, r, 2))
			s := take(t, k, "one", 4)
			if s.Entry != 4 || s.Agents != k.Info().Agents || s.Groups != k.swarm.Groups || s.Bytes == 0 {
				t.Fatalf("%+v, want entry 4, %d agents, %d groups and bytes", s, k.Info().Agents, k.swarm.Groups)
			}
			from := &swarms.SnapshotRef{Name: "one", SHA256: s.SHA256}
			others := map[string]*Snapshotter{
				"other pages": openSnapshotter(t, d, store, strings.Replace(text, "64KiB", "132KiB", 1), keptGroups+10,
					from),
				"more": openSnapshotter(t, d, store,
					strings.NewReplacer("3300", "4290", "3000", "5000").Replace(text), 3*keptGroups, from),
				"fewer": openSnapshotter(t, d, store, strings.Replace(text, "3300", "3036", 1), keptGroups, from),
			}
			for what, o := range others {
				if err := o.Load(t.Context(), *from); err != nil {
					t.Fatalf("%s: load: %v, want no error", what, err)
				}
				o.rounds.last = 0
				for page, made := range o.Memory().Made() {
					if made != o.Memory().Dirty()[page] {
						t.Errorf("%s: the first checkpoint would be wrong about page %d", what, page)
					}
				}
				if o.Info().Digest == o.State.Info().Digest {
					t.Errorf("%s: its pages mean what they do without the snapshot", what)
				}
			}
			all := entriesFor(k, r, 2)
			if s, ok := k.State.(*agentState); ok {
				tallies(t, s, others)
			}
			want := applyAll(t, k, all)
			for what, o := range others {
				for i, got := range applyAll(t, o, all) {
					if got.Kind == swarms.EntryTicked && what != "other pages" {
						continue // it counts other agents
					}
					if got.Kind != want[i].Kind || !bytes.Equal(got.Data, want[i].Data) {
						t.Fatalf("%s: answer %d, %s, differs", what, i, got.Kind)
					}
				}
			}
			o := others["other pages"]
			o.swarm.From = nil
			o.swarm.Spec = k.swarm.Spec
			if a, b := take(t, k, "two", 9), take(t, others["other pages"], "three", 9); a.Bytes != b.Bytes {
				t.Errorf("%+v and %+v", a, b)
			}
			a, b := variables(t, store, "two"), variables(t, store, "three")
			if a != b {
				t.Errorf("snapshots of one state:\n%s\n%s", a, b)
			}
		})
	}
}

// tallies compares what is beside the pages, which the next tick would count anew: one agent steps
// with inputs of zeros.
func tallies(t *testing.T, s *agentState, others map[string]*Snapshotter) {
	t.Helper()
	inputs := make([]float32, s.agents.Cell().Width())
	want, err := s.agents.Observe(t.Context(), []uint32{3}, inputs)
	if err != nil {
		t.Fatalf("agents.Observe: %v, want no error", err)
	}
	for what, o := range others {
		got, err := o.State.(*agentState).agents.Observe(t.Context(), []uint32{3}, inputs)
		if err != nil {
			t.Fatalf("agents.Observe: %v, want no error", err)
		}
		if what == "other pages" && !slices.Equal(got.Tally, want.Tally) {
			t.Errorf("tallies %v and %v", got.Tally, want.Tally)
		}
	}
}

// variables are the files of a snapshot with their checksums.
func variables(t *testing.T, store snapshot.Store, name string) string {
	t.Helper()
	m, _, err := snapshot.ReadManifest(t.Context(), store, name)
	if err != nil {
		t.Fatalf("snapshot.ReadManifest: %v, want no error", err)
	}
	if err := snapshot.Verify(t.Context(), store, m, nil); err != nil {
		t.Fatalf("snapshot.Verify: %v, want no error", err)
	}
	return fmt.Sprintf("%+v", m.Variables)
}

// TestReset: after a reset agents answer as new ones do, and the next checkpoint has no pages of
// before.
func TestReset(t *testing.T) {
	for name, text := range keptTexts {
		t.Run(name, func(t *testing.T) {
			d := openHost(t)
			k, fresh := openSnapshotter(t, d, nil, text, keptGroups, nil),
				openSnapshotter(t, d, nil, text, keptGroups, nil)
			r := rand.New(rand.NewPCG(5, 6))
			applyAll(t, k, entriesFor(k, r, 2))
			a, err := k.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryReset, Data: []byte(`{"v":1}`)})
			if err != nil || a.Kind != swarms.EntryCleared || string(a.Data) != `{"v":1}` {
				t.Fatalf("the reset is answered with %+v, %v, want %q", a, err, swarms.EntryCleared)
			}
			if slices.Contains(k.Memory().Made(), true) {
				t.Error("the next checkpoint would have pages of before")
			}
			all := entriesFor(k, r, 2)
			want := applyAll(t, fresh, all)
			for i, got := range applyAll(t, k, all) {
				if got.Kind != want[i].Kind || !bytes.Equal(got.Data, want[i].Data) {
					t.Fatalf("answer %d, %s, differs from new agents", i, got.Kind)
				}
			}
		})
	}
}

// failing is a store whose writes fail.
type failing struct{ snapshot.Store }

// Create implements snapshot.Store.
func (failing) Create(context.Context, string) (snapshot.Object, error) {
	return nil, errors.New("no space left on device")
}

func (f failing) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return f.Store.Open(ctx, name)
}

// TestKeptRefused: what cannot be kept or continued is answered with a sentence, what the device or
// a drain breaks off is not.
func TestKeptRefused(t *testing.T) {
	d, store := openHost(t), openStore(t)
	k := openSnapshotter(t, d, store, gruText, 0, nil)
	s := take(t, k, "one", 1)
	refused := func(what string, err error, code jobs.Code, says string) {
		t.Helper()
		var r *jobs.Error
		if !errors.As(err, &r) || r.Code != code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %s: %s", what, err, code, says)
		}
	}
	snap := func(k *Snapshotter, seq uint64, data string) error {
		_, err := k.Apply(t.Context(), swarms.Entry{Seq: seq, Kind: swarms.EntrySnapshot, Data: []byte(data)})
		return err
	}
	refused("another entry", snap(k, 2, `{"v":1,"name":"one"}`), jobs.CodeInvalid, "exists already: of entry 1 of "+
		"swarm kept: choose another name")
	refused("path", snap(k, 2, `{"v":1,"name":"../one"}`), jobs.CodeInvalid, "use 1 to 64 letters")
	refused("field", snap(k, 2, `{"v":1,"name":"a","to":"/"}`), jobs.CodeInvalid, `unknown field "to"`)
	_, err := k.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryReset, Data: []byte(`{"v":1,"seed":3}`)})
	refused("seed", err, jobs.CodeInvalid, `unknown field "seed"`)
	if again := take(t, k, "one", 1); again != s {
		t.Errorf("the same entry once more: %+v, before %+v", again, s)
	}
	full := openSnapshotter(t, d, failing{store}, gruText, 0, nil)
	refused("full disk", snap(full, 2, `{"v":1,"name":"two"}`), jobs.CodeIO, "no space left on device: see that the "+
		"place has room")
	refused("no store", snap(openSnapshotter(t, d, nil, gruText, 0, nil), 2, `{"v":1,"name":"two"}`), jobs.CodeInvalid,
		"start all of them with --snapshots")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	_, err = k.Apply(ctx, swarms.Entry{Seq: 2, Kind: swarms.EntrySnapshot, Data: []byte(`{"v":1,"name":"two"}`)})
	if r := (*jobs.Error)(nil); !errors.Is(err, jobs.ErrDrain) || errors.As(err, &r) {
		t.Errorf("drained: %v", err)
	}

	from := swarms.SnapshotRef{Name: "one", SHA256: s.SHA256}
	for says, c := range map[string]struct {
		text string
		from swarms.SnapshotRef
		code jobs.Code
	}{
		"its parameter hidden of the cell is 5, and 6 in the swarm": {strings.Replace(gruText, "hidden: 5",
			"hidden: 6", 1), from, jobs.CodeInvalid},
		"its cell kind is gru, and leaky in the swarm": {"name: x\naddressed: agent\nagents: 3300\n" +
			"agents_per_group: 33\ncell: {kind: leaky}\n", from, jobs.CodeInvalid},
		"its addressed is agent, and group in the swarm": {keptTexts["gru"], from, jobs.CodeInvalid},
		"its agents_per_group is 33, and 30 in the swarm": {strings.Replace(gruText, "group: 33",
			"group: 30", 1), from, jobs.CodeInvalid},
		"is 3, and 4 in the swarm": {strings.Replace(gruText, "seed: 3", "seed: 4",
			1), from, jobs.CodeInvalid},
		`its features are ["a" "b"], and ["a"] in the swarm`: {strings.Replace(gruText, "[a, b]\n", "[a]\n",
			1), from, jobs.CodeInvalid},
		`its candidates are ["a" "b" "c"], and ["a" "b"] in`: {strings.Replace(gruText, "[a, b, c]", "[a, b]",
			1), from, jobs.CodeInvalid},
		"snapshot none: snapshot not found: exoswarm snapshot list": {
			gruText,
			swarms.SnapshotRef{Name: "none", SHA256: s.SHA256},
			jobs.CodeInvalid,
		},
		"the swarm was made from " + strings.Repeat("0", 64) +
			": put": {gruText, swarms.SnapshotRef{Name: "one", SHA256: strings.Repeat("0", 64)}, jobs.CodeInvalid},
	} {
		refused(says, openSnapshotter(t, d, store, c.text, 8, &c.from).Load(t.Context(), c.from), c.code, says)
	}
	// Another rule and another pace of checkpoints are no other agents.
	other := strings.Replace(gruText, "rule: majority", "rule: unanimous", 1) + "checkpoint: {entries: 7}\n"
	if err := openSnapshotter(t, d, store, other, 0, &from).Load(t.Context(), from); err != nil {
		t.Errorf("Load: %v, want no error", err)
	}
	if err := openSnapshotter(t, d, store, gruText, 0, &from).Load(ctx, from); !errors.Is(err, jobs.ErrDrain) {
		t.Errorf("drained: %v", err)
	}
}
