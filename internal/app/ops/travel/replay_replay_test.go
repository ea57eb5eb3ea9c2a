package travel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// entries are a log in memory. It counts the entries that are read.
type entries struct {
	all  []swarms.Entry
	read int
	fail error
}

func (l *entries) Bounds(context.Context, string, int, swarms.Direction) (first, last uint64, err error) {
	return 1, uint64(len(l.all)), l.fail
}

func (l *entries) Scan(_ context.Context, _ string, _ int, _ swarms.Direction, first, last uint64) (
	swarms.Reader, error,
) {
	return &reader{l, l.all[first-1 : last]}, nil
}

type reader struct {
	of   *entries
	left []swarms.Entry
}

func (r *reader) Next(context.Context) (swarms.Entry, error) {
	if len(r.left) == 0 {
		return swarms.Entry{}, jobs.ErrNotFound
	}
	e := r.left[0]
	r.left = r.left[1:]
	r.of.read++
	return e, nil
}

func (r *reader) Close() {}

const text = `name: cells
addressed: agent
cell: {kind: leaky}
agents: 640
agents_per_group: 64
page_size: 64KiB
features: [a]
seed: 3
`

// start returns a replayer of a log of n entries: each gives agent number i the input i, and steps
// all agents.
func startReplayer(t *testing.T, n int, keep int64) (*Replayer, swarms.Swarm, *entries) {
	t.Helper()
	spec, err := swarm.Parse("cells.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := swarms.Swarm{Version: jobs.Version, ID: "cells", Nonce: "abcdefgh", Name: "cells", Spec: data, Groups: 10}
	l := &entries{}
	for i := range n {
		e := swarms.Entry{Seq: uint64(i + 1), Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		if i%2 == 0 {
			o := &batch.AgentObservations{
				Width: 1, Agent: []uint32{uint32(i % 640), uint32(7 * i % 640)}, Features: []float32{float32(i), 3},
			}
			if e.Data, err = o.Encode(); err != nil {
				t.Fatal(err)
			}
			e.Kind = swarms.EntryObserve
		}
		l.all = append(l.all, e)
	}
	dev, err := host.Open(host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil { // what a replay leaves on the device is an error here
			t.Error(err)
		}
	})
	r, err := NewReplayer(ReplayOptions{Device: dev, Logs: l, KeepBytes: keep})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, s, l
}

// TestKept: a replay starts at the latest moment that is kept, and reads only the entries behind
// it.
func TestKept(t *testing.T) {
	r, s, l := startReplayer(t, 60, 1<<20)
	for _, at := range []struct {
		entry uint64
		start Start
		read  int
	}{
		{40, Start{Kind: StartLog}, 40},
		{50, Start{Kind: StartMoment, Entry: 40}, 11}, // with entry 40, which is compared
		{20, Start{Kind: StartLog}, 20},
		{45, Start{Kind: StartMoment, Entry: 40}, 6},
		{50, Start{Kind: StartMoment, Entry: 40}, 1}, // as it was kept
	} {
		l.read = 0
		m, err := r.At(t.Context(), s, 0, at.entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Start != at.start || l.read != at.read || m.Entry != at.entry {
			t.Errorf("entry %d begins with %+v and reads %d entries, want %+v and %d", at.entry, m.Start, l.read,
				at.start, at.read)
		}
	}
	if n := len(r.kept.all); n != 4 {
		t.Errorf("%d moments are kept, want 4", n)
	}
}

// TestForgotten: the moments that were not used for the longest time are forgotten, and the newest
// is kept whatever it takes.
func TestForgotten(t *testing.T) {
	r, s, _ := startReplayer(t, 60, 1)
	for entry := range uint64(5) {
		if _, err := r.At(t.Context(), s, 0, entry+20, Bounds{}); err != nil {
			t.Fatal(err)
		}
		if n := len(r.kept.all); n != 1 || r.kept.all[0].Entry != entry+20 {
			t.Fatalf("%d moments are kept after entry %d, want this one", n, entry+20)
		}
	}
	one := r.kept.all[0].pages.Bytes()
	r, s, _ = startReplayer(t, 60, 3*one+one/2)
	for _, entry := range []uint64{20, 21, 22, 20, 30} { // 20 is used again before 30 comes
		if _, err := r.At(t.Context(), s, 0, entry, Bounds{}); err != nil {
			t.Fatal(err)
		}
	}
	var kept []uint64
	for _, m := range r.kept.all {
		kept = append(kept, m.Entry)
	}
	if slices.Sort(kept); !slices.Equal(kept, []uint64{20, 22, 30}) && !slices.Equal(kept, []uint64{20, 30}) {
		t.Errorf("the moments %v are kept, want the newest and 20", kept)
	}
	r.Close()
	if len(r.kept.all) != 0 {
		t.Error("a closed replayer keeps moments")
	}
}

// TestSummary: the summary of a moment equals a summary of its groups, one by one.
func TestSummary(t *testing.T) {
	r, s, _ := startReplayer(t, 60, 0)
	m, err := r.At(t.Context(), s, 0, 59, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*Summary{}
	for g := range 10 {
		of, agents, err := m.Group(g, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range append(of, agents...) {
			s := want[v.Name]
			if s == nil {
				s = &Summary{
					Name: v.Name, Per: per(i < len(of)), Width: v.Width, Min: math.Inf(1), Max: math.Inf(-1),
				}
				want[v.Name] = s
			}
			s.add(v.Values)
		}
	}
	differs := 0
	for _, s := range got {
		w := want[s.Name]
		w.Mean /= float64(w.Values)
		if math.Abs(s.Mean-w.Mean) > 1e-9*math.Abs(w.Mean) || s.Min != w.Min || s.Max != w.Max ||
			s.Values != w.Values ||
			s.Per != w.Per ||
			s.Width != w.Width {
			t.Errorf("%+v, want %+v", s, *w)
		}
		if s.Max > s.Min {
			differs++
		}
	}
	if len(got) != len(want) || differs < 3 {
		t.Errorf("%d variables of %d, %d vary", len(got), len(want), differs)
	}
	if _, _, err := m.Group(10, 0, 1); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("group 10 of 10: %v", err)
	}
	if _, agents, err := m.Group(0, 70, 5); err != nil || len(agents) == 0 {
		t.Errorf("agents 70 to 74 of 64: %v, %v, want none", agents, err)
	}
}

// TestSame: two moments are the same where the state is, and a moment with other bits is not.
func TestSame(t *testing.T) {
	r, s, l := startReplayer(t, 10, 0)
	for i := range 3 { // questions change nothing
		l.all = append(l.all, swarms.Entry{
			Seq: uint64(11 + i), Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"agents":[1]}`),
		})
	}
	for _, c := range []struct {
		one, other uint64
		same       bool
	}{{10, 13, true}, {9, 10, false}, {3, 3, true}} {
		one, err := r.At(t.Context(), s, 0, c.one, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := r.At(t.Context(), s, 0, c.other, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if same, err := one.Same(other); err != nil || same != c.same {
			t.Errorf("entries %d and %d: the same is %v, %v, want %v", c.one, c.other, same, err, c.same)
		}
	}
}

// TestFailures: what fails is an error that names the swarm, and leaves nothing on the device.
func TestFailures(t *testing.T) {
	r, s, l := startReplayer(t, 10, 0)
	broken := errors.New("broken")
	l.fail = broken
	if _, err := r.At(t.Context(), s, 0, 1, Bounds{}); !errors.Is(err, broken) {
		t.Errorf("a log that cannot be read: %v", err)
	}
	l.fail = nil
	l.all[4].Seq = 7
	if _, err := r.At(t.Context(), s, 0, 9, Bounds{}); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a log with a gap: %v", err)
	}
	bad := s
	bad.Groups = 11
	if no := (*jobs.Error)(nil); !errors.As(mustFail(r.At(t.Context(), bad, 0, 1, Bounds{})), &no) ||
		no.Code != jobs.CodeInvalid {
		t.Errorf("a record with another number of groups: %v", no)
	}
	bad = s
	bad.Spec = []byte(`{`)
	if err := mustFail(r.At(t.Context(), bad, 0, 1, Bounds{})); err == nil {
		t.Error("a specification that is not JSON is replayed")
	}
	from := s
	from.From = &swarms.SnapshotRef{Name: "old", SHA256: fmt.Sprintf("%064d", 0)}
	if err := mustFail(r.At(t.Context(), from, 0, 1, Bounds{})); err == nil ||
		!errors.As(err, new(*jobs.Error)) {
		t.Errorf("a swarm that began with a snapshot: %v, want a refusal", err)
	}
	if _, err := NewReplayer(ReplayOptions{}); err == nil {
		t.Error("a replayer without a device is made")
	}
}

func mustFail(_ *ReplayMoment, err error) error { return err }
