package shard

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

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestWorkBeginsAtABase: a shard whose log was trimmed begins as the snapshot of its base and
// applies what follows, and no entry of before.
func TestWorkBeginsAtABase(t *testing.T) {
	d, store := launches.Host(t), openStore(t)
	want := answersOf(t, d, 6)
	gone := errors.New("the log cannot be read")
	for _, c := range []struct {
		base uint64
		from bool // the swarm began as the snapshot
		fail error
	}{{1, false, nil}, {3, false, nil}, {3, false, gone}, {0, true, nil}} {
		name := fmt.Sprintf("base%d%v", c.base, c.fail != nil)
		k, _ := openSnapshotter(t, d, store, workText, nil)
		n := c.base
		if c.from {
			n = 2
		}
		for _, e := range worked(t, int(n)) {
			if _, err := k.Apply(t.Context(), e); err != nil {
				t.Fatalf("k.Apply: %v, want no error", err)
			}
		}
		ref := swarms.SnapshotRef{Name: name, SHA256: take(t, k, name, max(n, 1)).SHA256}
		kept := &oneDisk{disk: newDisk()}
		o := Options{Snapshots: store}
		if c.from {
			o.Checkpoints = kept
		}
		p := newTestServer(t, d, o, 6)
		if c.from {
			p.swarm.From = &ref
		} else {
			p.swarm.Base = &swarms.Base{SnapshotRef: ref, Entry: c.base}
		}
		for i := range c.base {
			p.out.all = append(p.out.all, swarms.Entry{Seq: i + 1, Ref: i + 1, Data: []byte(want[i])})
		}
		if p.in.unread = map[uint64]error{c.base + 1: c.fail}; c.fail != nil {
			if err := p.serve(t, nil, 99); !errors.Is(err, gone) || p.in.readers != 0 {
				t.Errorf("%v; %d readers", err, p.in.readers)
			}
			continue
		}
		p.in.unread = nil
		if r := p.parked(t, nil, 6); r.Entry != 6 {
			t.Errorf("base %d: the rest is of entry %d", c.base, r.Entry)
		}
		got := texts(p.out)
		if c.from {
			began, _ := openSnapshotter(t, d, store, workText, &ref)
			st, err := kept.Open("", 0, 64<<10, 0)
			testkit.NoError(t, "kept.Open", err)
			var at position
			if err := errors.Join(json.Unmarshal(st.Note(), &at), st.Close()); err != nil ||
				at.State != began.Info().Digest || at.State == k.State.Info().Digest || at.Entry != 6 {
				t.Errorf("the checkpoint is %+v, want the digest %s: %v", at, began.Info().Digest, err)
			}
			if slices.Equal(got, want) || len(got) != 6 {
				t.Errorf("a swarm that began as a snapshot answers as one that did not: %q", got)
			}
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("base %d:\n%q, want\n%q", c.base, got, want)
		}
		p.in.all = p.in.all[:c.base] // nothing after the base
		p.out.all = p.out.all[:c.base]
		if r := p.parked(t, nil, int(c.base)); r.Entry != c.base {
			t.Errorf("base %d: the rest of a shard that has applied nothing is of entry %d", c.base, r.Entry)
		}
	}
}

// TestBegin: a swarm that nobody has served is told once what is wrong with its snapshot. A swarm
// that was served is not told, and fails here. A store that fails does not refuse the swarm.
func TestBegin(t *testing.T) {
	d, store := launches.Host(t), openStore(t)
	log := slog.New(slog.DiscardHandler)
	one, _ := openSnapshotter(t, d, store, workText, nil)
	good := swarms.SnapshotRef{Name: "one", SHA256: take(t, one, "one", 1).SHA256}
	bad := swarms.SnapshotRef{Name: "none", SHA256: good.SHA256}
	for _, c := range []struct {
		name     string
		from     *swarms.SnapshotRef
		base     *swarms.Base
		answered uint64
		entry    uint64
		told     bool
		err      string
	}{
		{name: "none"},
		{name: "none, served", answered: 4},
		{name: "from", from: &good},
		{name: "from, served", from: &good, answered: 4},
		{name: "base", base: &swarms.Base{SnapshotRef: good, Entry: 7}, answered: 7, entry: 7},
		{
			name: "base before from", base: &swarms.Base{SnapshotRef: good, Entry: 7}, from: &bad, answered: 7,
			entry: 7,
		},
		{name: "bad from", from: &bad, told: true},
		{name: "bad from, one answer", from: &bad, answered: 1, err: "swarm kept: snapshot none: snapshot not found"},
		{
			name: "bad base", base: &swarms.Base{SnapshotRef: bad, Entry: 7}, answered: 7,
			err: "swarm kept: snapshot none: snapshot not found",
		},
		{name: "bad base, nothing answered", base: &swarms.Base{SnapshotRef: bad, Entry: 7}, told: true},
	} {
		k, s := openSnapshotter(t, d, store, workText, c.from)
		s.Base = c.base
		out := &ledger{}
		w := &writer{out: out, answered: c.answered}
		entry, told, err := startFromSnapshot(t.Context(), k, s, 0, w, log)
		if entry != c.entry || told != c.told || (err == nil) != (c.err == "") || err != nil &&
			!strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: entry %d, told %v: %v", c.name, entry, told, err)
		}
		if told != (len(out.all) == 1) || told && (out.all[0].Ref != 1 || out.all[0].Kind != swarms.EntryRejected ||
			!strings.Contains(string(out.all[0].Data), "swarm kept: snapshot none")) {
			t.Errorf("%s: entries %+v, want a refusal of the snapshot: %t", c.name, out.all, told)
		}
	}
	k, s := openSnapshotter(t, d, unreadable{store}, workText, &good)
	out := &ledger{}
	if _, told, err := startFromSnapshot(t.Context(), k, s, 0, &writer{out: out}, log); told || err == nil ||
		len(out.all) != 0 {
		t.Errorf("a store that fails: told %v: %v", told, err)
	}
}

// unreadable is a store that cannot be read now.
type unreadable struct{ snapshot.Store }

// Open implements snapshot.Store.
func (unreadable) Open(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.New("no route to the store")
}
