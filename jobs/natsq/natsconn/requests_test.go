package natsconn

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// gather returns the values of a family by its labels, joined with blanks; of a histogram the
// number of observations.
func gather(t *testing.T, c *Conn, name string) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c.Collector()); err != nil {
		t.Fatal(err)
	}
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// TestRequests: each request is measured under its operation, and one that fails is counted by its
// reason too. A request whose caller goes away is neither.
func TestRequests(t *testing.T) {
	c := openedAt(t, started(t))
	const seconds, failures = "exoswarm_nats_request_seconds", "exoswarm_nats_request_failures_total"
	message := func(subject string) []*nats.Msg { return []*nats.Msg{{Subject: subject, Data: []byte("x")}} }
	once := func(_ context.Context, _ string, _ int, fn func(ctx context.Context) error) error {
		return fn(t.Context())
	}
	silent, err := c.NC.Subscribe("silent", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Unsubscribe() //nolint:errcheck // the connection ends anyway
	for _, x := range []struct {
		name, op, reason string
		do               func() error
		counted, fails   bool
	}{
		{"publish", "publish", "", func() error {
			return c.PublishMsg(t.Context(), once, "publish", &nats.Msg{Subject: wire.FiredSubject("a", "1")})
		}, true, false},
		{"get", "get", "", func() error {
			_, err := c.LastOnce(t.Context(), wire.WaitStream, wire.FiredSubject("a", "*"))
			return err
		}, true, false},
		{"kv", "kv", "", func() error {
			return c.InBucket(t.Context(), "put", wire.ControlBucket,
				func(ctx context.Context, kv jetstream.KeyValue) error {
					_, err := kv.Put(ctx, "a", nil)
					return err
				})
		}, true, false},
		{"api", "api", "", func() error {
			_, err := c.PurgeOnce(t.Context(), wire.WaitStream, wire.FiredSubject("a", "*"), 0)
			return err
		}, true, false},
		{"no answer", "publish", "timeout", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			return c.PublishBatchOnce(ctx, message("silent"))
		}, true, true},
		{"nobody", "publish", "no_responders", func() error {
			return c.PublishBatchOnce(t.Context(), message("nobody"))
		}, true, true},
		{"caller is gone", "publish", "timeout", func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return c.PublishBatchOnce(ctx, message("silent"))
		}, false, true},
	} {
		before, failed := gather(t, c, seconds)[" "+x.op], gather(t, c, failures)
		if err := x.do(); (err != nil) != x.fails {
			t.Errorf("%s: %v", x.name, err)
		}
		want := before
		if x.counted {
			want++
		}
		if got := gather(t, c, seconds)[" "+x.op]; got != want {
			t.Errorf("%s: %v requests, want %v", x.name, got, want)
		}
		for key, n := range gather(t, c, failures) {
			if key == " "+x.op+" "+x.reason && x.counted {
				n--
			}
			if n != failed[key] {
				t.Errorf("%s: failures%s changed to %v", x.name, key, n)
			}
		}
	}
}

// TestClockOffset: the offset follows the clock of this machine, and is absent without an answer.
func TestClockOffset(t *testing.T) {
	c := openedAt(t, started(t))
	offset := func() (float64, bool) {
		v, ok := gather(t, c, "exoswarm_clock_offset_seconds")[""]
		return v, ok
	}
	if v, ok := offset(); !ok || v > 1 || v < -1 {
		t.Fatalf("on one machine: %v, %v", v, ok)
	}
	c.clock.now = func() time.Time { return time.Now().Add(time.Hour) }
	if v, _ := offset(); v > 1 {
		t.Errorf("asked again after less than %v: %v", clockPeriod, v)
	}
	c.clock.next = time.Time{}
	if v, ok := offset(); !ok || v < 3599 || v > 3601 {
		t.Errorf("an hour ahead: %v, %v", v, ok)
	}
	if err := c.DeleteStream(t.Context(), "KV_"+wire.ControlBucket); err != nil {
		t.Fatal(err)
	}
	c.clock.next = time.Time{}
	if v, ok := offset(); ok {
		t.Errorf("without an answer: %v", v)
	}
}
