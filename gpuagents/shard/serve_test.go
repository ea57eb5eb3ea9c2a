package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// TestWorkParksAndGoesOn: a parked shard continues where it was, with a checkpoint and without;
// without a new entry it leaves the same rest again.
func TestWorkParksAndGoesOn(t *testing.T) {
	d := launches.Host(t)
	want := answersOf(t, d, 6)
	for _, stores := range []bool{false, true} {
		var o Options
		if stores {
			o.Checkpoints = &oneDisk{disk: newDisk()}
		}
		p := newTestServer(t, d, o, 4)
		p.readFailures.add(ID{p.swarm.Key(), 0})
		r := p.parked(t, nil, 4)
		if forgotten := len(p.readFailures.of) == 0; forgotten != stores {
			t.Errorf("stores %v: %v are remembered behind a checkpoint", stores, p.readFailures.of)
		}
		for range 2 {
			if r.Entry != 4 || r.Stored != stores || (len(r.Pages) > 0) == stores {
				t.Errorf("stores %v: the rest is of entry %d, stored %v, with %d pages", stores, r.Entry, r.Stored,
					len(r.Pages))
			}
			r = p.parked(t, r, 4)
		}
		extend(t, p.in, 6)
		if r = p.parked(t, r, 6); r.Entry != 6 || !slices.Equal(texts(p.out), want) {
			t.Errorf("stores %v: the rest is of entry %d:\n%q, want\n%q", stores, r.Entry, texts(p.out), want)
		}
		if stores {
			if r = p.parked(t, nil, 6); r.Entry != 6 { // another process
				t.Errorf("the rest of a shard that resumed is of entry %d", r.Entry)
			}
		}
	}
}

// TestWorkSaysOnce: serving a shard is logged at level info, and at level debug if the shard is
// opened again.
func TestWorkSaysOnce(t *testing.T) {
	p := newTestServer(t, launches.Host(t), Options{}, 1)
	for again, level := range map[bool]string{false: "INFO", true: "DEBUG"} {
		p.open = &OpenShard{again: again}
		p.parked(t, nil, 1)
		if !strings.Contains(p.log.String(), "level="+level+` msg="serving shard" groups=8 agents=64 pages=1 device=`) {
			t.Errorf("opened again %v: %s", again, &p.log)
		}
	}
}

// TestWorkRefuses: a swarm that has no room here, or may not run, is refused if nobody has served
// it. A swarm that was served waits, and so does a swarm on a host that stands in for a device.
func TestWorkRefuses(t *testing.T) {
	d := launches.Host(t)
	custom, err := json.Marshal(customSpec(t, celltest.Leaky(1), 8, "majority"))
	testkit.NoError(t, "json.Marshal", err)
	const waits = "waiting for room, or for an agent that has it"
	for _, c := range []struct {
		name     string
		change   func(p *testServer)
		answered uint64
		told     string // part of the answer
		err      string // part of the error
	}{
		{name: "no JSON", change: func(p *testServer) { p.swarm.Spec = []byte("{") }, told: "JSON"},
		{
			name: "custom", change: func(p *testServer) { p.swarm.Spec, p.swarm.Groups = custom, 8 },
			told: "this agent, , runs none",
		},
		{name: "custom, where the device compiles nothing", change: func(p *testServer) {
			p.swarm.Spec, p.swarm.Groups,
				p.o.CustomCells = custom, 8, true
		}, told: "cuda:0"},
		{
			name: "another number of groups", change: func(p *testServer) { p.swarm.Groups++ },
			told: "its record has 9 groups",
		},
		{
			name: "no room", change: func(p *testServer) { p.on.budget = pages.NewBudget(1000, 0) },
			told: "too few on the device",
		},
		{
			name: "no room, served", change: func(p *testServer) { p.on.budget = pages.NewBudget(1000, 0) },
			answered: 1,
			err:      waits,
		},
		{name: "no room on the host", change: func(p *testServer) {
			p.on.budget = pages.NewBudget(1000, 0)
			p.on.onHost = true
		}, err: waits},
		{
			name: "another number of groups, served", change: func(p *testServer) { p.swarm.Groups++ }, answered: 1,
			told: "its record has 9 groups",
		},
	} {
		p := newTestServer(t, d, Options{}, 3)
		c.change(p)
		for n := range c.answered {
			p.out.all = append(p.out.all, swarms.Entry{Seq: n + 1, Ref: n + 1})
		}
		err := p.serve(t, nil, 99)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) ||
			gpubatch.ClassOf(err) != "") {
			t.Errorf("%s: %v, want %q and no class", c.name, err, c.err)
		}
		if wrong := (*jobs.Error)(nil); errors.As(err, &wrong) {
			t.Errorf("%s: the error lays it to the swarm: %v", c.name, err)
		}
		got := p.out.entries()[c.answered:]
		if c.told == "" && len(got) > 0 || c.told != "" && (len(got) != 1 || got[0].Ref != c.answered+1 ||
			got[0].Kind != swarms.EntryRejected || !strings.Contains(string(got[0].Data), c.told)) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.told)
		}
	}
}

