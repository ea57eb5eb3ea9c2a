package natsq

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// deliveries returns messages that came with the reply subjects "ack.0" and so on, and a
// subscription to what is replied.
func deliveries(t *testing.T, c *Conn, n int) (msgs []*nats.Msg, replies *nats.Subscription) {
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
func said(t *testing.T, c *Conn, replies *nats.Subscription) (all []string) {
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

// TestHolder: the leases of the jobs at hand are renewed until they are dropped or lost, or the
// worker is sick, of which each job hears once.
func TestHolder(t *testing.T) {
	_, c := inside(t)
	msgs, replies := deliveries(t, c, 4)
	var log bytes.Buffer // of one goroutine: the holder's own never beats here
	h := newHolder(time.Hour, func() error { return nil }, slog.New(slog.NewTextHandler(&log, nil)))
	defer h.close()
	for _, m := range msgs {
		h.add(m)
	}
	beat := func(sick error, want ...string) {
		t.Helper()
		if h.beat(sick); !slices.Equal(said(t, c, replies), want) {
			t.Errorf("a beat renews other leases than %v", want)
		}
	}
	beat(nil, "ack.0 +WPI", "ack.1 +WPI", "ack.2 +WPI", "ack.3 +WPI")
	h.drop(msgs[3])
	h.drop(msgs[3])
	beat(nil, "ack.0 +WPI", "ack.1 +WPI", "ack.2 +WPI")
	heard := map[int][]error{}
	tell := func(i int) func(error) { return func(err error) { heard[i] = append(heard[i], err) } }
	h.onSick(msgs[0], tell(0))
	h.onSick(msgs[1], tell(1))
	h.onSick(msgs[3], tell(3))
	if !errors.Is(heard[3][0], errSlotLost) || len(heard) != 1 {
		t.Errorf("a job that is not held any more hears %v", heard)
	}
	lost := errors.New("lost")
	h.lose(msgs[1], lost)
	h.lose(msgs[1], lost)
	h.lose(msgs[2], lost) // one that nobody asks about
	if !slices.Equal(heard[1], []error{lost}) || len(heard[0]) != 0 {
		t.Errorf("%v", heard)
	}
	beat(nil, "ack.0 +WPI")
	if h.ill() {
		t.Error("it is ill")
	}
	sick := errors.New("sick")
	beat(sick)
	beat(sick)
	if !h.ill() || !slices.Equal(heard[0], []error{sick}) {
		t.Errorf("ill is %v, heard %v", h.ill(), heard[0])
	}
	if n := strings.Count(log.String(), "not healthy"); n != 1 || !strings.Contains(log.String(), "jobs=1") {
		t.Errorf("%d times: %s", n, log.String())
	}
	h.add(msgs[2])
	h.onSick(msgs[2], tell(2))
	if !slices.Equal(heard[2], []error{sick}) {
		t.Errorf("a job that comes while it is ill hears %v", heard[2])
	}
	beat(nil, "ack.0 +WPI", "ack.2 +WPI")
	if h.ill() {
		t.Error("it is ill for ever")
	}
	again := errors.New("again")
	if h.beat(again); !slices.Equal(heard[0], []error{sick, again}) || len(heard[2]) != 1 {
		t.Errorf("a second illness: %v", heard)
	}
	unbound := &nats.Msg{Subject: "unbound"}
	h.add(unbound)
	if h.beat(nil); strings.Count(log.String(), "a lease was not renewed") != 1 {
		t.Errorf("a lease that cannot be renewed: %s", log.String())
	}
}

// TestHolderBeats: a holder asks for the health of its worker by itself, renews on each turn, and
// does neither once it is closed.
func TestHolderBeats(t *testing.T) {
	_, c := inside(t)
	msgs, replies := deliveries(t, c, 1)
	asked := make(chan struct{}, 1000)
	h := newHolder(5*time.Millisecond, func() error { asked <- struct{}{}; return nil }, slog.New(slog.DiscardHandler))
	h.add(msgs[0])
	for range 3 {
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody asks for its health")
		}
		if m, err := replies.NextMsg(10 * time.Second); err != nil || string(m.Data) != "+WPI" {
			t.Fatalf("%v, %v", m, err)
		}
	}
	h.close()
	h.close()
	n := len(asked)
	select {
	case <-h.stop:
	default:
		t.Error("it goes on")
	}
	if len(asked) != n {
		t.Error("it asks once more")
	}
}
