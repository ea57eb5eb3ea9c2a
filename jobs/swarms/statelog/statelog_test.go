package statelog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// logs starts a NATS server, and returns the logs of a swarm on it.
func logs(t *testing.T) func(shard int) swarms.Log {
	t.Helper()
	conn := jobstest.Open(t, jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess}), natsq.Connect)
	key := swarms.Swarm{ID: "d", Nonce: swarms.NewNonce()}.Key()
	return func(shard int) swarms.Log { return conn.Swarms.Log(key, shard, swarms.In) }
}

// open returns the open dictionary in a log.
func open(t *testing.T, l swarms.Log) *statelog.Keys {
	t.Helper()
	k := statelog.NewKeys(l)
	if err := k.Open(t.Context()); err != nil {
		t.Fatalf("Keys.Open: %v", err)
	}
	return k
}

// TestKeysOfABatch: the keys of a batch may be larger than a message of NATS, also where JSON needs
// six bytes for each byte of a key.
func TestKeysOfABatch(t *testing.T) {
	l := logs(t)(1)
	k := open(t, l)
	if _, err := k.Load(t.Context(), 0); err != nil {
		t.Fatalf("Keys.Load of an empty dictionary: %v", err)
	}
	var all []string
	for i := range 4096 {
		fill := []string{"x", "<", "\x01"}[i%3]
		all = append(all, fmt.Sprintf("%04d", i)+strings.Repeat(fill, 1020))
	}
	if err := k.Store(t.Context(), all, nil); err != nil {
		t.Fatalf("Keys.Store of 4 MiB of keys: %v", err)
	}
	if k.Stored() != len(all) || k.Last() < 8 {
		t.Errorf("%d keys are stored in %d entries, want %d in 8 or more", k.Stored(), k.Last(), len(all))
	}
	var d statelog.Dictionary
	if first, err := d.Update(t.Context(), l); err != nil || first != 0 || !slices.Equal(d.Keys(), all) {
		t.Errorf("Dictionary.Update returns %d, %v and reads %d keys, want %d", first, err, len(d.Keys()), len(all))
	}
}

// TestKeysAreReplaced: keys behind the keys of the last batch do not count, and the next keys
// replace them.
func TestKeysAreReplaced(t *testing.T) {
	l := logs(t)(1)
	k := open(t, l)
	for _, keys := range [][]string{{"a", "b"}, {"c"}} {
		if err := k.Store(t.Context(), keys, nil); err != nil {
			t.Fatalf("Keys.Store: %v", err)
		}
	}
	var d statelog.Dictionary
	update := func(changed int, want ...string) {
		t.Helper()
		got, err := d.Update(t.Context(), l)
		if err != nil || got != changed || !slices.Equal(d.Keys(), want) {
			t.Errorf("Dictionary.Update returns %d, %v, and has %q, want %d and %q", got, err, d.Keys(), changed, want)
		}
	}
	update(0, "a", "b", "c")
	update(3, "a", "b", "c")
	k = open(t, l)
	if got, err := k.Load(t.Context(), 1); err != nil || !slices.Equal(got, []statelog.Assignment{{Key: "a"}}) {
		t.Fatalf("Keys.Load of 1 returns %+v, %v", got, err)
	}
	if err := k.Store(t.Context(), []string{"d"}, nil); err != nil {
		t.Fatalf("Keys.Store: %v", err)
	}
	update(0, "a", "d")
	k = open(t, l)
	if got, err := k.Load(t.Context(), -1); err != nil || !slices.Equal(got, []statelog.Assignment{
		{Key: "a"}, {Group: 1, Key: "d"},
	}) {
		t.Errorf("Keys.Load of all returns %+v, %v, want a and d", got, err)
	}
	if _, err := k.Load(t.Context(), 3); !errors.Is(err, statelog.ErrDamaged) {
		t.Errorf("Keys.Load of 3 of 2 keys returns %v, want ErrDamaged", err)
	}
	if err := k.Add(t.Context(), map[string]any{"first": 7, "keys": []string{"z"}}); err != nil {
		t.Fatalf("Log.Add: %v", err)
	}
	if _, err := d.Update(t.Context(), l); !errors.Is(err, statelog.ErrDamaged) {
		t.Errorf("Dictionary.Update with a gap returns %v, want ErrDamaged", err)
	}
	if _, err := d.Update(t.Context(), logs(t)(2)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Dictionary.Update without a log returns %v, want jobs.ErrNotFound", err)
	}
}