// TestWorkTriesAgain: a device that fails while a shard is made says nothing against the swarm.
func TestWorkTriesAgain(t *testing.T) {
	gone := launches.Host(t)
	p := newTestServer(t, launches.Host(t), Options{}, 3)
	p.on.device = gone
	testkit.NoError(t, "gone.Close", gone.Close())
	if err := p.serve(t, nil, 99); !errors.Is(err, gpubatch.ErrDevice) || len(p.out.entries()) != 0 {
		t.Errorf("%v, with %d answers", err, len(p.out.entries()))
	}
}

// TestWorkHasNoDeviceMemory: a device without room for a shard is named to the owner of a swarm
// that nobody has served; one that was served waits, and that is no failure of the device.
func TestWorkHasNoDeviceMemory(t *testing.T) {
	small, err := cuda.Open(t.Context(), "host", cuda.Options{MemoryLimit: 16 << 10})
	testkit.NoError(t, "cuda.Open", err)
	defer func() {
		if err := small.Close(); err != nil {
			t.Errorf("small.Close: %v, want no error", err)
		}
	}()
	for _, answered := range []uint64{0, 1} {
		p := newTestServer(t, launches.Host(t), Options{}, 3)
		p.on.device = small
		for n := range answered {
			p.out.all = append(p.out.all, swarms.Entry{Seq: n + 1, Ref: n + 1})
		}
		err := p.serve(t, nil, 99)
		got := p.out.entries()[answered:]
		if answered > 0 {
			if err == nil || gpubatch.ClassOf(err) != "" || !strings.HasSuffix(err.Error(),
				"waiting for room, or for an agent that has it") || len(got) != 0 {
				t.Errorf("%v, with %d answers", err, len(got))
			}
			continue
		}
		var told jobs.Error
		if err != nil || len(got) != 1 || json.Unmarshal(got[0].Data, &told) != nil || told.Code != jobs.CodeDevice ||
			!strings.HasPrefix(told.Message, "swarm x: ") {
			t.Errorf("%v, told %+v", err, told)
		}
	}
}

// TestWorkHasNoHostMemory: pages that have no place in host memory are laid to a swarm that nobody
// has served, where there is no store and the device is the agent's own.
func TestWorkHasNoHostMemory(t *testing.T) {
	d := launches.Host(t)
	for name, c := range map[string]struct {
		change   func(p *testServer)
		answered uint64
		told     bool
	}{
		"never served": {func(*testServer) {}, 0, true},
		"served":       {func(*testServer) {}, 1, false},
		"on the host":  {func(p *testServer) { p.on.onHost = true }, 0, false},
		"with a store that is away": {func(p *testServer) {
			p.o.Checkpoints = &oneDisk{fail: tiers.ErrLocked}
		}, 0, false},
	} {
		p := newTestServer(t, d, Options{}, 3)
		text := strings.NewReplacer("agents: 64", "agents: 400000", "kind: leaky}",
			"kind: gru}\nvote: {candidates: [a, b], rule: majority}").Replace(workText)
		p.swarm = record(t, text, 50000)
		p.on.budget = pages.NewBudget(6*64<<10, 64<<10)
		c.change(p)
		for n := range c.answered {
			p.out.all = append(p.out.all, swarms.Entry{Seq: n + 1, Ref: n + 1})
		}
		err := p.serve(t, nil, 99)
		got := p.out.entries()[c.answered:]
		if c.told && (err != nil || len(got) != 1 || got[0].Ref != 1 ||
			!strings.Contains(string(got[0].Data), "too few in host memory")) || !c.told &&
			(!errors.As(err, &pages.MemoryError{}) || len(got) > 0) {
			t.Errorf("%s: %v, answers %+v, want one answer: %t", name, err, got, c.told)
		}
	}
}

// TestWorkFreesMemory: a shard that had much memory has it given back to the system when it ends.
func TestWorkFreesMemory(t *testing.T) {
	d := launches.Host(t)
	at := func(bytes int64) (groups int) { // maximum number of groups in this many bytes
		for step := 1 << 16; step > 0; step /= 2 {
			spec, err := swarm.Parse("test.yaml", []byte(strings.Replace(workText, "agents: 64",
				fmt.Sprintf("agents: %d", 8*(groups+step)), 1)))
			testkit.NoError(t, "swarm.Parse", err)
			if spec.PageBytes(groups+step) <= bytes {
				groups += step
			}
		}
		return groups
	}
	for bytes, frees := range map[int64]bool{returnBytes - 64<<10: false, returnBytes: true} {
		p := newTestServer(t, d, Options{}, 1)
		groups := at(bytes)
		p.swarm = record(t, strings.Replace(workText, "agents: 64", fmt.Sprintf("agents: %d", 8*groups), 1), groups)
		p.in.all = append(p.in.all, swarms.Entry{Seq: 2, Kind: swarms.EntryEnd, Data: []byte("{}")})
		for range 2 {
			p.out.all = nil
			testkit.NoError(t, "p.serve", p.serve(t, nil, 99))
		}
		if p.freed != map[bool]int{true: 2}[frees] {
			t.Errorf("%d groups in %d bytes: %d signals", groups, bytes, p.freed)
		}
	}
}
