package swarmlog

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func numbered(from, n, size int) (all []swarms.Entry) {
	for i := range n {
		all = append(all, swarms.Entry{
			Kind: "k", Ref: uint64(from + i),
			Data: slices.Repeat([]byte{byte(from + i)}, size),
		})
	}
	return all
}

// TestLogStored: what an append finds behind the end that it expected: its own entries, others,
// nothing, or a log that was put back.
func TestLogStored(t *testing.T) {
	t.Parallel()
	s, c := inside(t)
	ctx := t.Context()
	l := c.Log("stored", 0, swarms.In).(*Log)
	if err := errors.Join(l.Create(ctx), l.Append(ctx, 0, numbered(1, 3, 4)...)); err != nil {
		t.Fatal(err)
	}
	own := numbered(1, 4, 4)
	with := func(i int, change func(e *swarms.Entry)) []swarms.Entry {
		all := slices.Clone(own[:3])
		change(&all[i])
		return all
	}
	for name, k := range map[string]struct {
		after   uint64
		entries []swarms.Entry
		n       int
		err     error
	}{
		"all": {0, own[:3], 3, nil}, "the first": {0, own[:1], 1, nil}, "the first two": {0, own[:2], 2, nil},
		"the last": {2, own[2:3], 1, nil}, "more": {0, own, 3, nil}, "a part": {1, own[1:], 2, nil},
		"none yet":       {3, own[3:], 0, nil},
		"other bytes":    {0, with(2, func(e *swarms.Entry) { e.Data = []byte("x") }), 0, jobs.ErrFenced},
		"another number": {0, with(2, func(e *swarms.Entry) { e.Ref = 9 }), 0, jobs.ErrFenced},
		"another kind":   {0, with(2, func(e *swarms.Entry) { e.Kind = "l" }), 0, jobs.ErrFenced},
		"behind others":  {0, numbered(7, 1, 4), 0, jobs.ErrFenced},
		"between others": {1, numbered(7, 1, 4), 0, jobs.ErrFenced},
	} {
		n, err := l.stored(ctx, k.after, k.entries)
		if n != k.n || !errors.Is(err, k.err) {
			t.Errorf("%s: %d, %v; want %d, %v", name, n, err, k.n, k.err)
		}
	}
	var short errShort
	if n, err := l.stored(ctx, 5, own[:1]); n != 0 || !errors.As(err, &short) || short != (errShort{5, 3}) ||
		!strings.Contains(err.Error(), "behind 5: the last entry is 3, which is before it") {
		t.Errorf("%d, %v", n, err)
	}
	stranger := New(jobstest.Open(t, s, natsconn.Open), c.agents, ended{}).Log("stored", 0, swarms.In).(*Log)
	if n, err := stranger.stored(ctx, 0, own[:3]); n != 0 || !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("another writer: %d, %v", n, err)
	}
	for name, k := range map[string]struct {
		after   uint64
		entries []swarms.Entry
		n       int
	}{
		"all": {0, own, 3}, "two": {1, own[1:], 2}, "none": {3, own[3:], 0}, "beyond": {7, own, 0},
		"the second differs": {0, with(1, func(e *swarms.Entry) { e.Data = nil }), 1},
		"the first differs":  {0, with(0, func(e *swarms.Entry) { e.Ref = 0 }), 0},
	} {
		if n, err := l.found(ctx, k.after, k.entries); n != k.n || err != nil {
			t.Errorf("found, %s: %d, %v", name, n, err)
		}
	}
	if err := l.Trim(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if n, err := l.found(ctx, 0, own); n != 0 || err != nil {
		t.Errorf("behind a trim: %d, %v", n, err)
	}
	if r, err := l.Read(ctx, 1); err != nil {
		t.Error(err)
	} else {
		if e, err := r.Next(ctx); err == nil || !strings.Contains(err.Error(), "entry 2 is the first there is, 1 is "+
			"wanted: the log was trimmed") {
			t.Errorf("%+v, %v", e, err)
		}
		r.Close()
		r.Close()
	}
	if err := l.Trim(ctx, 9); err != nil {
		t.Fatal(err)
	}
	if last, err := l.Last(ctx); err != nil || last.Seq != 0 {
		t.Errorf("%+v, %v", last, err)
	}
	if err := errors.Join(l.Delete(ctx), l.Delete(ctx)); err != nil {
		t.Error(err)
	}
	if err := l.Append(ctx, 0, own[0]); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Last(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("last: %v", err)
	}
	if r, err := l.Read(ctx, 1); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("read: %v, %v", r, err)
	}
}

