package feed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// openLogs returns the logs of a swarm with some shards on a server.
func openLogs(t testing.TB, shards int) (record swarms.Swarm, log func(int, swarms.Direction) swarms.Log) {
	t.Helper()
	conn := jobstest.Connected(t, natsq.Connect)
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
	s, err := OpenState(t.Context(), StateOptions{Record: record, Log: log, Logs: ClusterLogs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// at is a mark behind some rows of a source.
func at(rows uint64) Mark {
	return Mark{Sources: []Place{{Entry: 1, Rows: rows}}, Rows: rows}
}

// part is the part of a shard.
func part(shard int, text string) Part { return Part{Shard: shard, Data: []byte(text)} }

// earlierState is the state of an attempt of an earlier program, which stored a mark before each
// batch.
type earlierState struct {
	marks  *statelog.Log
	in     []swarms.Log
	after  []uint64
	number uint64
	rows   uint64
}

// openEarlier begins an attempt of an earlier program. The logs of the swarm are empty.
func openEarlier(t rapid.TB, log func(int, swarms.Direction) swarms.Log, shards int) *earlierState {
	t.Helper()
	s := &earlierState{marks: statelog.New(log(ClusterLogs.Marks, swarms.In), entryMark), after: make([]uint64, shards)}
	for k := range shards {
		s.in = append(s.in, log(k, swarms.In))
	}
	err := s.marks.Open(context.Background())
	if err == nil { // its take-over
		err = s.marks.Add(context.Background(), json.RawMessage(`{"batch":{"number":0},"sources":null,"rows":0}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// append stores a mark behind some rows, and the first stored parts of its batch.
func (s *earlierState) append(t rapid.TB, rows uint64, stored int, parts ...Part) {
	t.Helper()
	s.number++
	var named []string
	for _, p := range parts {
		named = append(named, fmt.Sprintf(`{"shard":%d,"sha256":"%x","after":%d}`, p.Shard, sha256.Sum256(p.Data),
			s.after[p.Shard]))
	}
	m := fmt.Sprintf(`{"batch":{"number":%d},"parts":[%s],"before":[{"entry":1,"rows":%d}],`+
		`"sources":[{"entry":1,"rows":%d}],"rows":%d}`, s.number, strings.Join(named, ","), s.rows, rows, rows)
	if len(s.in) == 1 {
		m = fmt.Sprintf(`{"batch":{"number":%d,"sha256":"%x"},"after":%d,"sources":[{"entry":1,"rows":%d}],"rows":%d}`,
			s.number, sha256.Sum256(parts[0].Data), s.after[0], rows, rows)
	}
	s.rows = rows
	if err := s.marks.Add(context.Background(), json.RawMessage(m)); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts[:stored] {
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: s.number, Data: p.Data}
		if err := s.in[p.Shard].Append(context.Background(), s.after[p.Shard], e); err != nil {
			t.Fatal(err)
		}
		s.after[p.Shard]++
	}
}

// TestEarlierMarks: of the marks of an earlier program the last one counts whose batch is in the
// logs in part, also if a take-over that ended early has stored an earlier one behind it.
func TestEarlierMarks(t *testing.T) {
	record, log := openLogs(t, 3)
	old := openEarlier(t, log, 3)
	old.append(t, 2, 2, part(0, "a"), part(2, "b"))
	old.append(t, 5, 0, part(0, "c"), part(1, "d"))
	if s := reopen(t, record, log); s.Last.Rows != 2 || len(s.Missing) > 0 {
		t.Fatalf("after a batch without parts the last mark has %d rows, and %v are missing", s.Last.Rows, s.Missing)
	}

	record, log = openLogs(t, 3)
	old = openEarlier(t, log, 3)
	old.append(t, 2, 2, part(0, "a"), part(2, "b"))
	early := statelog.New(log(ClusterLogs.Marks, swarms.In), entryMark)
	if err := early.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := checkpoint{Mark: at(2), Entries: []uint64{1, 0, 1}}
	c.Number = 1
	old.append(t, 6, 1, part(1, "e"), part(0, "f"), part(2, "g"))
	if err := old.marks.Add(t.Context(), c); err != nil { // of a take-over that has not seen the part
		t.Fatal(err)
	}
	var s *State
	for range 2 { // another take-over changes nothing
		s = reopen(t, record, log)
		if s.Last.Rows != 6 || !slices.Equal(s.Missing, []int{0, 2}) || s.Last.Before[0].Rows != 2 {
			t.Fatalf("the last mark is %+v, and %v are missing", s.Last, s.Missing)
		}
	}
	if err := s.Complete(t.Context(), []Part{part(0, "f")}); err == nil {
		t.Error("one part of two completes a batch")
	}
	if err := s.Complete(t.Context(), []Part{part(0, "F"), part(2, "G")}); err != nil || len(s.Missing) > 0 {
		t.Fatalf("Complete: %v, missing are %v", err, s.Missing)
	}
	if s = reopen(t, record, log); s.Last.Rows != 6 || len(s.Missing) > 0 || s.Last.Sources[0].Rows != 6 {
		t.Errorf("the last mark is %+v, and %v are missing", s.Last, s.Missing)
	}
}

// TestEarlierPositions: the positions of an earlier exoswarm detect are read, in notes and in marks
// that count if the log has their entry.
func TestEarlierPositions(t *testing.T) {
	record, log := openLogs(t, 1)
	marks := statelog.New(log(ClusterLogs.Marks, swarms.In), entryMark)
	if err := marks.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := uint64(0)
	entry := func(note string) {
		t.Helper()
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: 9, Note: note}
		if err := log(0, swarms.In).Append(t.Context(), after, e); err != nil {
			t.Fatal(err)
		}
		after++
	}
	mark := func(text string) {
		t.Helper()
		if err := marks.Add(t.Context(), json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(document string, rows, number uint64) {
		t.Helper()
		got := reopen(t, record, log).Last.Sources[0]
		if want := (Place{Document: Document(document), Rows: rows, Number: number}); got != want {
			t.Errorf("the place is %+v, want %+v", got, want)
		}
	}
	entry("")
	mark(`{"batch":1,"entities":0,"at":{"offset":10,"records":3}}`)
	mark(`{"batch":2,"entities":0,"at":{"offset":20,"records":9}}`) // it was killed before the batch
	check(`{"offset":10,"records":3}`, 0, 3)
	after++ // the query of the take-over
	if err := marks.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark(`{"batch":2,"entities":0,"at":{"offset":20,"records":9}}`)
	entry(`{"batch":3,"entities":0,"at":{"offset":30,"skip":2,"records":12}}`)
	check(`{"offset":30,"skip":2,"records":12}`, 2, 10)
	after++
	entry("{")
	_, err := OpenState(t.Context(), StateOptions{Record: record, Log: log, Logs: ClusterLogs})
	if err == nil || !strings.Contains(err.Error(), "name another --data-dir") {
		t.Errorf("a note that is no position: %v", err)
	}
}

// TestOrder: two attempts at a time have the same order, which is read again after a trim.
func TestOrder(t *testing.T) {
	_, log := openLogs(t, 1)
	l := log(ClusterLogs.Order, swarms.In)
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
