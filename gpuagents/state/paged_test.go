package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// testPage is the page size of the swarms of these tests, below what a spec may ask for: what
// agents do there takes time. onDevice is the index of the device among the tiers of memory of a
// pager.
const onDevice = 0

const testPage = 4 << 10

// pagedTexts are swarms of 11 to 14 pages.
var pagedTexts = map[string]string{
	"gru": "name: x\naddressed: agent\nagents: 540\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"nodes": "name: x\naddressed: agent\nagents: 405\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"hear: [knowledge, group]\nknowledge: {nodes: 7, units: 3, merge: ema, rate: 0.3}\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"attention": "name: x\naddressed: agent\nagents: 390\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"hear: [knowledge]\nknowledge: {units: 3, merge: attention, focus: 3}\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"votes": "name: x\naddressed: agent\nagents: 405\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"hear: [knowledge, group]\nknowledge: {by: vote, units: 3, merge: ema, rate: 0.3}\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"keys": "name: x\naddressed: agent\nagents: 405\nagents_per_group: 15\nfeatures: [a, b]\nseed: 3\n" +
		"hear: [knowledge, group]\nknowledge: {by: key, nodes: 15, units: 3, merge: attention}\n" +
		"cell: {kind: gru, params: {hidden: 7}}\nvote: {candidates: [a, b, c], rule: majority}\n",
	"items": "name: x\naddressed: agent\nagents: 540\nagents_per_group: 15\nfeatures: [row]\nseed: 3\n" +
		"cell: {kind: gru, params: {hidden: 7}, embed: {rows: 40, width: 5}, items: 30}\n" +
		"vote: {candidates: [a, b], rule: majority}\n",
	"leaky": "name: x\naddressed: agent\nagents: 2000\nagents_per_group: 10\ncell: {kind: leaky}\nvote: {rule: " +
		"quorum, quorum: 0.3}\n",
	"quantum": quantumText("agents: 540\nagents_per_group: 15\n"),
	"lif":     "name: x\nagents_per_group: 90\ncell: {kind: lif}\nfeatures: [a]\n",
	"own": "name: x\nagents_per_group: 18\ncell: {kind: gru, weights: group, params: {hidden: 4}}\nfeatures: [a]\n" +
		"observations: {duplicate: drop}\n",
}

// quantumText is a swarm of agents of three qubits, with other keys. Two bits are the ballot.
func quantumText(keys string) string {
	return "name: x\naddressed: agent\n" + keys + "features: [a, b]\nseed: 3\ncell: {kind: quantum, params: " +
		"{t: 0.7}, circuit: 'include \"stdgates.inc\"; input float t; qubit[3] q; bit[2] c; ry(t) q; cx q[0], q[1]; " +
		"cz q[1], q[2]; c[0] = measure q[2]; c[1] = measure q[0];'}\nvote: {rule: majority}\n"
}

// pagedGroups are the groups of a swarm whose groups are addressed.
const pagedGroups = 24

// openPaged opens the State of a swarm with pages of what b has.
func openPaged(t testing.TB, d device.Device, b *pages.Budget, text string) State {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	spec.PageSize = testPage
	groups := pagedGroups
	if spec.Topology().ByAgent {
		groups = spec.Groups()
	}
	p, err := newWhole(d, b, spec, groups)
	if err != nil {
		t.Fatalf("newWhole: %v, want no error", err)
	}
	return p
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
			Name: "disk", Dir: "/disk", Capacity: d.capacity, SegmentBytes: 64 << 10,
			DiskReserve: -1,
		}},
	})
	if err != nil {
		t.Fatalf("pagestore.Open: %v, want no error", err)
	}
	return s
}

