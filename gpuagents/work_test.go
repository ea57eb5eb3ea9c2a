package gpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells/customtest"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index/tabletest"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// pairOfLogs is a queue of one shard.
type pairOfLogs struct {
	Queue
	in, out *ledger
}

// Log implements Queue.
func (q pairOfLogs) Log(_ string, _ int, d jobs.Direction) jobs.Log {
	if d == jobs.In {
		return q.in
	}
	return q.out
}

// oneDisk is checkpoints of one shard.
type oneDisk struct {
	disk    *disk
	fail    error // of Open
	removed int
}

// Open implements Checkpoints.
func (c *oneDisk) Open(_ string, _, pageSize, _ int) (PageStore, error) {
	if c.fail != nil {
		return nil, c.fail
	}
	return pagestore.Open(pagestore.Options{
		FS: c.disk.fs, Tables: tabletest.Backend{FS: c.disk.fs}, PageSize: pageSize,
		Tiers: []pagestore.Tier{{Name: "disk", Dir: "/disk", Capacity: c.disk.capacity, SegmentBytes: 1 << 20, DiskReserve: -1}},
	})
}

// Remove implements Checkpoints.
func (c *oneDisk) Remove(string, int) error {
	c.removed++
	c.disk = newDisk()
	return nil
}

// Shards implements Checkpoints.
func (c *oneDisk) Shards() ([]ShardID, error) { return nil, nil }

// workplace is an agent that serves one shard when a test says so.
type workplace struct {
	*Agent
	pairOfLogs
	on    *berth
	swarm jobs.Swarm
	log   strings.Builder
	seat  *opened
}

// workText is a swarm whose answers depend on every entry before.
const workText = "name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\npage_size: 64KiB\nfeatures: [a]\ncell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000}\n"

func newWorkplace(t *testing.T, d device.Device, o Options, n int) *workplace {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(workText))
	if err != nil {
		t.Fatal(err)
	}
	p := &workplace{pairOfLogs: pairOfLogs{in: &ledger{all: worked(t, n)}, out: &ledger{}}, swarm: record(t, workText, spec.Groups())}
	p.in.waits = true
	o.Queue, o.BatchLatency, o.Logger = p.pairOfLogs, time.Second, slog.New(slog.DiscardHandler)
	if o.ParkedMemory == 0 {
		o.ParkedMemory = ParkedMemory
	}
	p.Agent = &Agent{o: o, freed: make(chan struct{}, 1)}
	if p.on, err = fleetOf(d, 1<<40).take(t.Context(), p.swarm); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.on.give)
	return p
}

// serve works on the shard until it has so many answers, and then until it parks, which is what is returned, or ends by itself.
func (p *workplace) serve(t *testing.T, from *rest, answers int) error {
	t.Helper()
	if p.seat == nil {
		p.seat = &opened{}
	}
	p.seat.park = make(chan struct{}, 1)
	room := p.on.budget.room()
	ended := make(chan error, 1)
	p.log.Reset()
	log := slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() { ended <- p.work(t.Context(), p.on, p.swarm, 0, from, p.seat, log) }()
	met := func() bool { return len(p.out.entries()) >= answers }
	deadline := time.After(20 * time.Second)
	for {
		park := p.seat.park
		if !met() {
			park = nil
		}
		select {
		case err := <-ended:
			if now := p.on.budget.room(); now != room || p.in.readers != 0 {
				t.Errorf("%d bytes of the budget are back of %d, and %d readers are open", now, room, p.in.readers)
			}
			return err
		case park <- struct{}{}:
		case <-time.After(time.Millisecond): // between two looks
		case <-deadline:
			t.Fatalf("%d answers of %d, and no end:\n%s", len(p.out.entries()), answers, &p.log)
		}
	}
}

// parked is what a shard leaves that parks.
func (p *workplace) parked(t *testing.T, from *rest, answers int) *rest {
	t.Helper()
	var r *rest
	if err := p.serve(t, from, answers); !errors.As(err, &r) {
		t.Fatalf("%v, want a rest:\n%s", err, &p.log)
	}
	return r
}

