package detect

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestUndo: keys and position of a batch that is not in the log of the swarm do not count, also
// when other entries follow there, and those after it replace them.
func TestUndo(t *testing.T) {
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
	record := swarms.Swarm{ID: "d", Nonce: swarms.NewNonce(), Groups: 9}
	key := record.Key()
	log := func(shard int, d swarms.Direction) swarms.Log { return conn.Swarms.Log(key, shard, d) }
	if err := log(0, swarms.In).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := func() *state {
		t.Helper()
		s, err := openState(t.Context(), record, log, feed.NewEntities(9, nil))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// step stores the keys of a batch, and appends it if commit is set.
	step := func(s *state, offset int64, commit bool, keys ...string) {
		t.Helper()
		for _, k := range keys {
			if _, _, full, err := s.known.(*feed.Entities).Add(k); full || err != nil {
				t.Fatalf("there is no group for %s: %v", k, err)
			}
		}
		var err error
		if commit {
			err = s.commit(t.Context(), "x", []feed.Part{{}}, position{Offset: offset})
		} else {
			err = s.keys.Store(t.Context(), s.known.Fresh(s.keys.Stored()), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// before is what an earlier program did before it appended a batch without a note.
	before := func(s *state, offset int64, key string) {
		t.Helper()
		if _, _, _, err := s.known.(*feed.Entities).Add(key); err != nil {
			t.Fatal(err)
		}
		if err := s.keys.Store(t.Context(), s.known.Fresh(s.keys.Stored()), nil); err != nil {
			t.Fatal(err)
		}
		m := mark{Batch: s.last[0] + 1, Entities: s.keys.Stored(), At: position{Offset: offset}}
		if err := s.marks.Add(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	other := func(s *state, kind string) {
		t.Helper()
		if err := s.in[0].Append(t.Context(), s.last[0], swarms.Entry{Kind: kind, Ref: 9}); err != nil {
			t.Fatal(err)
		}
		s.last[0]++
	}
	check := func(s *state, offset int64, keys string) {
		t.Helper()
		if got := strings.Join(s.known.Fresh(0), " "); got != keys || s.now.At.Offset != offset {
			t.Errorf("the entities are %q at %d, want %q at %d", got, s.now.At.Offset, keys, offset)
		}
	}
	s := open()
	check(s, 0, "")
	step(s, 10, true, "a")
	step(s, 20, false, "b", "c")
	s = open()
	check(s, 10, "a")
	step(s, 15, false, "x") // it is killed again
	s = open()
	check(s, 10, "a")
	other(s, "query")
	s = open()
	check(s, 10, "a")
	step(s, 30, true, "c", "b")
	s = open()
	check(s, 30, "a c b")
	before(s, 50, "d")
	other(s, "x")
	check(open(), 50, "a c b d")
	before(s, 60, "e")
	s = open() // it is killed before the batch
	check(s, 50, "a c b d")
	other(s, "query") // which takes the number of the batch
	s = open()
	check(s, 50, "a c b d")
	for i := range int64(markEvery + 9) {
		step(s, 1000+i, true)
	}
	if s.marked <= markEvery {
		t.Errorf("the last mark is that of entry %d of %d", s.marked, s.last[0])
	}
	check(open(), 1000+markEvery+8, "a c b d")
	if err := s.mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	other(s, "query")
	if err := s.in[0].Trim(t.Context(), s.last[0]); err != nil { // as behind a snapshot
		t.Fatal(err)
	}
	check(open(), 1000+markEvery+8, "a c b d")
	if err := s.in[0].Append(t.Context(), s.last[0], swarms.Entry{Kind: "x", Ref: 9, Note: "{"}); err != nil {
		t.Fatal(err)
	}
	_, err = openState(t.Context(), record, log, feed.NewEntities(9, nil))
	if err == nil || !strings.Contains(err.Error(), "name another --data-dir") {
		t.Errorf("a note that is no position: %v", err)
	}
}