// randomSwap is an entry that gives some groups the states of others, or none.
func randomSwap(t testing.TB, r *rand.Rand, s *groupState) swarms.Entry {
	t.Helper()
	var groups []swarms.SwapGroup
	for _, g := range r.Perm(pagedGroups)[:1+r.IntN(pagedGroups)] {
		one := swarms.SwapGroup{Group: uint32(g)}
		if r.IntN(3) > 0 {
			one.Tag = fmt.Sprint("group ", g)
		}
		if r.IntN(3) > 0 {
			one.State = make([]byte, s.groupBytes())
			if err := s.memory.ReadAll(t.Context(), s.groupParts(uint32(r.IntN(pagedGroups)), one.State)); err != nil {
				t.Fatalf("ReadAll of the state of a group: %v", err)
			}
		}
		groups = append(groups, one)
	}
	data, err := json.Marshal(swarms.NewSwap(groups))
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return swarms.Entry{Kind: swarms.EntrySwap, Data: data}
}

// randomEntry is an entry of a log of a swarm.
func randomEntry(t testing.TB, r *rand.Rand, p State) swarms.Entry {
	t.Helper()
	entry := func(kind string, v interface{ Encode() ([]byte, error) }) swarms.Entry {
		data, err := v.Encode()
		if err != nil {
			t.Fatalf("v.Encode: %v, want no error", err)
		}
		return swarms.Entry{Kind: kind, Data: data}
	}
	some := func(all, most int) []uint32 { // ids near one another, or anywhere
		ids := make([]uint32, 1+r.IntN(most))
		from, width := r.IntN(all), 1+r.IntN(all)
		for i := range ids {
			ids[i] = uint32((from + r.IntN(width)) % all)
		}
		return ids
	}
	s, byAgent := p.(*agentState)
	if !byAgent {
		if r.IntN(6) == 0 {
			return randomSwap(t, r, p.(*groupState))
		}
		if r.IntN(3) == 0 {
			return groupQuestion(r, pagedGroups, p.(*groupState).layout.Agents)
		}
		o := observations(r, pagedGroups, 1+r.IntN(200), 1)
		if r.IntN(2) == 0 { // few groups
			for i, g := range some(pagedGroups, 3) {
				for k := i; k < len(o.Group); k += 3 {
					o.Group[k] = g
				}
			}
		}
		return entry(swarms.EntryObserve, o)
	}
	if s.nodes.All > 0 && s.agents.Cell().Nodes() > 0 && r.IntN(6) == 0 {
		if r.IntN(2) == 0 {
			return swarms.Entry{Kind: swarms.EntryQuery, Data: fmt.Appendf(nil,
				`{"v":1,"groups":[%d,0,1],"knowledge":true}`, r.IntN(s.nodes.All))}
		}
		return randomLesson(t, r, s.nodes.All, s.agents.Cell().Nodes())
	}
	choice := r.IntN(9)
	if choice == 5 && s.agents.Cell().Measures() { // it has no embeddings
		choice = 4
	}
	switch n := int(s.agents.Len()); choice {
	case 0:
		return swarms.Entry{Kind: swarms.EntryTick, Data: fmt.Appendf(nil, `{"v":1,"count":%d}`,
			[]int{2, 3, agents.TickSteps + 1}[r.IntN(3)])}
	case 1:
		return swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	case 2:
		ids := some(n, 60)
		if r.IntN(2) == 0 { // in runs
			slices.Sort(ids)
		}
		return swarms.Entry{Kind: swarms.EntryQuery, Data: fmt.Appendf(nil, `{"v":1,"agents":%s}`,
			strings.ReplaceAll(fmt.Sprint(ids), " ", ","))}
	case 3:
		return swarms.Entry{Kind: swarms.EntryQuery, Data: fmt.Appendf(nil, `{"v":1,"groups":%s}`,
			strings.ReplaceAll(fmt.Sprint(some(s.agents.Groups(), 60)), " ", ","))}
	case 4:
		return swarms.Entry{Kind: swarms.EntryVote, Data: fmt.Appendf(nil,
			`{"v":1,"round":%d,"rule":"majority","priority":"seeded"}`, 1+r.IntN(9))}
	case 5:
		return swarms.Entry{Kind: swarms.EntryFuse, Data: []byte([]string{
			`{"v":1,"by":"all"}`, `{"v":1,"by":"vote"}`,
			`{"v":1,"by":"group"}`, `{"v":1,"by":"group","nodes":3}`,
		}[r.IntN(4)])}
	case 6:
		state := "potential"
		if s.agents.Cell().Cell.Name == "gru" {
			state = "hidden"
		}
		if s.agents.Cell().Measures() {
			state = "im101"
		}
		return swarms.Entry{Kind: swarms.EntryCompute, Data: fmt.Appendf(nil, []string{
			`{"v":1,"text":"mean(%[1]s) by all where vote == 1; c = sum(abs(%[1]s)) by all"}`,
			`{"v":1,"text":"sum(%[1]s * %[1]s) by vote"}`,
			`{"v":1,"text":"sum(exp(%[1]s)) by group; n = count(vote < 2) by group"}`,
			`{"v":1,"text":"max(%[1]s) by group where round > 3","first":7,"groups":9}`,
		}[r.IntN(4)], state)}
	default:
		o := randomFor(r, n, 1+r.IntN(300), s.agents.Cell())
		if r.IntN(3) == 0 {
			for i, id := range some(n, len(o.Agent)) {
				o.Agent[i] = id
			}
		}
		return entry(swarms.EntryObserve, o)
	}
}

