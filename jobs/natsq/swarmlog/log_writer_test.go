package swarmlog_test

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestLogOneWriter: two attempts of one process have one writer. The slower one is fenced where its
// entries differ, in kind, number or bytes; the same entries count as stored by both.
func TestLogOneWriter(t *testing.T) {
	t.Parallel()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	ctx := t.Context()
	a := swarms.Entry{Kind: "k", Ref: 1, Data: []byte("a")}
	for name, k := range map[string]struct {
		first, second []swarms.Entry
		fenced        bool
	}{
		"same":        {[]swarms.Entry{a}, []swarms.Entry{a}, false},
		"bytes":       {[]swarms.Entry{a}, []swarms.Entry{{Kind: "k", Ref: 1, Data: []byte("b")}}, true},
		"number":      {[]swarms.Entry{a}, []swarms.Entry{{Kind: "k", Ref: 2, Data: []byte("a")}}, true},
		"kind":        {[]swarms.Entry{a}, []swarms.Entry{{Kind: "l", Ref: 1, Data: []byte("a")}}, true},
		"a part":      {[]swarms.Entry{a}, []swarms.Entry{a, {Kind: "k", Ref: 2, Data: []byte("c")}}, false},
		"last bytes":  {[]swarms.Entry{a, a}, []swarms.Entry{a, {Kind: "k", Ref: 1, Data: []byte("b")}}, true},
		"behind both": {[]swarms.Entry{a, {Kind: "k", Ref: 2}}, []swarms.Entry{a}, false},
	} {
		l := c.Swarms.Log("writer-"+name[:1]+name[len(name)-1:], 0, swarms.In)
		if err := l.Create(ctx); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(ctx, 0, k.first...); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(ctx, 0, k.second...); errors.Is(err, jobs.ErrFenced) != k.fenced || err != nil && !k.fenced {
			t.Errorf("%s: %v, want fenced: %v", name, err, k.fenced)
		}
		want := uint64(max(len(k.first), len(k.second)))
		if last, err := l.Last(ctx); err != nil || last.Seq != want {
			t.Errorf("%s: the log ends at %d, want %d, %v", name, last.Seq, want, err)
		}
	}
}
