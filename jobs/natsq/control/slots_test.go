package control

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestSlots: slots and tokens of a tenant are taken and given back once, within its limits.
func TestSlots(t *testing.T) {
	freed := 0
	q := wire.Quota{Weight: 1, Concurrency: 3}
	l := newLimiter(&natsconn.Conn{}, LimiterOptions{
		Quota: func(string) wire.Quota { return q }, Freed: func() { freed++ },
	})
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Lane: jobs.Normal, Tenant: "a"}
	a := l.tenant("a")
	a.spare, a.granted, a.lowSpare = 3, 3, 3
	check := func(what string, running, spare int) {
		t.Helper()
		if a.running != running || a.spare != spare {
			t.Errorf("%s: %d running, %d spare, want %d and %d", what, a.running, a.spare, running, spare)
		}
	}
	if n := l.Reserve(s, 2); n != 2 {
		t.Fatalf("reserved %d of 2", n)
	}
	check("two reserved", 2, 1)
	one, two := &nats.Msg{}, &nats.Msg{}
	l.Began(s, 2, []*nats.Msg{one})
	check("one began", 1, 2)
	if n := l.Reserve(s, 5); n != 2 {
		t.Fatalf("reserved %d of 5 with 2 slots", n)
	}
	l.Began(s, 2, []*nats.Msg{two})
	check("two run", 2, 1)
	for range 2 { // the second time it has no slot
		l.End(one)
		check("one ended", 1, 2)
	}
	l.End(&nats.Msg{})
	check("a stranger ended", 1, 2)
	if freed != 1 {
		t.Errorf("the worker was told %d times of one slot", freed)
	}
	// A slot that the account has not, because the limit was lowered, is not spare again.
	a.granted = 2
	l.End(two)
	check("the limit was lowered", 0, 2)
	if freed != 1 {
		t.Errorf("the worker was told of a slot that it has not")
	}
	// Without a limit of concurrency nothing is counted as spare.
	q.Concurrency = 0
	a.spare = 0
	if n := l.Reserve(s, 9); n != 9 {
		t.Errorf("reserved %d of 9 without a limit", n)
	}
	// An account that holds more slots than a lowered limit gives none.
	q.Concurrency, a.spare = 2, 2
	a.record.Holders = map[string]wire.Holder{"other": {Slots: 3}}
	if n := a.free(q, 1); n != 0 {
		t.Errorf("%d slots beyond a lowered limit", n)
	}
	a.record.Holders = map[string]wire.Holder{"other": {Slots: 2}}
	if n := a.free(q, 1); n != 1 {
		t.Errorf("%d slots of an account at its limit with 2 spare", n)
	}
	// Tokens bound what begins, whatever is spare.
	q.Rate, a.tokens = 1, 1
	if n := a.free(q, 2); n != 1 {
		t.Errorf("%d jobs with one token", n)
	}
}