// randomLesson is an entry that merges values into some of n nodes.
func randomLesson(t testing.TB, r *rand.Rand, nodes, width int) swarms.Entry {
	t.Helper()
	l := swarms.Learn{Version: 1, Replace: r.IntN(2) == 0}
	for _, k := range r.Perm(nodes)[:1+r.IntN(nodes)] {
		l.Nodes = append(l.Nodes, uint32(k))
		for range width {
			l.Values = append(l.Values, 2*r.Float32()-1)
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return swarms.Entry{Kind: swarms.EntryLearn, Data: data}
}

// pair is a swarm with few frames and one that has a frame for each page; what they answer must be
// the same.
type pair struct {
	paged, whole State
}

// apply brings an entry into both.
func (p pair) apply(t testing.TB, e swarms.Entry) {
	t.Helper()
	var answers []Answer
	for _, s := range []State{p.paged, p.whole} {
		a, err := s.Apply(context.Background(), e)
		if err != nil {
			t.Fatalf("entry %s %.200q: %v, want an answer", e.Kind, e.Data, err)
		}
		answers = append(answers, a)
	}
	if d := diff(answers[0], answers[1], cmp.AllowUnexported(Answer{})); d != "" {
		t.Fatalf("%s %.200q: few frames and all differ: %s", e.Kind, e.Data, d)
	}
}

func (p pair) check(t testing.TB) {
	t.Helper()
	if paged, whole := p.paged.Memory(), p.whole.Memory(); !bytes.Equal(contents(t, paged), contents(t, whole)) {
		t.Fatal("pages differ between few frames and all")
	} else if !slices.Equal(paged.Dirty(), whole.Dirty()) {
		t.Fatalf("marks differ: %v and %v", paged.Dirty(), whole.Dirty())
	}
}

// TestPagedEqualsResident applies random entries to swarms with 2 to 9 frames for 11 to 14 pages,
// the others in host memory, and to ones that have a frame for each page: answers, pages and marks
// are the same bits.
func TestPagedEqualsResident(t *testing.T) {
	testkit.Checks(t, 25)
	for name, text := range pagedTexts {
		t.Run(name, func(t *testing.T) {
			d := openNamed(t, *opentest.Name)
			rapid.Check(t, func(rt *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
				frames, entries := rapid.IntRange(2, 9).Draw(rt, "frames"), rapid.IntRange(1, 6).Draw(rt, "entries")
				p := pair{
					openPaged(t, d, pages.NewBudget(int64(frames)*testPage+1, 1<<30), text),
					openPaged(t, d, nil, text),
				}
				defer func() {
					if err := errors.Join(p.paged.Close(), p.whole.Close()); err != nil {
						rt.Errorf("joined errors: %v, want no error", err)
					}
				}()
				if n := len(p.paged.Memory().Made()); n < 11 || n > 14 || p.paged.Memory().Resident() ||
					!p.whole.Memory().Resident() {
					t.Fatalf("%d pages", n)
				}
				for range entries {
					p.apply(t, randomEntry(t, r, p.whole))
				}
				p.check(t)
			})
		})
	}
}

// TestPagedOverStore is TestPagedEqualsResident over a store, with and without host memory and
// prefetch, with checkpoints, processes that end in order and others that do not: those go on from
// the last checkpoint, whatever was written to the store since then.
func TestPagedOverStore(t *testing.T) {
	for name, text := range pagedTexts {
		for seed := range uint64(testkit.Of(6, 2)) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				d, disk, r := openNamed(t, *opentest.Name), newDisk(), rand.New(rand.NewPCG(seed, 2))
				room := func() *pages.Budget {
					return pages.NewBudget(int64(2+r.IntN(4))*testPage,
						int64(r.IntN(3))*testPage*2).WithPrefetch(seed%2 == 0)
				}
				p := pair{openPaged(t, d, room(), text), openPaged(t, d, nil, text)}
				store := disk.open(t)
				closeAll := func() {
					if err := errors.Join(p.paged.Close(), p.whole.Close(), store.Close()); err != nil {
						t.Fatalf("joined errors: %v, want no error", err)
					}
				}
				defer func() { closeAll() }()
				ok := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatalf("%v, want no error", err)
					}
				}
				ctx := t.Context()
				ok(p.paged.Memory().Open(ctx, store))
				var last []byte // the pages of the last checkpoint
				left := uint64(0)
				count := func() { left += p.paged.Memory().Pager().Stats().Memory[onDevice].Out }
				for n := range 20 {
					p.apply(t, randomEntry(t, r, p.whole))
					switch r.IntN(6) {
					case 0, 1:
						p.check(t)
						last = contents(t, p.whole.Memory())
						ok(p.paged.Memory().Checkpoint(ctx, fmt.Appendf(nil, "entry %d", n)))
						clear(p.whole.Memory().Dirty())
					case 2: // the process ends
						count()
						kept := disk.fs
						if r.IntN(2) == 0 { // with the power
							kept = disk.fs.Crash(0.5, r)
						}
						ok(errors.Join(p.paged.Close(), store.Close()))
						disk.fs = kept
						store = disk.open(t)
						p.paged = openPaged(t, d, room(), text)
						ok(p.paged.Memory().Open(ctx, store))
						ok(p.paged.Restored(ctx))
						ok(p.whole.Reset(ctx))
						for page := 0; len(last) > 0 && page < len(p.whole.Memory().Made()); page++ {
							ok(p.whole.Memory().Write(ctx, uint64(page), last[page*testPage:][:testPage]))
						}
						clear(p.whole.Memory().Dirty())
						ok(p.whole.Restored(ctx))
					}
				}
				p.check(t)
				if count(); left == 0 {
					t.Error("no page has left the device: the comparison proves nothing")
				}
			})
		}
	}
}

