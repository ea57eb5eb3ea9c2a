package swarmlog

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestLogReader: a reader that reopens its consumer continues where it was, and only in the log
// that it has read.
func TestLogReader(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	l := c.Log("read", 0, swarms.In).(*Log)
	if err := errors.Join(l.Create(ctx), l.Create(ctx), l.Append(ctx, 0, numbered(1, 6, 4)...)); err != nil {
		t.Fatal(err)
	}
	r, err := l.Read(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := func(want uint64) {
		t.Helper()
		if e, err := r.Next(ctx); err != nil || e.Seq != want || e.Ref != want || e.Kind != "k" || len(e.Data) != 4 {
			t.Errorf("%+v, %v, want entry %d", e, err, want)
		}
	}
	next(2)
	next(3)
	r.Close()
	next(4)
	if err := l.Trim(ctx, 5); err != nil {
		t.Fatal(err)
	}
	r.Close()
	next(5) // what it has read is trimmed, what it wants is there
	ended, cancel := context.WithCancelCause(ctx)
	cancel(jobs.ErrDrain)
	if _, err := r.Next(ended); !errors.Is(err, jobs.ErrDrain) {
		t.Error(err)
	}
	if err := errors.Join(l.Delete(ctx), l.Create(ctx), l.Append(ctx, 0, numbered(11, 6, 4)...)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if e, err := r.Next(ctx); !errors.Is(err, jobs.ErrFenced) || !strings.Contains(err.Error(), "entry 5 is not the "+
		"one that was read: the log was put back to an earlier state") {
		t.Errorf("another log in its place: %+v, %v", e, err)
	}
	if err := l.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if e, err := r.Next(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("no log in its place: %+v, %v", e, err)
	}
	h := nats.Header{headerKind: {"k"}, headerRef: {"1"}, headerWriter: {"w"}}
	same := digest(h, []byte("x"))
	if same == 0 || digest(nats.Header{headerKind: {"k"}, headerRef: {"1"}, headerWriter: {"w"}, "Other": {"y"}},
		[]byte("x")) != same {
		t.Error("one entry has two digests")
	}
	for _, other := range []struct {
		h    nats.Header
		data string
	}{
		{nats.Header{headerKind: {"l"}, headerRef: {"1"}, headerWriter: {"w"}}, "x"},
		{nats.Header{headerKind: {"k"}, headerRef: {"2"}, headerWriter: {"w"}}, "x"},
		{nats.Header{headerKind: {"k"}, headerRef: {"1"}, headerWriter: {"v"}}, "x"},
		{h, "y"},
		{nats.Header{headerKind: {"k1"}, headerRef: {""}, headerWriter: {"w"}}, "x"},
		{nats.Header{headerKind: {"k"}, headerRef: {"1"}, headerWriter: {"wx"}}, ""},
	} {
		if digest(other.h, []byte(other.data)) == same {
			t.Errorf("%+v has the digest of another", other)
		}
	}
}

// TestLogRefused: the sentence of an append that a limit of the stream or of the server refuses
// names what was appended.
func TestLogRefused(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	l := c.Log("limited", 0, swarms.Out).(*Log)
	if _, err := c.conn.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: l.stream, Subjects: []string{l.subject},
		Discard: jetstream.DiscardNew, MaxMsgs: 2, AllowAtomicPublish: true,
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(ctx, 0, numbered(1, 2, 4)...); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1: "append k 3 to " + l.stream, 2: "append 2 entries, to k 4, to " + l.stream} {
		err := l.Append(ctx, 2, numbered(3, n, 4)...)
		if err == nil || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(err.Error(), "the NATS server refuses (") || errors.Is(err, jobs.ErrUnavailable) ||
			errors.Is(err, jobs.ErrFenced) {
			t.Errorf("%d entries: %v", n, err)
		}
	}
	if err := l.Append(ctx, 2, swarms.Entry{Kind: "k", Ref: 3, Data: make([]byte, 2<<20)}); !errors.Is(err,
		nats.ErrMaxPayload) || !strings.Contains(err.Error(),
		"append k 3 to "+l.stream+": 2097152 bytes are more than the server takes") {
		t.Error(err)
	}
	if err := l.Append(ctx, 1, numbered(9, 1, 4)...); !errors.Is(err, jobs.ErrFenced) ||
		!strings.HasPrefix(err.Error(), "append k 9 to "+l.stream) {
		t.Error(err)
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		w := c.Log("s", 0, d).(*Log).wakes()
		if (w != nil) != (d == swarms.In) || w != nil &&
			(!w.HeadersOnly || w.Source != "exo.log.s.0.in" || w.Destination == w.Source) {
			t.Errorf("%s: %+v", d, w)
		}
	}
}

// TestSwarmLeases: the leases of a lasting swarm are removed with it, and leases of runs stay. A
// record is written only when it changes and can be stored.
func TestSwarmLeases(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	kv, err := c.conn.JS.KeyValue(ctx, wire.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	for id, owner := range map[string]string{"a": "", "b": "job"} {
		s := swarms.Swarm{
			Version: jobs.Version, ID: id, Nonce: swarms.NewNonce(), Owner: owner, Name: "n",
			Spec: json.RawMessage(`{}`), Groups: 1,
		}
		if owner == "" {
			s.Shards = 1
		}
		if err := c.CreateSwarm(ctx, s); err != nil {
			t.Fatal(err)
		}
		before, err := c.swarmRecord(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ChangeSwarm(ctx, s, func(*swarms.Swarm) {}); err != nil {
			t.Error(err)
		}
		if after, err := c.swarmRecord(ctx, id); err != nil || after.revision != before.revision {
			t.Errorf("a record that did not change is written: %d, then %d, %v", before.revision, after.revision, err)
		}
		tries := 0
		if _, err := c.ChangeSwarm(ctx, s, func(s *swarms.Swarm) {
			if tries++; tries > 2 {
				t.Fatal("it is tried again and again")
			}
			s.Name = strings.Repeat("x", 2<<20)
		}); err == nil {
			t.Error("a record that is too large is stored")
		}
		if _, err := kv.PutString(ctx, s.Key()+".0", "x"); err != nil {
			t.Fatal(err)
		}
		if err := c.RemoveSwarm(ctx, s); err != nil {
			t.Error(err)
		}
		if _, err := kv.Get(ctx, s.Key()+".0"); (err == nil) != (owner != "") {
			t.Errorf("the lease of %s: %v", id, err)
		}
	}
}