// worked is a log of so many entries: observations, ticks, and questions for the state of every agent.
func worked(t *testing.T, n int) (all []jobs.Entry) {
	t.Helper()
	q := jobs.Query{Version: jobs.Version}
	for a := range uint32(64) {
		q.Agents = append(q.Agents, a)
	}
	for i := range n {
		e := jobs.Entry{Seq: uint64(i + 1), Kind: jobs.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		switch i % 3 {
		case 0:
			o := &batch.AgentObservations{Width: 1}
			for a := range uint32(64) {
				if a%4 != uint32(i)%4 {
					o.Agent, o.Features = append(o.Agent, a), append(o.Features, float32(a%7)/5+float32(i)/10)
				}
			}
			e.Kind, e.Data = jobs.EntryObserve, bytesOf(t, o)
		case 1:
			e.Kind, e.Data = jobs.EntryQuery, encoded(t, q)
		}
		all = append(all, e)
	}
	return all
}

// bytesOf is the binary form of observations.
func bytesOf(t *testing.T, o *batch.AgentObservations) []byte {
	t.Helper()
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// answersOf are the answers to a log of so many ticks from one agent that is never disturbed.
func answersOf(t *testing.T, d device.Device, n int) (all []string) {
	t.Helper()
	p := newWorkplace(t, d, Options{}, n)
	p.parked(t, nil, n)
	for _, e := range p.out.entries() {
		all = append(all, string(e.Data))
	}
	return all
}

// texts are the data of a log.
func texts(l *ledger) (all []string) {
	for _, e := range l.entries() {
		all = append(all, string(e.Data))
	}
	return all
}

// extend appends to a log, up to so many entries.
func extend(t *testing.T, l *ledger, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, worked(t, n)[len(l.all):]...)
}

// TestWorkParksAndGoesOn: a shard that is parked goes on where it was, with a checkpoint and without; one that nothing has come for meanwhile leaves the same again.
func TestWorkParksAndGoesOn(t *testing.T) {
	d := openHost(t)
	want := answersOf(t, d, 6)
	for _, stores := range []bool{false, true} {
		var o Options
		if stores {
			o.Checkpoints = &oneDisk{disk: newDisk()}
		}
		p := newWorkplace(t, d, o, 4)
		r := p.parked(t, nil, 4)
		for range 2 {
			if r.entry != 4 || r.stored != stores || (len(r.pages) > 0) == stores {
				t.Errorf("stores %v: the rest is of entry %d, stored %v, with %d pages", stores, r.entry, r.stored, len(r.pages))
			}
			r = p.parked(t, r, 4)
		}
		extend(t, p.in, 6)
		if r = p.parked(t, r, 6); r.entry != 6 || !slices.Equal(texts(p.out), want) {
			t.Errorf("stores %v: the rest is of entry %d:\n%q, want\n%q", stores, r.entry, texts(p.out), want)
		}
		if stores {
			if r = p.parked(t, nil, 6); r.entry != 6 { // another process
				t.Errorf("the rest of a shard that resumed is of entry %d", r.entry)
			}
		}
	}
}

// TestWorkSaysOnce: that a shard is served is logged for operators, and of one that is opened again for those who search.
func TestWorkSaysOnce(t *testing.T) {
	p := newWorkplace(t, openHost(t), Options{}, 1)
	for again, level := range map[bool]string{false: "INFO", true: "DEBUG"} {
		p.seat = &opened{again: again}
		p.parked(t, nil, 1)
		if !strings.Contains(p.log.String(), "level="+level+` msg="serving shard" groups=8 agents=64 pages=1 device=`) {
			t.Errorf("opened again %v: %s", again, &p.log)
		}
	}
}

// TestWorkBeginsAtABase: a shard whose log was trimmed begins as the snapshot of its base and applies what follows, and no entry of before.
func TestWorkBeginsAtABase(t *testing.T) {
	d, store := openHost(t), openStore(t)
	want := answersOf(t, d, 6)
	gone := errors.New("the log cannot be read")
	for _, c := range []struct {
		base uint64
		from bool // the swarm began as the snapshot
		fail error
	}{{1, false, nil}, {3, false, nil}, {3, false, gone}, {0, true, nil}} {
		name := fmt.Sprintf("base%d%v", c.base, c.fail != nil)
		k := openKeeping(t, d, store, workText, 0, nil)
		n := c.base
		if c.from {
			n = 2
		}
		for _, e := range worked(t, int(n)) {
			if _, err := k.apply(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		ref := jobs.SnapshotRef{Name: name, SHA256: take(t, k, name, max(n, 1)).SHA256}
		kept := &oneDisk{disk: newDisk()}
		o := Options{Snapshots: store}
		if c.from {
			o.Checkpoints = kept
		}
		p := newWorkplace(t, d, o, 6)
		if c.from {
			p.swarm.From = &ref
		} else {
			p.swarm.Base = &jobs.SwarmBase{SnapshotRef: ref, Entry: c.base}
		}
		for i := range c.base {
			p.out.all = append(p.out.all, jobs.Entry{Seq: i + 1, Ref: i + 1, Data: []byte(want[i])})
		}
		if p.in.unread = map[uint64]error{c.base + 1: c.fail}; c.fail != nil {
			if err := p.serve(t, nil, 99); !errors.Is(err, gone) || p.in.readers != 0 {
				t.Errorf("%v; %d readers", err, p.in.readers)
			}
			continue
		}
		p.in.unread = nil
		if r := p.parked(t, nil, 6); r.entry != 6 {
			t.Errorf("base %d: the rest is of entry %d", c.base, r.entry)
		}
		got := texts(p.out)
		if c.from {
			k.swarm.From = &ref
			st, err := kept.Open("", 0, 64<<10, 0)
			if err != nil {
				t.Fatal(err)
			}
			var at position
			if err := errors.Join(json.Unmarshal(st.Note(), &at), st.Close()); err != nil || at.State != k.about().meaning || at.State == k.population.about().meaning || at.Entry != 6 {
				t.Errorf("the checkpoint is %+v, want the meaning %s: %v", at, k.about().meaning, err)
			}
			if slices.Equal(got, want) || len(got) != 6 {
				t.Errorf("a swarm that began as a snapshot answers as one that did not: %q", got)
			}
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("base %d:\n%q, want\n%q", c.base, got, want)
		}
		p.in.all = p.in.all[:c.base] // nothing behind the base
		p.out.all = p.out.all[:c.base]
		if r := p.parked(t, nil, int(c.base)); r.entry != c.base {
			t.Errorf("base %d: the rest of a shard that has applied nothing is of entry %d", c.base, r.entry)
		}
	}
}

// TestBegin: a swarm that nobody has served is told once what is wrong with its snapshot. One that was served is not, and fails here; a store that fails says nothing against
// the swarm.
func TestBegin(t *testing.T) {
	d, store := openHost(t), openStore(t)
	log := slog.New(slog.DiscardHandler)
	one := openKeeping(t, d, store, workText, 0, nil)
	good := jobs.SnapshotRef{Name: "one", SHA256: take(t, one, "one", 1).SHA256}
	bad := jobs.SnapshotRef{Name: "none", SHA256: good.SHA256}
	for _, c := range []struct {
		name     string
		from     *jobs.SnapshotRef
		base     *jobs.SwarmBase
		answered uint64
		entry    uint64
		told     bool
		err      string
	}{
		{name: "none"},
		{name: "none, served", answered: 4},
		{name: "from", from: &good},
		{name: "from, served", from: &good, answered: 4},
		{name: "base", base: &jobs.SwarmBase{SnapshotRef: good, Entry: 7}, answered: 7, entry: 7},
		{name: "base before from", base: &jobs.SwarmBase{SnapshotRef: good, Entry: 7}, from: &bad, answered: 7, entry: 7},
		{name: "bad from", from: &bad, told: true},
		{name: "bad from, one answer", from: &bad, answered: 1, err: "swarm kept: snapshot none: snapshot not found"},
		{name: "bad base", base: &jobs.SwarmBase{SnapshotRef: bad, Entry: 7}, answered: 7, err: "swarm kept: snapshot none: snapshot not found"},
		{name: "bad base, nothing answered", base: &jobs.SwarmBase{SnapshotRef: bad, Entry: 7}, told: true},
	} {
		k := openKeeping(t, d, store, workText, 0, c.from)
		k.swarm.Base = c.base
		out := &ledger{}
		w := &writer{out: out, answered: c.answered}
		entry, told, err := k.begin(t.Context(), w, log)
		if entry != c.entry || told != c.told || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: entry %d, told %v: %v", c.name, entry, told, err)
		}
		if told != (len(out.all) == 1) || told && (out.all[0].Ref != 1 || out.all[0].Kind != jobs.EntryRejected || !strings.Contains(string(out.all[0].Data), "swarm kept: snapshot none")) {
			t.Errorf("%s: %+v", c.name, out.all)
		}
	}
	k := openKeeping(t, d, unreadable{store}, workText, 0, &good)
	out := &ledger{}
	if _, told, err := k.begin(t.Context(), &writer{out: out}, log); told || err == nil || len(out.all) != 0 {
		t.Errorf("a store that fails: told %v: %v", told, err)
	}
}

// TestCovers: agents begin as a snapshot that has all groups of a swarm, or as that of the shard that they are.
func TestCovers(t *testing.T) {
	mine := jobs.Swarm{ID: "x", Name: "x", Nonce: "1"}
	other := mine
	other.Nonce = "2"
	k := &keeping{swarm: mine, has: holding{shard: 1, shards: 3, first: 10, groups: 5, all: 15}}
	part := func(of jobs.Swarm, number, first, groups int) *snapshot.Manifest {
		return &snapshot.Manifest{Name: "s", Swarm: snapshot.OriginOf(of), Shard: &snapshot.Shard{Number: number, Of: 3, First: first, Groups: 15}, Groups: groups}
	}
	for name, c := range map[string]struct {
		parts []*snapshot.Manifest
		ok    bool
	}{
		"a whole swarm":               {[]*snapshot.Manifest{{Name: "s", Groups: 99}}, true},
		"all shards of another swarm": {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5), part(other, 2, 10, 5)}, true},
		"its own shard":               {[]*snapshot.Manifest{part(mine, 1, 10, 5)}, true},
		"a shard of another swarm":    {[]*snapshot.Manifest{part(other, 1, 10, 5)}, false},
		"groups from another on":      {[]*snapshot.Manifest{part(mine, 1, 9, 5)}, false},
		"fewer groups":                {[]*snapshot.Manifest{part(mine, 1, 10, 4)}, false},
		"two shards of three":         {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5)}, false},
	} {
		err := k.covers(c.parts)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, snapshot.ErrMismatch) || !strings.Contains(err.Error(), fmt.Sprintf("it has shard %d of 3 of a swarm alone", c.parts[0].Shard.Number))) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unreadable is a store that cannot be read now.
