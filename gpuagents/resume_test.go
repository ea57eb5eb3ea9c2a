package gpuagents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// observe appends an observation of some agents and waits for the decision.
func (s *stage) observe(t *testing.T, id string, n int) {
	t.Helper()
	o := &batch.AgentObservations{Width: 1}
	for a := range 64 {
		if (a+n)%3 > 0 {
			o.Agent = append(o.Agent, uint32(a))
			o.Features = append(o.Features, float32(a%7)/5+float32(n)/10)
		}
	}
	data, err := o.Encode()
	testkit.NoError(t, "o.Encode", err)
	in := s.conn.Swarms.Log(id, 0, swarms.In)
	last, err := in.Last(t.Context())
	testkit.NoError(t, "in.Last", err)
	if err := in.Append(t.Context(), last.Seq, swarms.Entry{Kind: swarms.EntryObserve, Data: data}); err != nil {
		t.Fatalf("in.Append: %v, want no error", err)
	}
	if e := s.answer(t, id, 0, last.Seq+1); e.Kind != swarms.EntryDecide {
		t.Fatalf("the answer to an observation is %s: %s", e.Kind, e.Data)
	}
}

// everybody asks for the state of all agents.
func (s *stage) everybody(t *testing.T, id string) string {
	t.Helper()
	q := swarms.Query{Version: jobs.Version}
	for a := range uint32(64) {
		q.Agents = append(q.Agents, a)
	}
	e := s.ask(t, id, 0, swarms.EntryQuery, q)
	if e.Kind != swarms.EntryState {
		t.Fatalf("the answer to a question is %s: %s", e.Kind, e.Data)
	}
	return string(e.Data)
}

// logged waits until agents have logged a text since the last reset.
func (s *stage) logged(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !strings.Contains(s.log.String(), text) {
		select {
		case <-time.After(2 * time.Millisecond): // between two looks
		case <-ctx.Done():
			t.Fatalf("not logged: %s\n%s", text, s.log)
		}
	}
}

// note changes the note of a checkpoint that no agent has open, and returns the old one.
func (k *kept) note(t *testing.T, id string, change func(note map[string]any) []byte) map[string]any {
	t.Helper()
	st, err := k.Open(id, 0, 64<<10, 1)
	testkit.NoError(t, "k.Open", err)
	defer st.Close()
	var note map[string]any
	if err := json.Unmarshal(st.Note(), &note); err != nil {
		t.Fatalf("note %q: %v", st.Note(), err)
	}
	if change != nil {
		if _, err := st.Commit(t.Context(), change(note)); err != nil {
			t.Fatalf("st.Commit: %v, want no error", err)
		}
	}
	return note
}

func Set(field string, v any) func(map[string]any) []byte {
	return func(note map[string]any) []byte {
		note[field] = v
		data, err := json.Marshal(note)
		if err != nil {
			panic(err)
		}
		return data
	}
}

// forget truncates the answers of a swarm, as a server does that has lost the last ones in a power
// cut.
func (s *stage) forget(t *testing.T, id string, left uint64) {
	t.Helper()
	out := s.conn.Swarms.Log(id, 0, swarms.Out)
	r, err := out.Read(t.Context(), 1)
	testkit.NoError(t, "out.Read", err)
	var all []swarms.Entry
	for range left {
		e, err := r.Next(t.Context())
		testkit.NoError(t, "r.Next", err)
		all = append(all, e)
	}
	r.Close()
	if err := errors.Join(out.Delete(t.Context()), out.Create(t.Context()),
		out.Append(t.Context(), 0, all...)); err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
}

const resumed = "shard resumed from its checkpoint"