// draining is a store at whose first page an agent is told to drain.
type draining struct {
	pages.Store
	drain context.CancelCauseFunc
}

func (s draining) Put(ctx context.Context, tier int, page uint64, content []byte, kind tiers.Kind) error {
	s.drain(jobs.ErrDrain)
	return s.Store.Put(ctx, tier, page, content, kind)
}

// TestTickTorn: ticks of pages that come and go end between two of them when the agent drains. The
// state is of no use then, and is not stepped until the agents are such as have seen nothing.
func TestTickTorn(t *testing.T) {
	s, store := openPaged(t, openHost(t), pages.NewBudget(4*testPage, 0), pagedTexts["gru"]).(*agentState),
		newDisk().open(t)
	defer func() {
		if err := errors.Join(s.Close(), store.Close()); err != nil {
			t.Errorf("joined errors: %v, want no error", err)
		}
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := s.memory.Open(ctx, draining{store, cancel}); err != nil {
		t.Fatalf("memory.Open: %v, want no error", err)
	}
	_, err := s.Apply(ctx, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":40}`)})
	if !errors.Is(err, jobs.ErrDrain) {
		t.Fatalf("s.Apply: %v, want %v", err, jobs.ErrDrain)
	}
	for _, e := range []swarms.Entry{
		{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)},
		randomEntry(t, rand.New(rand.NewPCG(1, 1)), s),
	} {
		if e.Kind == swarms.EntryQuery {
			continue
		}
		if _, err := s.Apply(t.Context(), e); !errors.Is(err, gpubatch.ErrDevice) {
			t.Errorf("%s after it: %v", e.Kind, err)
		}
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatalf("s.Reset: %v, want no error", err)
	}
	a := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
	fresh := openPaged(t, openHost(t), nil, pagedTexts["gru"])
	testkit.Close(t, fresh)
	if b := mustApply(t, fresh, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1}); !bytes.Equal(a.Data,
		b.Data) {
		t.Errorf("a tick after a reset: %s, want %s", a.Data, b.Data)
	}
}

