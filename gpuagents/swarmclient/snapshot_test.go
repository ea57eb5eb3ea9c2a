package swarmclient

import (
	"fmt"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestFirstKept: a log that is trimmed to a snapshot keeps the last entry with a note before it,
// which has the position of a detector, however many questions follow it.
func TestFirstKept(t *testing.T) {
	_, conn := jobstest.InProcess(t, natsq.Connect)
	note, batch, ask := swarms.Entry{Kind: swarms.EntryObserve, Note: "5"}, swarms.Entry{Kind: swarms.EntryObserve},
		swarms.Entry{Kind: swarms.EntryQuery}
	later := swarms.Entry{Kind: swarms.EntryQuery, Note: "attempt"}
	many := func(n int, e swarms.Entry) (all []swarms.Entry) {
		for range n {
			all = append(all, e)
		}
		return all
	}
	for i, c := range []struct {
		log     []swarms.Entry
		trimmed uint64 // the first entry that is left
		want    uint64
	}{
		{log: nil, want: 1},
		{log: []swarms.Entry{ask, ask}, want: 3},
		{log: []swarms.Entry{note, batch, ask}, want: 4},
		{log: []swarms.Entry{batch, note, ask}, want: 2},
		{log: []swarms.Entry{note, note, later, ask}, want: 3},
		{log: append([]swarms.Entry{batch, note}, many(700, ask)...), want: 2},
		{log: append([]swarms.Entry{batch, note}, many(20, ask)...), trimmed: 9, want: 23},
		{log: append([]swarms.Entry{batch, note}, many(20, ask)...), trimmed: 2, want: 2},
	} {
		record := swarms.Swarm{ID: fmt.Sprint("s", i), Nonce: swarms.NewNonce(), Groups: 1}
		k := shard{&Swarm{store: conn.Swarms, record: record}, 0}
		in := k.log(swarms.In)
		if err := in.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := append(c.log, swarms.Entry{Kind: swarms.EntrySnapshot})
		for at, e := range all {
			e.Ref = uint64(at + 1)
			if err := in.Append(t.Context(), uint64(at), e); err != nil {
				t.Fatal(err)
			}
		}
		if c.trimmed > 0 {
			if err := in.Trim(t.Context(), c.trimmed); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := k.firstKept(t.Context(), uint64(len(all))); err != nil || got != c.want {
			t.Errorf("case %d: the first entry is %d, %v, want %d", i, got, err, c.want)
		}
	}
}