// TestResume: an agent resumes from the checkpoint of its predecessor when the checkpoint belongs
// to the log, the spec and the program, and from the log otherwise. In both cases the agents equal
// a swarm whose agent was never stopped.
func TestResume(t *testing.T) {
	t.Parallel()
	const before = 5
	for i, c := range []struct {
		name string
		harm func(t *testing.T, k *kept, id string)
		log  string
	}{
		{name: "whole", log: resumed + `" swarm=ID entry=5 answered=5 last=5`},
		{
			name: "another version", log: "it is of version 1, this program writes 2",
			harm: func(t *testing.T, k *kept, id string) { k.note(t, id, Set("v", 1)) },
		},
		{
			name: "another digest", log: "it is of another spec",
			harm: func(t *testing.T, k *kept, id string) { k.note(t, id, Set("state", "other")) },
		},
		{name: "another log", log: "the log has another entry there", harm: func(t *testing.T, k *kept, id string) {
			k.note(t, id, Set("digest", strings.Repeat("0", 64)))
		}},
		{
			name: "another entry", log: "the log has another entry there",
			harm: func(t *testing.T, k *kept, id string) { k.note(t, id, Set("entry", 3)) },
		},
		{
			name: "no entry", log: "it is of log entry 0",
			harm: func(t *testing.T, k *kept, id string) { k.note(t, id, Set("entry", 0)) },
		},
		{
			name: "ahead of the answers", log: "it is of log entry 6; the log has 5, and answers to 5",
			harm: func(t *testing.T, k *kept, id string) { k.note(t, id, Set("entry", 6)) },
		},
		{name: "no note", log: "its position is not JSON", harm: func(t *testing.T, k *kept, id string) {
			k.note(t, id, func(map[string]any) []byte { return []byte("{") })
		}},
		{name: "not to be removed", log: "no checkpoints of this shard", harm: func(t *testing.T, k *kept, id string) {
			k.note(t, id, Set("v", 99))
			k.stay = errors.New("a disk that keeps what it has")
		}},
		{name: "ahead of the answers that are left", log: "it is of log entry 5; the log has 5, and answers to 3"},
		{name: "gone", log: "serving shard", harm: func(_ *testing.T, k *kept, id string) { _ = k.Remove(id, 0) }},
		{name: "locked", log: "give every agent a data folder of its own", harm: func(_ *testing.T, k *kept, _ string) {
			k.fail = fmt.Errorf("it is open: %w", tiers.ErrLocked)
		}},
		{
			name: "not to be opened", log: "checkpoint not used",
			harm: func(_ *testing.T, k *kept, _ string) { k.fail = errors.New("a disk") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(c.name, "ahead of") {
				testkit.OnlyLong(t) // they wait for 10 s for answers that do not come
			}
			s, k, id, twin := newStage(t), newKept(), fmt.Sprint("x", i), fmt.Sprint("twin", i)
			all := gpuagents.Options{Checkpoints: k}
			a := s.agent(t, all)
			r := s.record(t, id, 1, "checkpoint: {interval: 1h, entries: 1000}\n")
			s.tell(r)
			for n := range before {
				s.observe(t, id, n)
			}
			a.Stop() // which keeps what was applied
			if got := k.note(t, id, nil); got["entry"] != float64(before) {
				t.Fatalf("the agent that stopped kept entry %v", got["entry"])
			}
			if c.harm != nil {
				c.harm(t, k, id)
			}
			if strings.HasSuffix(c.name, "that are left") {
				s.forget(t, id, 3)
			}
			s.log.Reset()
			a = s.agent(t, all)
			s.tell(r)
			s.tell(s.record(t, twin, 1, ""))
			s.logged(t, strings.ReplaceAll(c.log, "ID", id))
			for n := range before {
				s.observe(t, twin, n)
			}
			if got, want := s.everybody(t, id), s.everybody(t, twin); got != want {
				t.Error("the agents differ from a swarm that was not disturbed")
			}
			s.observe(t, id, before)
			s.observe(t, twin, before)
			if got, want := s.everybody(t, id), s.everybody(t, twin); got != want {
				t.Error("after an observation the agents differ from a swarm that was not disturbed")
			}
			if strings.Contains(s.log.String(), resumed) != (c.name == "whole") {
				t.Errorf("resumed or not:\n%s", s.log)
			}
			a.Stop()
			if c.name == "locked" || c.name == "not to be opened" || c.name == "not to be removed" {
				return
			}
			if got := k.note(t, id, nil); got["entry"] != float64(before+3) {
				t.Errorf("the second agent kept entry %v", got["entry"])
			}
		})
	}
}