// TestRoom: shards share the memory for pages, get what is left, and what does not fit is refused
// with what is missing.
func TestRoom(t *testing.T) {
	d, ctx := openHost(t), t.Context()
	b := pages.NewBudget(6*testPage, 12*testPage)
	first := openPaged(t, d, b, pagedTexts["gru"])
	if n := first.Memory().Frames(); n != 6 {
		t.Errorf("%d frames of 6", n)
	}
	spec, err := swarm.Parse("test.yaml", []byte(pagedTexts["leaky"]))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	spec.PageSize = testPage
	_, err = newWhole(d, b, spec, spec.Groups())
	if refused := (*jobs.Error)(nil); !errors.As(err, &refused) || refused.Code != jobs.CodeDevice ||
		!strings.Contains(refused.Message, "8192 too few on the device: raise") {
		t.Errorf("no frames left: %v", err)
	}
	if err := errors.Join(first.Memory().Open(ctx, nil), first.Close(), first.Close()); err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
	// As much again is there, and too little below it.
	second := openPaged(t, d, pages.NewBudget(6*testPage, 2*testPage), pagedTexts["gru"])
	testkit.Close(t, second)
	room := pages.MemoryError{}
	if err := second.Memory().Open(ctx, nil); !errors.As(err, &room) || !strings.Contains(err.Error(), "too few in "+
		"host memory: raise the memory for pages, give the agent process a data folder") {
		t.Errorf("no memory for the rest: %v", err)
	}
	if _, err := second.Apply(ctx, randomEntry(t, rand.New(rand.NewPCG(1, 1)), second)); !errors.As(err, &room) {
		t.Errorf("an entry without memory: %v", err)
	}
	store := newDisk().open(t)
	if err := second.Memory().Open(ctx, store); err != nil {
		t.Errorf("over a store: %v", err)
	}
	mustApply(t, second, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
	if err := errors.Join(second.Close(), store.Close()); err != nil {
		t.Errorf("joined errors: %v, want no error", err)
	}
	if onDevice, inHost := b.Left(); onDevice != 6*testPage || inHost != 12*testPage {
		t.Errorf("%d and %d bytes are left of the first budget", onDevice, inHost)
	}
}

// TestStoreFull: pages that find no room in the store fail the entry that needs their frames, and
// are not the device's fault.
func TestStoreFull(t *testing.T) {
	disk := newDisk()
	disk.capacity = 3 << 20
	store := disk.open(t)
	s := openPaged(t, openHost(t), pages.NewBudget(2*testPage, 0),
		strings.Replace(pagedTexts["gru"], "agents: 540", "agents: 54000", 1))
	defer func() {
		if err := errors.Join(s.Close(), store.Close()); err != nil {
			t.Errorf("joined errors: %v, want no error", err)
		}
	}()
	if err := s.Memory().Open(t.Context(), store); err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}
	_, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)})
	if !errors.Is(err, tiers.ErrFull) {
		t.Errorf("1,200 pages into 3 MiB: %v, want ErrFull", err)
	}
}