type unreadable struct{ snapshot.Store }

// Open implements snapshot.Store.
func (unreadable) Open(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.New("no route to the store")
}

// TestWorkRefuses: a swarm that has no room here, or that may not run, is told so where nobody has served it; one that was served waits, and so does one on a host that serves for
// a device.
func TestWorkRefuses(t *testing.T) {
	d := openHost(t)
	custom, err := json.Marshal(customSpec(t, customtest.Leaky(1), 8, "majority"))
	if err != nil {
		t.Fatal(err)
	}
	const waits = "waiting for room, or for an agent that has it"
	for _, c := range []struct {
		name     string
		change   func(p *workplace)
		answered uint64
		told     string // part of the answer
		err      string // part of the error
	}{
		{name: "no JSON", change: func(p *workplace) { p.swarm.Spec = []byte("{") }, told: "JSON"},
		{name: "custom", change: func(p *workplace) { p.swarm.Spec, p.swarm.Groups = custom, 8 }, told: "this agent, , runs none"},
		{name: "custom, where the device compiles nothing", change: func(p *workplace) { p.swarm.Spec, p.swarm.Groups, p.o.CustomCells = custom, 8, true }, told: "cuda:0"},
		{name: "another number of groups", change: func(p *workplace) { p.swarm.Groups++ }, told: "its record has 9 groups"},
		{name: "no room", change: func(p *workplace) { p.on.budget = newBudget(1000, 0) }, told: "too few on the device"},
		{name: "no room, served", change: func(p *workplace) { p.on.budget = newBudget(1000, 0) }, answered: 1, err: waits},
		{name: "no room on the host", change: func(p *workplace) {
			p.on.budget = newBudget(1000, 0)
			p.on.seat = &seat{of: p.on.of, dev: d, which: hostSeat}
		}, err: waits},
		{name: "another number of groups, served", change: func(p *workplace) { p.swarm.Groups++ }, answered: 1, told: "its record has 9 groups"},
	} {
		p := newWorkplace(t, d, Options{}, 3)
		c.change(p)
		for n := range c.answered {
			p.out.all = append(p.out.all, jobs.Entry{Seq: n + 1, Ref: n + 1})
		}
		err := p.serve(t, nil, 99)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || classOf(err) != "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if wrong := (*jobs.Error)(nil); errors.As(err, &wrong) {
			t.Errorf("%s: the error lays it to the swarm: %v", c.name, err)
		}
		got := p.out.entries()[c.answered:]
		if c.told == "" && len(got) > 0 || c.told != "" && (len(got) != 1 || got[0].Ref != c.answered+1 || got[0].Kind != jobs.EntryRejected || !strings.Contains(string(got[0].Data), c.told)) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.told)
		}
	}
}