// TestTrimmedLog: a checkpoint of before the entry at which the log now begins is not used, and one
// at that entry is.
func TestTrimmedLog(t *testing.T) {
	for base, used := range map[uint64]bool{2: true, 3: true, 4: false} {
		t.Run(fmt.Sprint(base), func(t *testing.T) {
			s, k := newStage(t), newKept()
			a := s.agent(t, gpuagents.Options{Checkpoints: k})
			r := s.record(t, "x", 1, "checkpoint: {interval: 1h, entries: 1000}\n")
			s.tell(r)
			for n := range 3 {
				s.observe(t, "x", n)
			}
			a.Stop()
			r.Base = &swarms.Base{
				SnapshotRef: swarms.SnapshotRef{Name: "none", SHA256: strings.Repeat("0", 64)},
				Entry:       base,
			}
			s.log.Reset()
			s.agent(t, gpuagents.Options{Checkpoints: k})
			s.tell(r)
			if used {
				s.logged(t, resumed)
			} else {
				s.logged(t, fmt.Sprintf("it is of log entry 3, and the log was trimmed to %d", base))
			}
		})
	}
}

// watched is checkpoints whose commits a test sees before they happen.
type watched struct {
	*kept
	commit func(note []byte)
}

// Open implements gpuagents.Checkpoints.
func (w watched) Open(id string, shard, pageSize, pages int) (pages.Store, error) {
	s, err := w.kept.Open(id, shard, pageSize, pages)
	if err != nil {
		return nil, err
	}
	return watchedStore{s, w.commit}, nil
}

type watchedStore struct {
	pages.Store
	commit func(note []byte)
}

// Commit implements tiers.Store.
func (s watchedStore) Commit(ctx context.Context, note []byte) (uint64, error) {
	s.commit(note)
	return s.Store.Commit(ctx, note)
}

// held is a queue on which answers wait until they are let go.
type held struct {
	told
	reached chan struct{} // an answer waits
	let     chan struct{} // closed to let them go
}

// Log implements gpuagents.Queue.
func (q held) Log(id string, shard int, d swarms.Direction) swarms.Log {
	l := q.told.Log(id, shard, d)
	if d == swarms.In {
		return l
	}
	return heldLog{l, q}
}

type heldLog struct {
	swarms.Log
	of held
}

// Append implements swarms.Log.
func (l heldLog) Append(ctx context.Context, after uint64, all ...swarms.Entry) error {
	select {
	case l.of.reached <- struct{}{}:
	default:
	}
	<-l.of.let
	return l.Log.Append(ctx, after, all...)
}

// TestCheckpointsAreBehindAnswers: a checkpoint is stored after as many entries as the spec says,
// not before their answers are in the log, and not again where nothing was applied since.
func TestCheckpointsAreBehindAnswers(t *testing.T) {
	s, k := newStage(t), newKept()
	committed := make(chan uint64, 10)
	w := watched{k, func(note []byte) {
		var p struct{ Entry uint64 }
		if err := json.Unmarshal(note, &p); err != nil {
			t.Errorf("note %q: %v", note, err)
		}
		if last, err := s.conn.Swarms.Log("x", 0, swarms.Out).Last(context.Background()); err != nil ||
			last.Ref < p.Entry {
			t.Errorf("a checkpoint at entry %d, and answers to %d: %v", p.Entry, last.Ref, err)
		}
		committed <- p.Entry
	}}
	q := held{s.queue, make(chan struct{}, 1), make(chan struct{})}
	a := s.agent(t, gpuagents.Options{Checkpoints: w, Queue: q})
	r := s.record(t, "x", 1, "checkpoint: {interval: 1h, entries: 4}\n")
	in, tick := s.conn.Swarms.Log("x", 0, swarms.In), []byte(`{"v":1,"count":1}`)
	for n := range uint64(4) {
		if err := in.Append(t.Context(), n, swarms.Entry{Kind: swarms.EntryTick, Data: tick}); err != nil {
			t.Fatalf("in.Append: %v, want no error", err)
		}
	}
	s.tell(r)
	<-q.reached
	select {
	case <-committed: // the hook has said what is wrong with it
	case <-time.After(300 * time.Millisecond): // a checkpoint that waits for answers does not come
	}
	close(q.let)
	if got := <-committed; got != 4 {
		t.Errorf("a checkpoint at entry %d", got)
	}
	s.logged(t, "checkpoint stored")
	for range 3 {
		if e := s.ask(t, "x", 0, swarms.EntryTick, swarms.Tick{
			Version: jobs.Version,
			Count:   1,
		}); e.Kind == swarms.EntryRejected {
			t.Fatalf("the tick was refused: %s", e.Data)
		}
	}
	if n := len(committed); n != 0 {
		t.Errorf("%d checkpoints after 3 of 4 further entries", n)
	}
	a.Stop()
	if got := <-committed; got != 7 {
		t.Errorf("the agent that stopped kept entry %d", got)
	}
	s.log.Reset()
	a = s.agent(t, gpuagents.Options{Checkpoints: w, Queue: q})
	s.tell(r)
	s.logged(t, resumed)
	a.Stop()
	if n := len(committed); n != 0 {
		t.Errorf("%d checkpoints where nothing was applied", n)
	}
}

