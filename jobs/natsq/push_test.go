package natsq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestPush: a push is stored whole or not at all, once for its key, and a full name is refused
// until somebody has read; other names are not.
func TestPush(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	stream, err := js.Stream(t.Context(), "EXO_PUSH")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgsPerSubject = 8
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	frames := func(n int) (all [][]byte) {
		for i := range n {
			all = append(all, fmt.Appendf(nil, "%d\n", i))
		}
		return all
	}
	held := func() uint64 {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	push := func(name, key string, n int) (bool, error) { return c.Streams.Push(t.Context(), name, key, frames(n)) }
	for i, c := range []struct {
		key   string
		n     int
		again bool
		held  uint64
	}{
		{"one", 1, false, 1},
		{"one", 1, true, 1},
		{"many", 5, false, 6},
		{"many", 5, true, 6},
		{"one", 3, true, 6},
	} { // the last: another body under the key
		if again, err := push("a", c.key, c.n); again != c.again || err != nil || held() != c.held {
			t.Fatal(i, again, err, held())
		}
	}
	if _, err := push("a", "", 3); !errors.Is(err, jobs.ErrFull) || held() != 6 {
		t.Fatalf("three more: %v, %d", err, held())
	}
	if again, err := push("a", "many", 5); !again || err != nil || held() != 6 {
		t.Fatal(again, err)
	}
	if again, err := push("b", "one", 2); again || err != nil {
		t.Fatal(again, err)
	}
	in, err := c.Streams.Subscribe(t.Context(), jobs.Subscription{Push: "a", Consumer: "push-a", Keep: true, Ahead: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for range 6 {
		m, err := in.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in.Ack(t.Context(), m.Seq)
	}
	if again, err := push("a", "", 8); again || err != nil || held() != 10 {
		t.Fatal(again, err, held())
	}
	if _, err := push("a.b", "", 1); err == nil {
		t.Error("a name with a dot")
	}
}

// TestPublish: what is not the queue's own is published to, once for an id, and nothing else.
func TestPublish(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "out", Subjects: []string{"alarms.>"}})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := c.Streams.Published(t.Context(), "out", "alarms.a"); id != "" || err != nil {
		t.Fatal(id, err)
	}
	for _, id := range []string{"1", "2", "1", "2"} {
		if err := c.Streams.Publish(t.Context(), jobs.Publication{
			Stream: "out", Subject: "alarms.a", ID: id,
			Type: "text/plain", Data: []byte(id),
		}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 2 {
		t.Fatal(info, err)
	}
	if id, err := c.Streams.Published(t.Context(), "out", "alarms.a"); id != "2" || err != nil {
		t.Fatal(id, err)
	}
	for _, p := range []jobs.Publication{
		{Stream: "EXO_JOBS_CPU", Subject: "exo.job.cpu.a.normal.t.x"},
		{Stream: "out", Subject: "exo.job.cpu.a.normal.t.x"},
		{Stream: "out", Subject: "$KV.EXO_CONTROL.x"},
		{Stream: "out", Subject: "_INBOX.x"},
		{Stream: "out", Subject: "alarms.*"},
		{Stream: "other", Subject: "alarms.a"},
		{Stream: "KV_x", Subject: "a"},
		{Stream: "out", Subject: "alarms.a", Data: []byte(strings.Repeat("x", 2<<20))},
	} {
		p.ID = "x"
		if err := c.Streams.Publish(t.Context(), p); jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("%s %s: %v", p.Stream, p.Subject, err)
		}
	}
	for _, stream := range []string{"none", "out"} {
		if _, err := c.Streams.Published(t.Context(), stream, "else"); jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("%s: %v", stream, err)
		}
	}
}