// TestLog: of two writers the one that appends later is told, old entries are trimmed, and a reader
// begins after them.
func TestLog(t *testing.T) {
	l := logs(t)(1)
	a, b := statelog.New(l, "number"), statelog.New(l, "number")
	for _, one := range []*statelog.Log{a, b} {
		if err := one.Open(t.Context()); err != nil {
			t.Fatalf("Log.Open: %v", err)
		}
	}
	for i := range 3 * statelog.Kept {
		if err := a.Add(t.Context(), i); err != nil {
			t.Fatalf("Log.Add: %v", err)
		}
		if err := a.Trim(t.Context()); err != nil {
			t.Fatalf("Log.Trim: %v", err)
		}
	}
	if lost, err := b.Fenced(t.Context()); err != nil || !lost {
		t.Errorf("Log.Fenced of the other writer returns %v, %v", lost, err)
	}
	if err := b.Add(t.Context(), 1); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("Log.Add of the other writer returns %v, want jobs.ErrFenced", err)
	}
	if lost, err := a.Fenced(t.Context()); err != nil || lost {
		t.Errorf("Log.Fenced of the writer returns %v, %v", lost, err)
	}
	n := 0
	if err := a.Read(t.Context(), a.Last()-statelog.Kept+1, func([]byte) error { n++; return nil }); err != nil ||
		n != statelog.Kept {
		t.Errorf("Log.Read returns %d entries after a trim, want %d: %v", n, statelog.Kept, err)
	}
	failed := errors.New("no number")
	if err := a.Read(t.Context(), a.Last(), func([]byte) error { return failed }); !errors.Is(err, failed) ||
		!errors.Is(err, statelog.ErrDamaged) {
		t.Errorf("Log.Read returns %v after an error of its function", err)
	}
}

