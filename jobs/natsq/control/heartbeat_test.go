package control

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// deliveries returns messages that came with the reply subjects "ack.0" and so on, and a
// subscription to what is replied.
func deliveries(t *testing.T, c *natsconn.Conn, n int) (msgs []*nats.Msg, replies *nats.Subscription) {
	t.Helper()
	in, err := c.NC.SubscribeSync("delivered")
	if err != nil {
		t.Fatal(err)
	}
	if replies, err = c.NC.SubscribeSync("ack.*"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := c.NC.PublishRequest("delivered", "ack."+string(rune('0'+i)), []byte("x")); err != nil {
			t.Fatal(err)
		}
		m, err := in.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	return msgs, replies
}

// said returns what was replied to messages, as "ack.0 +WPI", in order of their numbers.
func said(t *testing.T, c *natsconn.Conn, replies *nats.Subscription) (all []string) {
	t.Helper()
	if err := c.NC.Publish("ack.last", nil); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := replies.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == "ack.last" {
			slices.Sort(all)
			return all
		}
		all = append(all, m.Subject+" "+string(m.Data))
	}
}

// TestKeeper: the leases of jobs are renewed until the jobs are dropped or lost, or the worker is
// unhealthy. Each job is told of that once.
func TestKeeper(t *testing.T) {
	c := jobstest.Connected(t, natsconn.Open)
	msgs, replies := deliveries(t, c, 4)
	var log bytes.Buffer // the keeper's own goroutine never renews here
	k := StartKeeper(time.Hour, func() error { return nil }, slog.New(slog.NewTextHandler(&log, nil)))
	defer k.Close()
	for _, m := range msgs {
		k.Add(m)
	}
	renew := func(unhealthy error, want ...string) {
		t.Helper()
		if k.renew(unhealthy); !slices.Equal(said(t, c, replies), want) {
			t.Errorf("it renews other leases than %v", want)
		}
	}
	renew(nil, "ack.0 +WPI", "ack.1 +WPI", "ack.2 +WPI", "ack.3 +WPI")
	k.Drop(msgs[3])
	k.Drop(msgs[3])
	renew(nil, "ack.0 +WPI", "ack.1 +WPI", "ack.2 +WPI")
	heard := map[int][]error{}
	tell := func(i int) func(error) { return func(err error) { heard[i] = append(heard[i], err) } }
	k.OnLost(msgs[0], tell(0))
	k.OnLost(msgs[1], tell(1))
	k.OnLost(msgs[3], tell(3))
	if !errors.Is(heard[3][0], ErrSlotLost) || len(heard) != 1 {
		t.Errorf("a job that is not held any more hears %v", heard)
	}
	lost := errors.New("lost")
	k.Lose(msgs[1], lost)
	k.Lose(msgs[1], lost)
	k.Lose(msgs[2], lost) // one that nobody asks about
	if !slices.Equal(heard[1], []error{lost}) || len(heard[0]) != 0 {
		t.Errorf("%v", heard)
	}
	renew(nil, "ack.0 +WPI")
	if k.Unhealthy() {
		t.Error("it is unhealthy")
	}
	unhealthy := errors.New("unhealthy")
	renew(unhealthy)
	renew(unhealthy)
	if !k.Unhealthy() || !slices.Equal(heard[0], []error{unhealthy}) {
		t.Errorf("unhealthy is %v, heard %v", k.Unhealthy(), heard[0])
	}
	if n := strings.Count(log.String(), "not healthy"); n != 1 || !strings.Contains(log.String(), "jobs=1") {
		t.Errorf("%d times: %s", n, log.String())
	}
	k.Add(msgs[2])
	k.OnLost(msgs[2], tell(2))
	if !slices.Equal(heard[2], []error{unhealthy}) {
		t.Errorf("a job that comes while the worker is unhealthy hears %v", heard[2])
	}
	renew(nil, "ack.0 +WPI", "ack.2 +WPI")
	if k.Unhealthy() {
		t.Error("it is unhealthy for ever")
	}
	again := errors.New("again")
	if k.renew(again); !slices.Equal(heard[0], []error{unhealthy, again}) || len(heard[2]) != 1 {
		t.Errorf("the second time: %v", heard)
	}
	unbound := &nats.Msg{Subject: "unbound"}
	k.Add(unbound)
	if k.renew(nil); strings.Count(log.String(), "a lease was not renewed") != 1 {
		t.Errorf("a lease that cannot be renewed: %s", log.String())
	}
}

// TestKeeperLoop: a keeper asks for the health of its worker by itself, renews each time, and does
// neither after Close.
func TestKeeperLoop(t *testing.T) {
	c := jobstest.Connected(t, natsconn.Open)
	msgs, replies := deliveries(t, c, 1)
	asked := make(chan struct{}, 1000)
	healthy := func() error { asked <- struct{}{}; return nil }
	k := StartKeeper(5*time.Millisecond, healthy, slog.New(slog.DiscardHandler))
	k.Add(msgs[0])
	for range 3 {
		select {
		case <-asked:
		case <-time.After(2 * time.Minute):
			t.Fatal("nobody asks for its health")
		}
		if m, err := replies.NextMsg(10 * time.Second); err != nil || string(m.Data) != "+WPI" {
			t.Fatalf("%v, %v", m, err)
		}
	}
	k.Close()
	k.Close()
	n := len(asked)
	select {
	case <-k.stop:
	default:
		t.Error("it goes on")
	}
	if len(asked) != n {
		t.Error("it asks once more")
	}
}