// TestWorkTriesAgain: a device that fails while a shard is made says nothing against the swarm.
func TestWorkTriesAgain(t *testing.T) {
	gone := openHost(t)
	p := newWorkplace(t, openHost(t), Options{}, 3)
	p.on.seat = &seat{of: p.on.of, dev: gone}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.serve(t, nil, 99); !errors.Is(err, ErrDevice) || len(p.out.entries()) != 0 {
		t.Errorf("%v, with %d answers", err, len(p.out.entries()))
	}
}

// TestWorkHasNoHostMemory: pages that have no place in host memory are laid to a swarm that nobody has served, where there is no store and the device is the agent's own.
func TestWorkHasNoHostMemory(t *testing.T) {
	d := openHost(t)
	for name, c := range map[string]struct {
		change   func(p *workplace)
		answered uint64
		told     bool
	}{
		"never served": {func(*workplace) {}, 0, true},
		"served":       {func(*workplace) {}, 1, false},
		"on the host":  {func(p *workplace) { p.on.seat = &seat{of: p.on.of, dev: d, which: hostSeat} }, 0, false},
		"with a store that is away": {func(p *workplace) {
			p.o.Checkpoints = &oneDisk{fail: tiers.ErrLocked}
		}, 0, false},
	} {
		p := newWorkplace(t, d, Options{}, 3)
		text := strings.NewReplacer("agents: 64", "agents: 400000", "kind: leaky}", "kind: gru}\nvote: {candidates: [a, b], rule: majority}").Replace(workText)
		p.swarm = record(t, text, 50000)
		p.on.budget = newBudget(6*64<<10, 64<<10)
		c.change(p)
		for n := range c.answered {
			p.out.all = append(p.out.all, jobs.Entry{Seq: n + 1, Ref: n + 1})
		}
		err := p.serve(t, nil, 99)
		got := p.out.entries()[c.answered:]
		if c.told && (err != nil || len(got) != 1 || got[0].Ref != 1 || !strings.Contains(string(got[0].Data), "too few in host memory")) || !c.told && (!errors.As(err, &errRoom{}) || len(got) > 0) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

// TestWorkFreesMemory: a shard that had much memory has it given back to the system when it ends.
func TestWorkFreesMemory(t *testing.T) {
	d := openHost(t)
	at := func(bytes int64) (groups int) { // the most groups of so many bytes
		for step := 1 << 16; step > 0; step /= 2 {
			spec, err := swarm.Parse("test.yaml", []byte(strings.Replace(workText, "agents: 64", fmt.Sprintf("agents: %d", 8*(groups+step)), 1)))
			if err != nil {
				t.Fatal(err)
			}
			if PageBytes(spec, groups+step) <= bytes {
				groups += step
			}
		}
		return groups
	}
	for bytes, frees := range map[int64]bool{returnBytes - 64<<10: false, returnBytes: true} {
		p := newWorkplace(t, d, Options{}, 1)
		groups := at(bytes)
		p.swarm = record(t, strings.Replace(workText, "agents: 64", fmt.Sprintf("agents: %d", 8*groups), 1), groups)
		p.in.all = append(p.in.all, jobs.Entry{Seq: 2, Kind: jobs.EntryEnd, Data: []byte("{}")})
		for range 2 { // The second finds that the first has not been done yet.
			p.out.all = nil
			if err := p.serve(t, nil, 99); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.freed) != map[bool]int{true: 1}[frees] {
			t.Errorf("%d groups in %d bytes: %d signals", groups, bytes, len(p.freed))
		}
	}
}

// quiet is a queue without swarms, whose session and wakes say when they are closed.
type quiet struct {
	pairOfLogs
	fail   error // of OpenSession
	mu     sync.Mutex
	opened int
	ttl    time.Duration
	closed int
	nexts  int // calls of Next of the wakes
	watch  chan struct{}
}

// WatchSwarms implements Queue.
func (q *quiet) WatchSwarms(ctx context.Context, _ func(jobs.SwarmChange)) error {
	q.watch <- struct{}{}
	<-ctx.Done()
	return nil
}

// OpenSession implements Queue.
func (q *quiet) OpenSession(_ context.Context, _ string, ttl time.Duration, _ *slog.Logger) (jobs.Session, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened++
	if ttl != q.ttl {
		q.fail = fmt.Errorf("leases of %v", ttl)
	}
	if q.fail != nil {
		return nil, q.fail
	}
	return &quietSession{of: q}, nil
}

// OpenWakes implements Queue.
func (q *quiet) OpenWakes() jobs.Wakes { return &quietWakes{of: q} }

type quietSession struct {
	jobs.Session
	of *quiet
}

func (*quietSession) Freed() <-chan struct{} { return nil }
func (*quietSession) Lost() <-chan struct{}  { return nil }

// Close implements jobs.Session.
func (s *quietSession) Close(context.Context) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.closed++
	return nil
}

type quietWakes struct {
	jobs.Wakes
	of *quiet
}

// Next implements jobs.Wakes.
func (w *quietWakes) Next(ctx context.Context) (string, error) {
	w.of.mu.Lock()
	w.of.nexts++
	w.of.mu.Unlock()
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// Close implements jobs.Wakes.
func (w *quietWakes) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.closed += 100
}

// TestAgentStarts: an agent has the documented defaults, follows the swarms under a session, and ends with everything closed, with a session and without one.
func TestAgentStarts(t *testing.T) {
	d := openHost(t)
	for _, fail := range []error{nil, errors.New("no server")} {
		q := &quiet{fail: fail, ttl: 10 * time.Second, watch: make(chan struct{}, 1)}
		a := Start(Options{Name: "a", Device: d, Queue: q, Logger: slog.New(slog.DiscardHandler)})
		if o := a.o; o.LeaseTTL != 10*time.Second || o.MaxShards != MaxShards || o.OpenShards != OpenShards || o.ParkedMemory != ParkedMemory || a.open.most != OpenShards {
			t.Errorf("defaults %+v", o)
		}
		<-q.watch
		eventually(t, "a session is asked for, and wakes", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.opened > 0 && q.nexts > 0
		})
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		a.freed <- struct{}{} // A shard has ended that had much memory.
		eventually(t, "its memory is given back to the system", func() bool {
			runtime.ReadMemStats(&now)
			return now.NumForcedGC > before.NumForcedGC && len(a.freed) == 0
		})
		if a.Device() != d || len(a.Devices()) != 1 || a.Devices()[0] != d || len(a.Levels()) != 1 || a.Level() != 0 || a.Health() != nil || a.Room() != nil || a.Full() || a.Shards() != 0 {
			t.Errorf("an agent without swarms: device %v, levels %v, %v", a.Device(), a.Levels(), a.Health())
		}
		select {
		case <-a.Closed():
			t.Error("it has ended")
		default:
		}
		if fail == nil {
			a.Stop()
		} else if err := a.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		<-a.Closed()
		if want := map[bool]int{true: 101, false: 100}[fail == nil]; q.closed != want {
			t.Errorf("closed are %d, want %d", q.closed, want)
		}
	}
	q := &quiet{ttl: time.Minute, watch: make(chan struct{}, 1)}
	set := Options{Name: "a", Device: d, Queue: q, Logger: slog.New(slog.DiscardHandler), LeaseTTL: time.Minute, MaxShards: 1, OpenShards: 1, ParkedMemory: 1, PageMemory: 1 << 20, HostPageMemory: 1 << 10}
	a := Start(set)
	if o := a.o; o.LeaseTTL != time.Minute || o.MaxShards != 1 || o.OpenShards != 1 || o.ParkedMemory != 1 {
		t.Errorf("options %+v", o)
	}
	if r := a.Room(); r == nil || r.Shard != 1<<20+1<<10 || r.All != r.Shard {
		t.Errorf("room %+v", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Drain(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.Stop()
}

// TestAgentCounts: an agent says how many shards it serves and has parked, and is full at its number of leases and at its memory for parked shards.
func TestAgentCounts(t *testing.T) {
	a := &Agent{o: Options{MaxShards: 3, ParkedMemory: 100}, posts: map[string]*post{}}
	for i, state := range []postState{postServed, postServed, postParked, postWaiting, postOver, postParked, postParked} {
		a.posts[fmt.Sprint(i)] = &post{state: state}
	}
	if a.Shards() != 5 || a.Parked() != 3 {
		t.Errorf("%d shards, %d of them parked", a.Shards(), a.Parked())
	}
	for _, c := range []struct {
		leases  int
		resting int64
		full    bool
	}{{0, 0, false}, {2, 99, false}, {3, 0, true}, {4, 0, true}, {0, 100, true}, {0, 101, true}, {3, 100, true}} {
		a.leases, a.resting = c.leases, c.resting
		if a.Full() != c.full {
			t.Errorf("%d leases and %d bytes: full %v", c.leases, c.resting, a.Full())
		}
	}
}
