package commitlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

func TestMain(m *testing.M) { leak.Check(m) }

// openLogs returns the logs of a swarm with some shards on a server.
func openLogs(t testing.TB, shards int) (record swarms.Swarm, log func(int, swarms.Direction) swarms.Log) {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	record = swarms.Swarm{
		ID: "d", Nonce: swarms.NewNonce(), Groups: 9, Shards: shards, Spec: []byte(`{"agents_per_group":4}`),
	}
	log = func(shard int, d swarms.Direction) swarms.Log { return conn.Swarms.Log(record.Key(), shard, d) }
	for k := range shards {
		if err := log(k, swarms.In).Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return record, log
}

// reopen opens the state, as a later attempt does.
func reopen(t *testing.T, record swarms.Swarm, log func(int, swarms.Direction) swarms.Log) *State {
	t.Helper()
	s, err := Open(t.Context(), Options{Record: record, Log: log})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// at is a mark behind some rows of a source.
func at(rows uint64) Mark {
	return Mark{Sources: []source.Place{{Entry: 1, Rows: rows}}, Rows: rows}
}

// part is the part of a shard.
func part(shard int, text string) feed.Part { return feed.Part{Shard: shard, Data: []byte(text)} }

// TestHiddenBatch: a take-over that ends between its mark and its queries does not hide the batch that
// the earlier attempt appends after that mark.
func TestHiddenBatch(t *testing.T) {
	for _, shards := range []int{1, 2} {
		record, log := openLogs(t, shards)
		s := reopen(t, record, log)
		if err := s.Commit(t.Context(), []feed.Part{part(0, "a")}, at(1)); err != nil {
			t.Fatal(err)
		}
		before := s.Last
		if err := s.Commit(t.Context(), []feed.Part{part(0, "b")}, at(2)); err != nil {
			t.Fatal(err)
		}
		marks := statelog.New(log(markShard, swarms.In), entryMark)
		if err := marks.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := marks.Add(t.Context(), before); err != nil { // as the take-over has found it
			t.Fatal(err)
		}
		if s = reopen(t, record, log); s.Last.Rows != 2 || len(s.Missing) > 0 {
			t.Errorf("%d shards: the last mark has %d rows, want 2; missing are %v", shards, s.Last.Rows, s.Missing)
		}
	}
}

// TestParts: a batch of which a shard lacks its part counts, with the shard as missing until its part
// is there, and one without any part does not.
func TestParts(t *testing.T) {
	record, log := openLogs(t, 3)
	s := reopen(t, record, log)
	if err := s.Commit(t.Context(), []feed.Part{part(0, "a"), part(2, "b")}, at(2)); err != nil {
		t.Fatal(err)
	}
	if s = reopen(t, record, log); s.Last.Rows != 2 || len(s.Missing) > 0 {
		t.Fatalf("the last mark has %d rows, and %v are missing", s.Last.Rows, s.Missing)
	}
	// lost stores the mark of a batch and only some of its parts.
	lost := func(s *State, rows uint64, stored int, parts ...feed.Part) {
		t.Helper()
		m := at(rows)
		m.Before, m.Batch.Number = s.Last.Sources, s.Last.Batch.Number+1
		for _, p := range parts {
			m.Parts = append(m.Parts, MarkedPart{
				Shard: p.Shard, SHA256: idOf(m.Batch.Number, p.Data).SHA256, After: s.After[p.Shard],
			})
		}
		if err := s.marks.Add(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for _, p := range parts[:stored] {
			if err := s.appendPart(t.Context(), swarms.EntryObserve, m.Batch.Number, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost(s, 5, 0, part(0, "c"), part(1, "d"))
	if s = reopen(t, record, log); s.Last.Rows != 2 || len(s.Missing) > 0 {
		t.Fatalf("after a batch without parts the last mark has %d rows, and %v are missing", s.Last.Rows, s.Missing)
	}
	lost(s, 6, 1, part(1, "e"), part(0, "f"), part(2, "g"))
	for range 2 { // another take-over changes nothing
		s = reopen(t, record, log)
		if s.Last.Rows != 6 || !slices.Equal(s.Missing, []int{0, 2}) || s.Last.Before[0].Rows != 2 {
			t.Fatalf("the last mark is %+v, and %v are missing", s.Last, s.Missing)
		}
	}
	if err := s.Complete(t.Context(), []feed.Part{part(0, "f")}); err == nil {
		t.Error("one part of two completes a batch")
	}
	if err := s.Complete(t.Context(), []feed.Part{part(0, "F"), part(2, "G")}); err != nil || len(s.Missing) > 0 {
		t.Fatalf("Complete: %v, missing are %v", err, s.Missing)
	}
	if s = reopen(t, record, log); s.Last.Rows != 6 || len(s.Missing) > 0 || s.Last.Sources[0].Rows != 6 {
		t.Errorf("the last mark is %+v, and %v are missing", s.Last, s.Missing)
	}
}

// TestOrder: two attempts at a time have the same order, which is read again after a trim.
func TestOrder(t *testing.T) {
	_, log := openLogs(t, 1)
	l := log(orderShard, swarms.In)
	open := func() *order {
		t.Helper()
		o, err := openOrder(t.Context(), l, 3)
		if err != nil {
			t.Fatalf("openOrder: %v", err)
		}
		return o
	}
	add := func(o *order, want []int, shards ...int) {
		t.Helper()
		if got, err := o.add(t.Context(), shards); err != nil || !slices.Equal(got, want) {
			t.Fatalf("add(%v) returns %v, %v, want %v", shards, got, err, want)
		}
	}
	one, two := open(), open()
	add(one, []int{0, 2, 2}, 0, 2, 2)
	add(one, []int{1}, 1)
	add(two, []int{0, 2, 2, 1}, 1)
	add(two, []int{0}, 0)
	add(one, []int{0}, 2)
	check := func(o *order, place uint64, at []uint64, shards ...int) {
		t.Helper()
		if gotAt, got := o.from(place); !slices.Equal(gotAt, at) || !slices.Equal(got, shards) {
			t.Errorf("from(%d) is %v, %v, want %v, %v", place, gotAt, got, at, shards)
		}
	}
	for _, o := range []*order{one, two, open()} {
		check(o, 1, []uint64{0, 0, 0}, 0, 2, 2, 1, 0)
		check(o, 3, []uint64{1, 0, 1}, 2, 1, 0)
		check(o, 6, []uint64{2, 1, 2})
	}
	o := open()
	for i := range 2 * trimOrder {
		add(o, []int{i % 3}, i%3)
	}
	o.trim(5 + 2*trimOrder)
	if n := len(open().stored); n != 3+2*trimOrder {
		t.Errorf("before the next entry %d are left", n)
	}
	add(o, []int{1}, 1)
	want := fmt.Sprint(o.from(5 + 2*trimOrder))
	o = open()
	if got := fmt.Sprint(o.from(5 + 2*trimOrder)); got != want || len(o.stored) > 3 {
		t.Errorf("after a trim %d entries are left, which give %s, want %s", len(o.stored), got, want)
	}
}