// TestEnd: a shard whose log ends has the end as its last answer, is served no more, and its
// checkpoint is there until the swarm is gone.
func TestEnd(t *testing.T) {
	s, k := newStage(t), newKept()
	id := shard.ID{Swarm: "x"}
	a := s.agent(t, gpuagents.Options{Checkpoints: k})
	s.tell(s.record(t, "x", 1, ""))
	s.observe(t, "x", 0)
	if e := s.ask(t, "x", 0, swarms.EntryEnd, swarms.EndOfInput{}); e.Kind != swarms.EntryEnd || e.Ref != 2 {
		t.Fatalf("the answer to the end is %+v", e)
	}
	s.logged(t, "shard finished")
	testkit.Until(t, "no shard is served", func() bool { return a.Shards() == 0 })
	if !k.has(id) {
		t.Error("the checkpoint is gone before the swarm")
	}
	s.queue.changes <- swarms.Change{ID: "x", Gone: true}
	testkit.Until(t, "the checkpoint is removed", func() bool { return !k.has(id) })
}

// TestGone: deleting a served swarm removes its checkpoint. The checkpoint of a swarm that was
// deleted while no agent ran is removed when an agent starts. The checkpoint of an existing swarm
// stays.
func TestGone(t *testing.T) {
	s, k := newStage(t), newKept()
	a := s.agent(t, gpuagents.Options{Checkpoints: k})
	for _, id := range []string{"x", "y", "z"} {
		s.tell(s.record(t, id, 1, ""))
		s.observe(t, id, 0)
	}
	s.queue.changes <- swarms.Change{ID: "x", Gone: true}
	s.queue.changes <- swarms.Change{ID: "never", Gone: true}
	testkit.Until(t, "the checkpoint is removed", func() bool { return !k.has(shard.ID{Swarm: "x"}) })
	testkit.Until(t, "two are served", func() bool { return a.Shards() == 2 })
	a.Stop()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		testkit.NoError(t, "Delete", s.conn.Swarms.Log("y", 0, d).Delete(t.Context()))
	}
	k.list = errors.New("a tier that cannot be listed")
	a = s.agent(t, gpuagents.Options{Checkpoints: k})
	testkit.Until(t, "the checkpoint is swept", func() bool { return !k.has(shard.ID{Swarm: "y"}) })
	s.logged(t, "a tier that cannot be listed")
	a.Stop()
	if !k.has(shard.ID{Swarm: "z"}) {
		t.Error("the checkpoint of a swarm that is there is gone")
	}
}