// TestAnswered: Await returns when its entry is reached, and with the cause of its context.
func TestAnswered(t *testing.T) {
	a := statelog.NewAnswered(3)
	if err := a.Await(t.Context(), 3); err != nil {
		t.Fatalf("Answered.Await of an entry that has its answer: %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- a.Await(t.Context(), 6) }()
	for i := uint64(4); i <= 6; i++ {
		select {
		case err := <-got:
			t.Fatalf("Answered.Await of 6 returns at %d: %v", i-1, err)
		case <-time.After(time.Millisecond):
		}
		a.Reach(i)
	}
	if err := <-got; err != nil || a.Entry() != 6 {
		t.Errorf("Answered.Await returns %v at %d", err, a.Entry())
	}
	ended := errors.New("ended")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(ended)
	if err := a.Await(ctx, 7); !errors.Is(err, ended) {
		t.Errorf("Answered.Await returns %v after the end of its context", err)
	}
}

// TestAssign: groups are given to one entity after the other, become free, and are replaced with
// the assignments of a batch that was not stored.
func TestAssign(t *testing.T) {
	l := logs(t)(1)
	k := open(t, l)
	if _, err := k.Load(t.Context(), 0); err != nil {
		t.Fatalf("Keys.Load: %v", err)
	}
	assign := func(after uint64, all ...statelog.Assignment) {
		t.Helper()
		if err := k.Assign(t.Context(), all, after, nil); err != nil {
			t.Fatalf("Keys.Assign: %v", err)
		}
	}
	var d statelog.Dictionary
	check := func(changed int, want ...string) {
		t.Helper()
		got, err := d.Update(t.Context(), l)
		if err != nil || got != changed || !slices.Equal(d.Keys(), want) {
			t.Errorf("Dictionary.Update returns %d, %v, and has %q, want %d and %q", got, err, d.Keys(), changed, want)
		}
	}
	assign(3, statelog.Assignment{Group: 0, Key: "a"}, statelog.Assignment{Group: 1, Key: "b"})
	check(0, "a", "b")
	assign(4, statelog.Assignment{Group: 1, Key: "c"}, statelog.Assignment{Group: 2, Key: "b"})
	check(1, "a", "c", "b")
	assign(5, statelog.Assignment{Group: 0})
	check(0, "", "c", "b")
	if !d.Had("a") || d.Had("d") {
		t.Error("Dictionary.Had does not know the entity without a group")
	}
	k = open(t, l)
	got, err := k.Load(t.Context(), 3)
	if want := (statelog.Assignment{Group: 1, Key: "c", After: 4}); err != nil || len(got) != 3 || got[2] != want {
		t.Fatalf("Keys.Load returns %+v, %v, want %+v last", got, err, want)
	}
	assign(6, statelog.Assignment{Group: 0, Key: "e"})
	check(0, "e", "c")
}

// TestStates: the last state of each entity is kept, over restarts too, and the log of an entity
// that comes and goes for ever stays short.
func TestStates(t *testing.T) {
	l := logs(t)(1)
	var s *statelog.States
	restart := func() {
		t.Helper()
		var err error
		if s, err = statelog.OpenStates(t.Context(), l); err != nil {
			t.Fatalf("OpenStates: %v", err)
		}
	}
	restart()
	want := map[string]string{}
	r := rand.New(rand.NewPCG(4, 4))
	check := func() {
		t.Helper()
		keys := append(slices.Collect(maps.Keys(want)), "none")
		got, err := s.Get(t.Context(), keys)
		if err != nil {
			t.Fatalf("States.Get: %v", err)
		}
		for i, key := range keys {
			if string(got[i]) != want[key] || s.Has(key) != (want[key] != "") {
				t.Errorf("the state of %s is %q, want %q", key, got[i], want[key])
			}
		}
		if s.Len() != len(want) {
			t.Errorf("States.Len is %d, want %d", s.Len(), len(want))
		}
	}
	for answer := uint64(1); answer <= 600; answer++ {
		var states []swarms.TaggedState
		for range 1 + r.IntN(3) {
			key := fmt.Sprint("e", r.IntN(4))
			if answer%100 == 7 {
				key = fmt.Sprint("once", answer)
			}
			state := fmt.Sprint(key, " at ", answer)
			if slices.ContainsFunc(states, func(s swarms.TaggedState) bool { return s.Tag == key }) {
				continue
			}
			states = append(states, swarms.TaggedState{Tag: key, State: []byte(state)})
			want[key] = state
		}
		if err := s.Put(t.Context(), answer, states); err != nil {
			t.Fatalf("States.Put: %v", err)
		}
		if answer%97 == 0 {
			restart()
			old := []swarms.TaggedState{{Tag: "e1", State: []byte("old")}}
			if err := s.Put(t.Context(), answer-3, old); err != nil || s.Answer() != answer {
				t.Fatalf(
					"States.Put of an answer that is stored: %v, and Answer is %d, want %d",
					err,
					s.Answer(),
					answer,
				)
			}
			check()
		}
	}
	check()
	last, err := l.Last(t.Context())
	if err != nil {
		t.Fatalf("Log.Last: %v", err)
	}
	var end struct{ First uint64 }
	if err := json.Unmarshal(last.Data, &end); err != nil {
		t.Fatalf("the last entry of the log: %v", err)
	}
	if err := statelog.Each(t.Context(), l, 1, 1, func(swarms.Entry) error { return nil }); err == nil {
		t.Error("the first entry was not removed")
	}
	n := last.Seq - end.First + 1
	if n > 60 {
		t.Errorf("the log has %d entries for %d states after 600", n, s.Len())
	}
}

// TestTwoAttempts: two attempts that store the same states at the same time store each once, and
// end with the same ones.
func TestTwoAttempts(t *testing.T) {
	l := logs(t)(1)
	var both [2]*statelog.States
	for i := range both {
		var err error
		if both[i], err = statelog.OpenStates(t.Context(), l); err != nil {
			t.Fatalf("OpenStates: %v", err)
		}
	}
	r := rand.New(rand.NewPCG(8, 8))
	next := [2]uint64{1, 1}
	for next[0] <= 200 || next[1] <= 200 {
		i := r.IntN(2)
		answer := next[i]
		next[i]++
		key := fmt.Sprint("e", answer%5)
		states := []swarms.TaggedState{{Tag: key, State: fmt.Append(nil, key, " at ", answer)}}
		if err := both[i].Put(t.Context(), answer, states); err != nil {
			t.Fatalf("States.Put of answer %d by attempt %d: %v", answer, i, err)
		}
	}
	end := max(next[0], next[1]) - 1
	for i, s := range both {
		if err := s.Put(t.Context(), end+1, []swarms.TaggedState{{Tag: "last", State: []byte{1}}}); err != nil {
			t.Fatalf("States.Put of the last answer by attempt %d: %v", i, err)
		}
	}
	for i, s := range both {
		for answer := end - 4; answer <= end; answer++ {
			key := fmt.Sprint("e", answer%5)
			got, err := s.Get(t.Context(), []string{key})
			if want := fmt.Sprint(key, " at ", answer); err != nil || string(got[0]) != want {
				t.Errorf("attempt %d has %q of %s, want %q: %v", i, got, key, want, err)
			}
		}
	}
}
