package detect

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
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
	key := swarms.Swarm{ID: "d", Nonce: swarms.NewNonce()}.Key()
	log := func(shard int, d swarms.Direction) swarms.Log { return conn.Swarms.Log(key, shard, d) }
	if err := log(0, swarms.In).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	open := func() *state {
		t.Helper()
		s, err := openState(t.Context(), log)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// step prepares a batch with keys, and appends it if commit is set.
	step := func(s *state, offset int64, commit bool, keys ...string) {
		t.Helper()
		for _, k := range keys {
			if _, ok := s.group(k, 3); !ok {
				t.Fatalf("there is no group for %s", k)
			}
		}
		if err := s.prepare(t.Context(), position{Offset: offset}); err != nil {
			t.Fatal(err)
		}
		if commit {
			e := swarms.Entry{Kind: "x", Ref: s.last + 1}
			if err := log(0, swarms.In).Append(t.Context(), s.last, e); err != nil {
				t.Fatal(err)
			}
			s.last++
		}
	}
	check := func(s *state, offset int64, keys string) {
		t.Helper()
		if got := strings.Join(s.entities, " "); got != keys || s.at.Offset != offset {
			t.Errorf("the entities are %q at %d, want %q at %d", got, s.at.Offset, keys, offset)
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
	// An entry of another kind takes the number of the batch that is not there.
	if err := log(0, swarms.In).Append(t.Context(), s.last, swarms.Entry{Kind: "query", Ref: 9}); err != nil {
		t.Fatal(err)
	}
	s = open()
	check(s, 10, "a")
	step(s, 30, true, "c", "b")
	s = open()
	check(s, 30, "a c b")
	if _, ok := s.group("d", 3); ok {
		t.Error("there is a fourth group")
	}
	for range 3 * statelog.Kept {
		step(s, 40, true)
	}
	check(open(), 40, "a c b")
}
