package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestRefusedMessages: the limits of a stream are told apart by what the server says.
func TestRefusedMessages(t *testing.T) {
	for text, want := range map[string][2]bool{
		perSubject: {true, false}, tooMany: {false, true},
		tooMuch: {false, true}, "something else": {false, false},
	} {
		err := fmt.Errorf("x: %w", &jetstream.APIError{ErrorCode: errCodeStoreFailed, Description: text})
		if exists, full := Rejected(err); exists != want[0] || full != want[1] {
			t.Errorf("%s: %v, %v", text, exists, full)
		}
		if exists, full := Rejected(&jetstream.APIError{ErrorCode: 1, Description: text}); exists || full {
			t.Errorf("%s of another code: %v, %v", text, exists, full)
		}
	}
	if exists, full := Rejected(errors.New(perSubject)); exists || full {
		t.Error("an error that is not the server's")
	}
	m := &nats.Msg{}
	SetMessageID(m)
	first := m.Header.Get(jetstream.MsgIDHeader)
	if SetMessageID(m); first == "" || m.Header.Get(jetstream.MsgIDHeader) != first {
		t.Errorf("%q became %q", first, m.Header.Get(jetstream.MsgIDHeader))
	}
}

// TestBatchMessages: of a batch the first and the last message are questions, and every answer that
// is not a whole commit is an error.
func TestBatchMessages(t *testing.T) {
	s := started(t)
	c, responder := openedAt(t, s), openedAt(t, s)
	var got []*nats.Msg
	answer := func(i int) string { return "" }
	sub, err := responder.NC.Subscribe("batch.test", func(m *nats.Msg) {
		got = append(got, m)
		if m.Reply != "" {
			_ = m.Respond([]byte(answer(len(got))))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection ends anyway
	if err := responder.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	msgs := func(n int) (all []*nats.Msg) {
		for i := range n {
			all = append(all, &nats.Msg{
				Subject: "batch.test", Data: []byte{byte(i)},
				Header: nats.Header{"X": {fmt.Sprint(i)}},
			})
		}
		return all
	}
	for name, k := range map[string]struct {
		n      int
		answer func(i int) string
		want   string
	}{
		"one":   {1, func(int) string { return `{"count":1}` }, ""},
		"three": {3, func(i int) string { return map[int]string{3: `{"count":3}`}[i] }, ""},
		"too few": {
			3, func(i int) string { return map[int]string{3: `{"count":2}`}[i] },
			"the server took 2 of a batch of 3",
		}, "refused at once": {
			3,
			func(int) string { return `{"error":{"code":400,"err_code":10077,"description":"no"}}` }, "no",
		},
		"refused": {2, func(i int) string {
			return map[int]string{2: `{"error":{"code":400,"err_code":1,"description":"no"}}`}[i]
		}, "no"}, "garbage": {1, func(int) string { return "garbage" }, "answer to a batch"},
		"nothing":         {1, func(int) string { return "" }, "answer to a batch"},
		"an early answer": {2, func(i int) string { return map[int]string{1: `{}`, 2: `{"count":2}`}[i] }, ""},
	} {
		got, answer = nil, k.answer
		err := c.PublishBatchOnce(t.Context(), msgs(k.n))
		if (err == nil) != (k.want == "") || err != nil && !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v, want %q", name, err, k.want)
		}
		if name == "refused at once" && len(got) != 1 {
			t.Errorf("%d messages were sent behind a refusal", len(got))
		}
		if err != nil {
			continue
		}
		for i, m := range got {
			if m.Header.Get("X") != fmt.Sprint(i) || m.Header.Get(headerBatchSeq) != fmt.Sprint(i+1) ||
				m.Header.Get(headerBatch) != got[0].Header.Get(headerBatch) ||
				(m.Header.Get(headerBatchCommit) == "1") != (i == k.n-1) || (m.Reply != "") != (i == 0 || i == k.n-1) ||
				m.Data[0] != byte(i) {
				t.Errorf("%s: message %d is %+v", name, i, m)
			}
		}
		if len(got) != k.n {
			t.Errorf("%s: %d messages of %d", name, len(got), k.n)
		}
	}
	if _, err := c.GetOnce(t.Context(), "NONE", map[string]any{"seq": 1}); err == nil ||
		errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a stream that is not there: %v", err)
	}
	if _, err := c.GetOnce(t.Context(), wire.ResultStream, map[string]any{"seq": 99}); !errors.Is(err,
		jobs.ErrNotFound) {
		t.Errorf("a message that is not there: %v", err)
	}
}

// TestTries: a try is short at first, and not shorter than what it sends needs.
func TestTries(t *testing.T) {
	for _, c := range []struct {
		since time.Duration
		size  int
		want  time.Duration
	}{
		{0, 0, time.Second},
		{3 * time.Second, 0, time.Second},
		{12 * time.Second, 0, 2 * time.Second},
		{time.Minute, 0, 5 * time.Second},
		{0, 64 << 20, 17 * time.Second},
	} {
		if got := tryLimit(c.since, c.size); got != c.want {
			t.Errorf("%v after the call with %d bytes: %v, want %v", c.since, c.size, got, c.want)
		}
	}
}

func started(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func openedAt(t *testing.T, s *server.Server) *Conn {
	t.Helper()
	c, err := Open(t.Context(), Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func opened(t *testing.T) *Conn {
	t.Helper()
	return openedAt(t, started(t))
}

// TestPublishTries: of several tries of a batch the outcome of the first is not known, and each
// call tells how much it sends.
func TestPublishTries(t *testing.T) {
	c := opened(t)
	ctx := t.Context()
	sizes, n := []int{}, 1
	try := func(ctx context.Context, _ string, size int, fn func(ctx context.Context) error) (err error) {
		sizes = append(sizes, size)
		for range n {
			err = fn(ctx)
		}
		return err
	}
	message := func(id string, size int) *nats.Msg {
		return &nats.Msg{
			Subject: wire.SourceOf(jobs.Job{ID: id, Pool: jobs.PoolCPU, Kind: "k"}).Job(id),
			Data:    make([]byte, size),
		}
	}
	for n = range 3 {
		unsure, err := c.PublishBatch(ctx, try, "x",
			[]*nats.Msg{message("a"+string(rune('0'+n)), 10), message("b"+string(rune('0'+n)), 5)})
		if unsure != (n > 1) || (err != nil) != (n > 1) {
			t.Errorf("%d tries: %v, %v", n, unsure, err)
		}
	}
	n = 2
	m := message("c", 7)
	if err := c.PublishMsg(ctx, try, "x", m); err != nil { // the second is a duplicate, by its name
		t.Error(err)
	}
	if s, err := c.JS.Stream(ctx, wire.JobStream(jobs.PoolCPU)); err != nil || s.CachedInfo().State.Msgs != 5 {
		t.Errorf("%+v, %v", s.CachedInfo().State, err)
	}
	if len(sizes) != 4 || sizes[0] != 15 || sizes[3] != 7 {
		t.Errorf("sizes %v", sizes)
	}
}
