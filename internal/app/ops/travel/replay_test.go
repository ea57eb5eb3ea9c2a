package travel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// replayer makes a replayer of the logs of a cluster, and closes it with the test.
func (c *testCluster) replayer(edit func(*ReplayOptions)) *Replayer {
	c.t.Helper()
	o := ReplayOptions{Device: openHost(c.t), Logs: c.conn.Swarms}
	if edit != nil {
		edit(&o)
	}
	r, err := NewReplayer(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(r.Close)
	return r
}

func withSnapshots(c *testCluster) func(*ReplayOptions) {
	return func(o *ReplayOptions) { o.Snapshots = c.snapshots }
}

// mark is a moment of a live swarm: the state that its agents had is in a snapshot.
type mark struct {
	s        swarms.Swarm
	shard    int
	entry    uint64
	snapshot string
}

// TestReplay: the state of a replay has the bits that the agents of a live swarm had, at random
// entries: by a snapshot, which the GPU agent wrote then, and by its answers to queries. The agent
// that serves the swarm changes twice: the second one starts from the log, the third from the
// checkpoint of the first.
func TestReplay(t *testing.T) {
	c := newCluster(t)
	keep := folders{dir: t.TempDir(), opened: &atomic.Int64{}, resumed: &atomic.Int64{}}
	all := []swarms.Swarm{c.create(shops), c.create(crowd), c.create(cells)}
	var marks []mark
	for round, agent := range []struct {
		name string
		keep shard.Checkpoints
	}{{"a", keep}, {"b", nil}, {"c", keep}} {
		a := c.agent(agent.name, agent.keep)
		for _, s := range all {
			for shard := range s.ShardCount() {
				for i := range 2 {
					c.fill(s, shard, 5+c.rng.IntN(20))
					name := fmt.Sprintf("%s-%d-%d-%d", s.ID, shard, round, i)
					marks = append(marks, mark{s, shard, c.snapshot(s, shard, name), name})
				}
			}
		}
		a.Stop()
	}
	if keep.opened.Load() < 10 || keep.resumed.Load() != 5 {
		t.Errorf("of %d stores %d had pages: the agents did not take over as they should", keep.opened.Load(),
			keep.resumed.Load())
	}
	fromLog, fromSnapshot := c.replayer(nil), c.replayer(withSnapshots(c))
	c.rng.Shuffle(len(marks), func(i, k int) { marks[i], marks[k] = marks[k], marks[i] })
	if testing.Short() {
		marks = marks[:len(marks)/4]
	}
	outcomes := 0
	for _, m := range marks {
		want, err := fromSnapshot.At(t.Context(), m.s, m.shard, m.entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(want.Start.Name, m.snapshot) || want.Replayed != 0 {
			t.Errorf("entry %d of %s.%d begins with %+v, want its snapshot", m.entry, m.s.ID, m.shard, want.Start)
		}
		got, err := fromLog.At(t.Context(), m.s, m.shard, m.entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Start.Kind == StartSnapshot {
			t.Errorf("a replayer without snapshots begins with %+v", got.Start)
		}
		same, err := got.Same(want)
		if err != nil || !same || got.Round != want.Round {
			t.Errorf("entry %d of %s.%d: the replay differs from the live state: %v; round %d, want %d", m.entry,
				m.s.ID, m.shard, err, got.Round, want.Round)
		}
		if d := cmp.Diff(want.Outcome, got.Outcome); d != "" {
			t.Errorf("entry %d of %s.%d: difference of outcomes (-live +replay):\n%s", m.entry, m.s.ID, m.shard, d)
		}
		if got.Outcome != nil {
			outcomes++
		}
	}
	if outcomes == 0 && !testing.Short() {
		t.Error("no replay has an outcome")
	}
	// Entries behind a snapshot, from it and from the start.
	for range 10 {
		s := all[c.rng.IntN(len(all))]
		shard := c.rng.IntN(s.ShardCount())
		entry := 1 + uint64(c.rng.IntN(int(c.seq[swarms.LeaseKey(s.Key(), shard)])))
		one, err := c.replayer(withSnapshots(c)).At(t.Context(), s, shard, entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.replayer(nil).At(t.Context(), s, shard, entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if same, err := one.Same(other); err != nil || !same || one.Round != other.Round {
			t.Errorf("entry %d of %s.%d from %+v and from %+v: they differ, %v", entry, s.ID, shard, one.Start,
				other.Start, err)
		}
	}
}

// TestReplayAnswers: a replay has the variables that the live swarm answers to a query at that
// moment.
func TestReplayAnswers(t *testing.T) {
	c := newCluster(t)
	c.agent("a", nil)
	s := c.create(shops)
	r := c.replayer(nil)
	client, err := swarmclient.New(swarmclient.Options{Swarms: c.conn.Swarms})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.Open(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	log := c.conn.Swarms.Log(s.Key(), 0, swarms.In)
	for range 8 {
		c.fill(s, 0, 1+c.rng.IntN(9))
		group := c.rng.IntN(40)
		var ids []uint32
		for a := range 64 {
			ids = append(ids, uint32(64*group+a))
		}
		of, err := live.GroupVariables(t.Context(), []uint32{uint32(group)})
		if err != nil {
			t.Fatal(err)
		}
		agents, err := live.AgentVariables(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		last, err := log.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.seq[swarms.LeaseKey(s.Key(), 0)] = last.Seq
		m, err := r.At(t.Context(), s, 0, last.Seq, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		gotGroup, gotAgents, err := m.Group(group, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(gotGroup, of.Vars) || !reflect.DeepEqual(gotAgents, agents.Vars) {
			t.Errorf("group %d at entry %d:\n%+v\n%+v\nwant\n%+v\n%+v", group, last.Seq, gotGroup, gotAgents, of.Vars,
				agents.Vars)
		}
		few, err := m2(m.Group(group, 60, 9))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range few {
			all := reflect.ValueOf(gotAgents[i].Values)
			if want := all.Slice(60*v.Width, 64*v.Width).Interface(); !reflect.DeepEqual(v.Values, want) {
				t.Errorf("the last 4 agents of group %d: %s is %v, want %v", group, v.Name, v.Values, want)
			}
		}
	}
}

func m2(_, agents []batch.Variable, err error) ([]batch.Variable, error) { return agents, err }

// TestReplayTrimmed: a trimmed log is replayed from the snapshot that it was trimmed to. Without
// the place of snapshots, and before that snapshot, the error says what is missing and what to do.
func TestReplayTrimmed(t *testing.T) {
	c := newCluster(t)
	c.agent("a", nil)
	s := c.create(crowd)
	whole := c.replayer(nil)
	var want []*ReplayMoment
	for shard := range 3 {
		c.fill(s, shard, 20)
	}
	client, err := swarmclient.New(swarmclient.Options{Swarms: c.conn.Swarms})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.Open(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Snapshot(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	for shard := range 3 {
		c.seq[swarms.LeaseKey(s.Key(), shard)]++
		c.fill(s, shard, 10)
		m, err := whole.At(t.Context(), s, shard, 31, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		c.answered(s, shard, 31)
		want = append(want, m)
	}
	if _, err := live.Trim(t.Context(), c.snapshots, "base", nil); err != nil {
		t.Fatal(err)
	}
	if s, err = c.conn.Swarms.Swarm(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	r := c.replayer(withSnapshots(c))
	for shard := range 3 {
		m, err := r.At(t.Context(), s, shard, 31, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if same, err := m.Same(want[shard]); err != nil || !same || m.Start.Entry != 21 {
			t.Errorf("shard %d from %+v differs from the state before the log was trimmed: %v", shard, m.Start, err)
		}
	}
	if m, err := r.At(t.Context(), s, 1, 21, Bounds{}); err != nil || m.Replayed != 0 {
		t.Errorf("the entry of the snapshot: %+v, %v", m, err)
	}
	_, err = r.At(t.Context(), s, 1, 20, Bounds{})
	if !errors.Is(err, ErrTrimmed) || !strings.Contains(err.Error(), "ask for entry 21 or a later one") {
		t.Errorf("an entry before the snapshot: %v", err)
	}
	_, err = c.replayer(nil).At(t.Context(), s, 1, 31, Bounds{})
	if !errors.Is(err, ErrTrimmed) || !strings.Contains(err.Error(), "--snapshots with the place of snapshot "+
		"base-shard1") {
		t.Errorf("without the place of snapshots: %v", err)
	}
}

// TestReplayBounds: what is not there, too large or too far is refused with a sentence and a cure.
func TestReplayBounds(t *testing.T) {
	c := newCluster(t)
	s := c.create(shops) // no agent serves it: a replay needs no answers
	c.fill(s, 0, 30)
	for _, b := range []struct {
		edit  func(*ReplayOptions)
		shard int
		entry uint64
		want  error
		text  string
	}{
		{nil, 0, 31, jobs.ErrNotFound, "its log has the entries 1 to 30"},
		{nil, 0, 0, jobs.ErrNotFound, "its log has the entries 1 to 30"},
		{nil, 1, 1, jobs.ErrNotFound, "it has the shards 0 to 0"},
		{func(o *ReplayOptions) { o.MaxBytes = 1 << 10 }, 0, 3, ErrTooLarge, "exoswarm swarm query"},
		{func(o *ReplayOptions) { o.MaxEntries = 10 }, 0, 11, ErrTooFar, "exoswarm snapshot create"},
	} {
		_, err := c.replayer(b.edit).At(t.Context(), s, b.shard, b.entry, Bounds{})
		if !errors.Is(err, b.want) || !strings.Contains(err.Error(), b.text) {
			t.Errorf("entry %d of shard %d: %v, want %v: %s", b.entry, b.shard, err, b.want, b.text)
		}
	}
	gone := s
	gone.Nonce = swarms.NewNonce()
	if _, err := c.replayer(nil).At(t.Context(), gone, 0, 1, Bounds{}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a swarm without a log: %v", err)
	}
	r := c.replayer(nil)
	r.Close()
	r.Close()
	if _, err := r.At(t.Context(), s, 0, 1, Bounds{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestReplayTime: a replay whose time is over continues with the next call, and ends with the bits
// of an uninterrupted replay. A cancelled call ends at once, and lets the next one run.
func TestReplayTime(t *testing.T) {
	c := newCluster(t)
	s := c.create(cells)
	for range 600 {
		c.append(s, 0, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":2}`)})
		if c.rng.IntN(3) == 0 {
			c.fill(s, 0, 1)
		}
	}
	last := c.seq[swarms.LeaseKey(s.Key(), 0)]
	want, err := c.replayer(nil).At(t.Context(), s, 0, last, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	r := c.replayer(nil)
	var at []uint64
	for {
		m, err := r.At(t.Context(), s, 0, last, Bounds{Within: time.Millisecond})
		var over *Unfinished
		if errors.As(err, &over) {
			at = append(at, over.Entry)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if same, err := m.Same(want); err != nil || !same {
			t.Errorf("a replay in %d parts differs: %v", len(at), err)
		}
		break
	}
	if len(at) == 0 || !slices.IsSorted(at) || len(slices.Compact(at)) != len(at) || at[len(at)-1] >= last {
		t.Errorf("the parts end with the entries %v, want growing ones below %d", at, last)
	}

	r = c.replayer(nil)
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		_, err := r.At(ctx, s, 0, last, Bounds{Progress: func(entry, of uint64) {
			if of != last || entry == 0 || entry > of {
				t.Errorf("progress %d of %d", entry, of)
			}
			select {
			case began <- struct{}{}:
			default:
			}
			<-ctx.Done() // so that it is not over
		}})
		failed <- err
	}()
	<-began
	waits, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := r.At(waits, s, 0, 1, Bounds{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second replay beside the first: %v", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled replay: %v", err)
	}
	if _, err := r.At(t.Context(), s, 0, 1, Bounds{}); err != nil {
		t.Errorf("a replay after a cancelled one: %v", err)
	}
}

// TestReplayRestored: moments that are kept of a log are not used for another one that took its
// place, as after a restore of the server from a backup.
func TestReplayRestored(t *testing.T) {
	c := newCluster(t)
	s := c.create(cells)
	c.fill(s, 0, 20)
	r := c.replayer(nil)
	for _, entry := range []uint64{10, 20} {
		if _, err := r.At(t.Context(), s, 0, entry, Bounds{}); err != nil {
			t.Fatal(err)
		}
	}
	log := c.conn.Swarms.Log(s.Key(), 0, swarms.In)
	if err := log.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := log.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.seq[swarms.LeaseKey(s.Key(), 0)] = 0
	c.fill(s, 0, 20)
	testkit.Until(t, "20 entries", func() bool {
		_, last, err := c.conn.Swarms.Bounds(t.Context(), s.Key(), 0, swarms.In)
		return err == nil && last == 20
	})
	for _, entry := range []uint64{20, 15, 10} {
		got, err := r.At(t.Context(), s, 0, entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.replayer(nil).At(t.Context(), s, 0, entry, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		if same, err := got.Same(want); err != nil || !same {
			t.Errorf("entry %d is of the former log: %v", entry, err)
		}
	}
}
