package statelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsqtest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// logs starts a NATS server, and returns the logs of a swarm on it.
func logs(t *testing.T) func(shard int) swarms.Log {
	t.Helper()
	conn := natsqtest.Connect(t, natsqtest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess}))
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

// TestKeysAreReplaced: keys behind those of the last batch do not count, and the next ones replace
// them.
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
	if got, err := k.Load(t.Context(), 1); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Fatalf("Keys.Load of 1 returns %q, %v", got, err)
	}
	if err := k.Store(t.Context(), []string{"d"}, nil); err != nil {
		t.Fatalf("Keys.Store: %v", err)
	}
	update(1, "a", "d")
	k = open(t, l)
	if got, err := k.Load(t.Context(), -1); err != nil || !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("Keys.Load of all returns %q, %v, want a and d", got, err)
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
