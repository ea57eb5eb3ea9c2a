package gpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestWorkBeginsAtABase: a shard whose log was trimmed begins as the snapshot of its base and
// applies what follows, and no entry of before.
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
		o := serverOptions{Snapshots: store}
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
			if err := errors.Join(json.Unmarshal(st.Note(), &at), st.Close()); err != nil ||
				at.State != k.about().meaning || at.State == k.population.about().meaning || at.Entry != 6 {
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

// TestBegin: a swarm that nobody has served is told once what is wrong with its snapshot. One that
// was served is not, and fails here; a store that fails says nothing against the swarm.
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
		{
			name: "base before from", base: &jobs.SwarmBase{SnapshotRef: good, Entry: 7}, from: &bad, answered: 7,
			entry: 7,
		},
		{name: "bad from", from: &bad, told: true},
		{name: "bad from, one answer", from: &bad, answered: 1, err: "swarm kept: snapshot none: snapshot not found"},
		{
			name: "bad base", base: &jobs.SwarmBase{SnapshotRef: bad, Entry: 7}, answered: 7,
			err: "swarm kept: snapshot none: snapshot not found",
		},
		{name: "bad base, nothing answered", base: &jobs.SwarmBase{SnapshotRef: bad, Entry: 7}, told: true},
	} {
		k := openKeeping(t, d, store, workText, 0, c.from)
		k.swarm.Base = c.base
		out := &ledger{}
		w := &writer{out: out, answered: c.answered}
		entry, told, err := begin(t.Context(), k, w, log)
		if entry != c.entry || told != c.told || (err == nil) != (c.err == "") || err != nil &&
			!strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: entry %d, told %v: %v", c.name, entry, told, err)
		}
		if told != (len(out.all) == 1) || told && (out.all[0].Ref != 1 || out.all[0].Kind != jobs.EntryRejected ||
			!strings.Contains(string(out.all[0].Data), "swarm kept: snapshot none")) {
			t.Errorf("%s: %+v", c.name, out.all)
		}
	}
	k := openKeeping(t, d, unreadable{store}, workText, 0, &good)
	out := &ledger{}
	if _, told, err := begin(t.Context(), k, &writer{out: out}, log); told || err == nil || len(out.all) != 0 {
		t.Errorf("a store that fails: told %v: %v", told, err)
	}
}

// TestCovers: agents begin as a snapshot that has all groups of a swarm, or as that of the shard
// that they are.
func TestCovers(t *testing.T) {
	mine := jobs.Swarm{ID: "x", Name: "x", Nonce: "1"}
	other := mine
	other.Nonce = "2"
	k := &keeping{swarm: mine, has: holding{shard: 1, shards: 3, first: 10, groups: 5, all: 15}}
	part := func(of jobs.Swarm, number, first, groups int) *snapshot.Manifest {
		return &snapshot.Manifest{Name: "s", Swarm: snapshot.OriginOf(of), Shard: &snapshot.Shard{
			Number: number, Of: 3,
			First: first, Groups: 15,
		}, Groups: groups}
	}
	for name, c := range map[string]struct {
		parts []*snapshot.Manifest
		ok    bool
	}{
		"a whole swarm": {[]*snapshot.Manifest{{Name: "s", Groups: 99}}, true},
		"all shards of another swarm": {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5), part(other, 2,
			10, 5)}, true},
		"its own shard":            {[]*snapshot.Manifest{part(mine, 1, 10, 5)}, true},
		"a shard of another swarm": {[]*snapshot.Manifest{part(other, 1, 10, 5)}, false},
		"groups from another on":   {[]*snapshot.Manifest{part(mine, 1, 9, 5)}, false},
		"fewer groups":             {[]*snapshot.Manifest{part(mine, 1, 10, 4)}, false},
		"two shards of three":      {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5)}, false},
	} {
		err := k.covers(c.parts)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, snapshot.ErrMismatch) ||
			!strings.Contains(err.Error(), fmt.Sprintf("it has shard %d of 3 of a swarm alone",
				c.parts[0].Shard.Number))) {
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

// TestPartNames: a snapshot of a swarm with several shards has a part for each, by its number, and
// one of a single shard has the name that was asked for.
func TestPartNames(t *testing.T) {
	d, store := openHost(t), openStore(t)
	for shards := 1; shards <= 3; shards++ {
		spec, err := swarm.Parse("test.yaml", []byte(workText+fmt.Sprintf("shards: %d\n", shards)))
		if err != nil {
			t.Fatal(err)
		}
		for k := range shards {
			name := fmt.Sprintf("of%d", shards)
			want := name
			if shards > 1 {
				want = snapshot.PartName(name, k)
			}
			if got := take(t, openShard(t, d, nil, store, spec, spec.Groups(), k, nil), name, 1); got.Name != want ||
				got.Version != jobs.Version {
				t.Errorf("shard %d of %d: %+v, want the name %s", k, shards, got, want)
			}
		}
	}
}