// inPages are observations for agents of some pages, in the order of the pages: a number for each
// page, each for another agent.
func inPages(s *agentState, each func(page int) int) (ids []uint32, inputs []float32) {
	a := s.agents
	size := a.Layout().Slots * a.Layout().Agents
	for page := range a.Memory().Count() {
		for k := range each(page) {
			if id := page*size + k; int64(id) < a.Len() {
				ids = append(ids, uint32(id))
			}
		}
	}
	inputs = make([]float32, len(ids)*a.Cell().Width())
	for i := range inputs {
		inputs[i] = float32(i%7) - 3
	}
	return ids, inputs
}

// observePages brings observations into a swarm with few frames and into one with all, whose
// answers are the same.
func observePages(t *testing.T, paged, whole *agentState, each func(page int) int) agents.Outcome {
	t.Helper()
	ids, inputs := inPages(paged, each)
	var out [2]agents.Outcome
	for i, s := range []*agentState{paged, whole} {
		var err error
		if out[i], err = s.agents.Observe(t.Context(), ids, inputs); err != nil {
			t.Fatalf("agents.Observe: %v, want no error", err)
		}
	}
	if d := diff(out[0], out[1]); d != "" {
		t.Fatalf("few frames and all differ: %s", d)
	}
	return out[0]
}

// placed are a swarm of few frames on the device, with all of its pages in memory, and one that has
// a frame for each.
func placed(t *testing.T, frames int) (paged, whole *agentState) {
	t.Helper()
	d := openNamed(t, *opentest.Name)
	paged = openPaged(t, d, pages.NewBudget(int64(frames)*testPage, 1<<30), pagedTexts["gru"]).(*agentState)
	whole = openPaged(t, d, nil, pagedTexts["gru"]).(*agentState)
	t.Cleanup(func() {
		if err := errors.Join(paged.Close(), whole.Close()); err != nil {
			t.Errorf("joined errors: %v, want no error", err)
		}
	})
	for _, s := range []*agentState{paged, whole} {
		mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
	}
	return paged, whole
}

// brought is how many pages have come to the device for a reason.
func brought(s State, reason string) (n uint64) {
	for _, m := range s.Memory().Pager().Stats().Migrations {
		if m.To == "gpu" && m.Reason == reason {
			n += m.Pages
		}
	}
	return n
}

// TestObservedInPlace: an observation of each page steps agents where their pages are, in one
// launch, and brings none of them to the device. A page that is observed very often is brought up
// first.
func TestObservedInPlace(t *testing.T) {
	paged, whole := placed(t, 4)
	before := brought(paged, "demand")
	out := observePages(t, paged, whole, func(int) int { return 1 })
	if out.Stepped != uint64(paged.agents.Memory().Count()) {
		t.Errorf("%d of %d observations made a step", out.Stepped, paged.agents.Memory().Count())
	}
	on := 0
	for _, up := range paged.memory.OnDevice() {
		if up {
			on++
		}
	}
	if n := brought(paged, "demand") - before; n != 0 || on > 4 {
		t.Errorf("%d pages were brought to the device, %d of %d pages were observed there", n, on,
			paged.agents.Memory().Count())
	}
	cold := slices.Index(paged.memory.OnDevice(), false)
	observePages(t, paged, whole, func(page int) int {
		if page == cold {
			return testPage / 512
		}
		return 1
	})
	// it may have come in the background before
	if n := brought(paged, "demand") - before; n > 1 || !paged.memory.OnDevice()[cold] {
		t.Errorf("%d pages were brought up for %d observations of one, which is there: %v", n, testPage/512,
			paged.memory.OnDevice()[cold])
	}
}