// TestLogBatches: entries of any number and size are stored in their order, on a stream with atomic
// batches and on one without.
func TestLogBatches(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	for _, single := range []bool{false, true} {
		l := c.Log(fmt.Sprint("batches-", single), 0, swarms.Out).(*Log)
		if single {
			if _, err := c.conn.JS.CreateStream(ctx,
				jetstream.StreamConfig{
					Name: l.stream, Subjects: []string{l.subject},
					Discard: jetstream.DiscardNew,
				}); err != nil {
				t.Fatal(err)
			}
		} else if err := l.Create(ctx); err != nil {
			t.Fatal(err)
		}
		at := 0
		for _, k := range []struct{ n, size int }{
			{1, 10},
			{2, 10},
			{64, 10},
			{appendMost, 1},
			{appendMost + 1, 1},
			{2*appendMost + 1, 0},
			{10, 900_000},
			{0, 0},
		} {
			if err := l.Append(ctx, uint64(at), numbered(at+1, k.n, k.size)...); err != nil {
				t.Fatalf("%d entries of %d bytes, single %v: %v", k.n, k.size, single, err)
			}
			at += k.n
			if last, err := l.Last(ctx); err != nil || last.Seq != uint64(at) || last.Ref != uint64(at) {
				t.Errorf("%d entries of %d bytes, single %v: the log ends at %d with %d, want %d, %v", k.n, k.size,
					single, last.Seq, last.Ref, at, err)
			}
			if k.n > 0 {
				if err := l.Append(ctx, uint64(at-k.n), numbered(at+100, 2, 1)...); !errors.Is(err, jobs.ErrFenced) {
					t.Errorf("an append behind %d of %d: %v", at-k.n, at, err)
				}
			}
		}
		r, err := l.Read(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range at {
			e, err := r.Next(ctx)
			if err != nil || e.Seq != uint64(i+1) || e.Ref != uint64(i+1) || e.Kind != "k" || len(e.Data) > 0 &&
				e.Data[0] != byte(i+1) {
				t.Fatalf("entry %d: number %d, %v", i+1, e.Ref, err)
			}
		}
		r.Close()
	}
	for text, ok := range map[string]bool{
		"7": true, "": false, "x": false, "-1": false, "18446744073709551615": true,
		"18446744073709551616": false,
	} {
		e, err := entry(3, nats.Header{headerRef: {text}, headerKind: {"k"}}, []byte("d"))
		if (err == nil) != ok || ok && (e.Seq != 3 || e.Kind != "k" || string(e.Data) != "d") || !ok &&
			!strings.Contains(err.Error(), "log entry 3") {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
	base := nats.Header{headerRef: {"1"}, headerKind: {"k"}, headerWriter: {"w"}}
	seen := map[uint64]bool{digest(base, []byte("d")): true}
	for _, name := range []string{headerRef, headerKind, headerWriter} {
		h := nats.Header{headerRef: {"1"}, headerKind: {"k"}, headerWriter: {"w"}}
		h[name] = []string{"2"}
		seen[digest(h, []byte("d"))] = true
	}
	seen[digest(base, []byte("e"))] = true
	if first, again := digest(base, []byte("d")), digest(base, []byte("d")); len(seen) != 5 || seen[0] ||
		first != again {
		t.Errorf("%d digests of 5 entries", len(seen))
	}
}

// forgetful is a server that never gets every 200th request for a message.
type forgetful struct {
	*server.Server
	asked, lost atomic.Int64
}

const forgets = 200

func (f *forgetful) InProcessConn() (net.Conn, error) {
	c, err := f.Server.InProcessConn()
	return forgetfulConn{c, f}, err
}

type forgetfulConn struct {
	net.Conn
	f *forgetful
}

func (c forgetfulConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$JS.API.STREAM.MSG.GET")) && c.f.asked.Add(1)%forgets == 0 {
		c.f.lost.Add(1)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestLogStoredSlowly: an append compares more entries with the log than one try has time for. No
// try begins anew.
func TestLogStoredSlowly(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	f := &forgetful{Server: s}
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := New(c, telemetry.NewRegistry(c), ended{}).Log("slow", 0, swarms.In)
	all := numbered(1, appendMost+1, 1)
	if err := errors.Join(l.Create(t.Context()), l.Append(t.Context(), 0, all...)); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 0, all[:appendMost]...); err != nil || f.lost.Load() == 0 {
		t.Errorf("%v, %d requests lost", err, f.lost.Load())
	}
	if last, err := l.Last(t.Context()); err != nil || last.Seq != uint64(len(all)) {
		t.Errorf("the log ends at %d: %v", last.Seq, err)
	}
}