// TestRefusedSwarms: an agent that may not or cannot run a swarm answers the next entry with the
// reason, before the entry exists. Agents that try the swarm later answer again only when that
// entry exists.
func TestRefusedSwarms(t *testing.T) {
	s := newStage(t)
	custom := s.record(t, "custom", 1, "")
	spec := strings.Replace(string(custom.Spec), `"kind":"leaky"`, `"kind":"custom"`, 1)
	custom.Spec = json.RawMessage(spec)
	broken := s.record(t, "broken", 1, "")
	broken.Spec = json.RawMessage(`{"agents":-1}`)
	for turn, want := range []uint64{1, 1, 2, 2} {
		s.log.Reset()
		a := s.agent(t, gpuagents.Options{})
		for _, r := range []swarms.Swarm{custom, broken} {
			if turn == 2 {
				if err := s.conn.Swarms.Log(r.ID, 0, swarms.In).Append(t.Context(), 0,
					swarms.Entry{Kind: swarms.EntryQuery, Data: []byte("{}")}); err != nil {
					t.Fatalf("Append: %v, want no error", err)
				}
			}
			s.tell(r)
			if e := s.answer(t, r.ID, 0, want); e.Kind != swarms.EntryRejected || e.Seq != want {
				t.Errorf("turn %d: %s: %+v", turn, r.ID, e)
			}
		}
		testkit.Until(t, "both swarms are refused", func() bool {
			return strings.Count(s.log.String(), "shard refused") == 2
		})
		a.Stop()
		for _, r := range []swarms.Swarm{custom, broken} {
			if last, err := s.conn.Swarms.Log(r.ID, 0, swarms.Out).Last(t.Context()); err != nil || last.Seq != want {
				t.Errorf("turn %d: %s: answer %d, %v; want %d", turn, r.ID, last.Seq, err, want)
			}
		}
	}
}

// robbed is a queue from whose agents a test takes the leases.
type robbed struct {
	told
	taken chan struct{} // closed when the first lease is taken
}

// OpenSession implements gpuagents.Queue.
func (q robbed) OpenSession(ctx context.Context, holder string, ttl time.Duration,
	log *slog.Logger,
) (swarms.Session, error) {
	s, err := q.told.OpenSession(ctx, holder, ttl, log)
	return &robbedSession{Session: s, taken: q.taken}, err
}

type robbedSession struct {
	swarms.Session
	taken chan struct{}
	once  sync.Once
}

// Acquire implements swarms.Session. The first lease is lost when the test says so.
func (s *robbedSession) Acquire(ctx context.Context, key string) (swarms.Lease, error) {
	l, err := s.Session.Acquire(ctx, key)
	if err == nil {
		s.once.Do(func() { l = robbedLease{l, s.taken} })
	}
	return l, err
}

type robbedLease struct {
	swarms.Lease
	lost chan struct{}
}

// Lost implements swarms.Lease.
func (l robbedLease) Lost() <-chan struct{} { return l.lost }

// TestStolenLease: an agent whose lease is lost ends the shard, and continues from the log when it
// has the lease again.
func TestStolenLease(t *testing.T) {
	s := newStage(t)
	q := robbed{s.queue, make(chan struct{})}
	registry := prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	lost := func() float64 {
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == "exoswarm_swarm_leases_lost_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return -1
	}
	a := s.agent(t, gpuagents.Options{Queue: q, Metrics: counts})
	s.tell(s.record(t, "x", 1, ""))
	s.observe(t, "x", 0)
	if n := lost(); n != 0 {
		t.Errorf("%v leases were lost before the first was taken", n)
	}
	close(q.taken)
	s.logged(t, "shard lost to another agent")
	if n := lost(); n != 1 {
		t.Errorf("%v leases were lost, want 1", n)
	}
	s.observe(t, "x", 1)
	if n := a.Shards(); n != 1 {
		t.Errorf("%d shards are served, want 1", n)
	}
}

// TestToldAgain: a served swarm continues when its record is reported again.
func TestToldAgain(t *testing.T) {
	s := newStage(t)
	a := s.agent(t, gpuagents.Options{})
	r := s.record(t, "x", 1, "")
	for n := range 3 {
		s.tell(r)
		s.observe(t, "x", n)
	}
	if got := strings.Count(s.log.String(), "serving shard"); got != 1 || a.Shards() != 1 {
		t.Errorf("the shard began %d times:\n%s", got, s.log)
	}
}

// TestNoRoomForPages: a swarm that does not fit is answered with its name and the reason, and the
// agent serves others.
func TestNoRoomForPages(t *testing.T) {
	s := newStage(t)
	s.agent(t, gpuagents.Options{PageMemory: 1})
	s.tell(s.record(t, "x", 1, ""))
	e := s.answer(t, "x", 0, 1)
	if e.Kind != swarms.EntryRejected || !strings.Contains(string(e.Data), "swarm x: ") {
		t.Errorf("%+v, want a refusal that names swarm x", e)
	}
}