// TestGroupsInPlace is TestObservedInPlace of groups that are addressed.
func TestGroupsInPlace(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	p := pair{
		openPaged(t, d, pages.NewBudget(4*testPage, 1<<30), pagedTexts["lif"]),
		openPaged(t, d, nil, pagedTexts["lif"]),
	}
	t.Cleanup(func() {
		if err := errors.Join(p.paged.Close(), p.whole.Close()); err != nil {
			t.Errorf("joined errors: %v, want no error", err)
		}
	})
	paged, r := p.paged.(*groupState), rand.New(rand.NewPCG(6, 6))
	observe := func(times func(page int) int) {
		t.Helper()
		var groups []uint32
		for page := range paged.memory.Made() {
			for range times(page) {
				groups = append(groups, uint32(page*paged.layout.Slots))
			}
		}
		o := observations(r, 1, len(groups), 1)
		o.Group = groups
		data, err := o.Encode()
		if err != nil {
			t.Fatalf("o.Encode: %v, want no error", err)
		}
		p.apply(t, swarms.Entry{Kind: swarms.EntryObserve, Data: data})
		p.check(t)
	}
	once := func(int) int { return 1 }
	observe(once) // the pages are made
	before := brought(paged, "demand")
	observe(once)
	on := 0
	for _, up := range paged.memory.OnDevice() {
		if up {
			on++
		}
	}
	if n := brought(paged, "demand") - before; n != 0 || on > 4 {
		t.Errorf("%d pages were brought to the device, %d of %d pages were observed there", n, on,
			len(paged.memory.Made()))
	}
	cold, many := slices.Index(paged.memory.OnDevice(), false), testPage/paged.memory.ObservationBytes()+1
	observe(func(page int) int {
		if page == cold {
			return many
		}
		return 1
	})
	// it may have come in the background before
	if n := brought(paged, "demand") - before; many < 2 || n > 1 || !paged.memory.OnDevice()[cold] {
		t.Errorf("%d pages were brought up for %d observations of one, which is there: %v", n, many,
			paged.memory.OnDevice()[cold])
	}
}

// TestPagesFollowObservations: pages in host memory that are observed more often than those on the
// device come to be there.
func TestPagesFollowObservations(t *testing.T) {
	paged, whole := placed(t, 4)
	observePages(t, paged, whole, func(int) int { return 1 })
	var hot []int
	for page, up := range paged.memory.OnDevice() {
		if !up && len(hot) < 3 {
			hot = append(hot, page)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for there := false; !there; {
		if ctx.Err() != nil {
			t.Fatalf("pages %v are observed most, and are not all on the device: %v", hot, paged.memory.OnDevice())
		}
		observePages(t, paged, whole, func(page int) int {
			if slices.Contains(hot, page) {
				return testPage/512 - 1 // less than brings it up at once
			}
			return 1
		})
		there = true
		for _, page := range hot {
			there = there && paged.memory.OnDevice()[page]
		}
	}
	if brought(paged, "hint") == 0 {
		t.Error("nothing came in the background")
	}
}

// TestManyOfOneAgent: more observations of one agent than launches that are put into the stream at
// once take effect in their order, and are all counted, also refused ones.
func TestManyOfOneAgent(t *testing.T) {
	paged, whole := placed(t, 4)
	const n = 2*32 + 5 // more than agents.Agents puts into the stream before it waits
	features := paged.agents.Cell().Features
	ids, inputs := make([]uint32, n), make([]float32, n*features)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range inputs {
		inputs[i] = 4 * (r.Float32() - 0.5)
	}
	ids[3] = uint32(paged.agents.Len()) // there is no such agent
	inputs[7*features] = float32(math.NaN())
	out, err := paged.agents.Observe(t.Context(), ids, inputs)
	if err != nil {
		t.Fatalf("agents.Observe: %v, want no error", err)
	}
	if out.Stepped != n-2 || out.Outside != 1 || out.Refused != 1 {
		t.Errorf("%d steps, %d outside and %d refused of %d", out.Stepped, out.Outside, out.Refused, n)
	}
	for i := range ids {
		one, err := whole.agents.Observe(t.Context(), ids[i:i+1], inputs[i*features:][:features])
		if err != nil {
			t.Fatalf("agents.Observe: %v, want no error", err)
		}
		if one.Votes[0] != out.Votes[i] || one.Decisions[0] != out.Decisions[i] {
			t.Errorf("observation %d: vote %d and decision %d together, %d and %d alone", i, out.Votes[i],
				out.Decisions[i], one.Votes[0], one.Decisions[0])
		}
		if i == n-1 && !slices.Equal(one.Tally, out.Tally) {
			t.Errorf("tally %v together, %v alone", out.Tally, one.Tally)
		}
	}
	pair{paged, whole}.check(t)
}
