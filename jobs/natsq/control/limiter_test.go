package control

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// bench is a limiter without a server, and what it has told.
type bench struct {
	*Limiter
	quotas map[string]wire.Quota
	held   *Keeper
	freed  int
}

func newBench(t *testing.T) *bench { return benchOn(t, &natsconn.Conn{}) }

// benchOn is a bench whose limiter writes over a connection.
func benchOn(t *testing.T, c *natsconn.Conn) *bench {
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{
		quotas: map[string]wire.Quota{}, held: StartKeeper(time.Hour, func() error { return nil }, quiet),
	}
	b.Limiter = newLimiter(c, LimiterOptions{
		Pool: jobs.PoolCPU, Heartbeats: b.held, Log: quiet, Freed: func() { b.freed++ },
		Quota: func(name string) wire.Quota { return b.quotas[name] },
	})
	b.id = "me"
	t.Cleanup(b.held.Close)
	return b
}

// woken reports whether the loop of the limiter was woken since the last call.
func (b *bench) woken() bool {
	select {
	case <-b.wake:
		return true
	default:
		return false
	}
}

// TestLimiterFree: how many jobs may begin is the least of what is asked for, the slots and the
// tokens, and none while too many slots are out.
func TestLimiterFree(t *testing.T) {
	slots := func(n int) wire.QuotaRecord {
		return wire.QuotaRecord{Holders: map[string]wire.Holder{"me": {Slots: n}}}
	}
	for name, c := range map[string]struct {
		t       tenant
		q       wire.Quota
		n, want int
	}{
		"no limit":           {tenant{}, wire.Quota{}, 5, 5},
		"slots":              {tenant{spare: 3, record: slots(3)}, wire.Quota{Concurrency: 3}, 5, 3},
		"fewer wanted":       {tenant{spare: 3, record: slots(3)}, wire.Quota{Concurrency: 3}, 2, 2},
		"no slot":            {tenant{record: slots(3)}, wire.Quota{Concurrency: 3}, 5, 0},
		"the limit is lower": {tenant{spare: 3, record: slots(4)}, wire.Quota{Concurrency: 3}, 5, 0},
		"tokens":             {tenant{tokens: 4}, wire.Quota{Rate: 1}, 5, 4},
		"no token":           {tenant{spare: 4}, wire.Quota{Rate: 1}, 5, 0},

		"both, slots": {tenant{spare: 2, tokens: 4, record: slots(2)}, wire.Quota{Rate: 1, Concurrency: 3}, 5, 2},

		"both, tokens": {tenant{spare: 4, tokens: 1, record: slots(4)}, wire.Quota{Rate: 1, Concurrency: 4}, 5, 1},

		"tokens, no rate": {tenant{tokens: 1}, wire.Quota{}, 5, 5},
	} {
		if got := c.t.free(c.q, c.n); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLimiterOpen: a source of a tenant that has neither slot nor token is noted as wanted and
// wakes the limiter; others are open.
func TestLimiterOpen(t *testing.T) {
	b := newBench(t)
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Tenant: "a"}
	if !b.Open(s, 3) || b.woken() || len(b.tenants) != 0 {
		t.Error("a tenant without limits is held up")
	}
	b.quotas["a"] = wire.Quota{Concurrency: 2}
	if b.Open(s, 3) || !b.woken() || b.tenants["a"].wanted[s] != 3 {
		t.Errorf("a tenant without a slot: %+v", b.tenants["a"])
	}
	if !b.tenants["a"].stale || !b.tenants["a"].lookFirst {
		t.Error("the account of a new tenant is taken for known")
	}
	b.tenants["a"].spare = 1
	if delete(b.tenants["a"].wanted, s); !b.Open(s, 3) || b.woken() || len(b.tenants["a"].wanted) != 0 {
		t.Errorf("a tenant with a slot: %+v", b.tenants["a"])
	}
	b.wakeLoop()
	b.wakeLoop() // a second one does not wait
	if !b.woken() || b.woken() {
		t.Error("two calls are not one")
	}
	if all := b.all(); len(all) != 1 || all["a"] != b.tenants["a"] {
		t.Errorf("%v", all)
	}
}

// TestLimiterReserve: a reservation takes what it gets of slots and tokens, and what no job came
// for is there again.
func TestLimiterReserve(t *testing.T) {
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Tenant: "a"}
	for name, c := range map[string]struct {
		q                              wire.Quota
		spare, tokens, n, got          int
		jobs                           int
		spareMid, tokenMid             int // while it is asked
		spareEnd, tokenEnd             int // when jobs have come
		running, lowSpare, lowToken    int
		afterSpare, afterRun, freedEnd int // when the jobs have ended
	}{
		"no limit":        {wire.Quota{}, 0, 0, 5, 5, 2, 0, 0, 0, 0, 2, 9, 9, 0, 0, 0},
		"slots":           {wire.Quota{Concurrency: 9}, 4, 0, 3, 3, 2, 1, 0, 2, 0, 2, 1, 9, 4, 0, 2},
		"more than slots": {wire.Quota{Concurrency: 9}, 4, 0, 7, 4, 4, 0, 0, 0, 0, 4, 0, 9, 4, 0, 4},
		"none came":       {wire.Quota{Concurrency: 9, Rate: 1}, 4, 3, 7, 3, 0, 1, 0, 4, 3, 0, 1, 0, 4, 0, 0},
		"tokens":          {wire.Quota{Rate: 1}, 0, 5, 3, 3, 1, 0, 2, 0, 4, 1, 9, 2, 0, 0, 0},
		"both":            {wire.Quota{Concurrency: 9, Rate: 1}, 6, 5, 4, 4, 3, 2, 1, 3, 2, 3, 2, 1, 6, 0, 3},
		"nothing there":   {wire.Quota{Concurrency: 9, Rate: 1}, 0, 5, 4, 0, 0, 0, 5, 0, 5, 0, 0, 5, 0, 0, 0},
	} {
		b := newBench(t)
		b.quotas["a"] = c.q
		x := b.tenant("a")
		x.spare, x.tokens, x.lowSpare, x.lowTokens, x.granted = c.spare, c.tokens, 9, 9, c.spare
		n := b.Reserve(s, c.n)
		if n != c.got || x.running != n || x.spare != c.spareMid || x.tokens != c.tokenMid ||
			x.lowSpare != c.lowSpare || x.lowTokens != c.lowToken {
			t.Errorf("%s: %d reserved, %+v; want %+v", name, n, x, c)
		}
		msgs := make([]*nats.Msg, c.jobs)
		for i := range msgs {
			msgs[i] = &nats.Msg{}
		}
		b.Began(s, n, msgs)
		if x.running != c.running || x.spare != c.spareEnd || x.tokens != c.tokenEnd || len(b.tenantOf) != c.jobs ||
			x.lookFirst != (c.jobs == 0) {
			t.Errorf("%s, begun: %+v, %d jobs; want %+v", name, x, len(b.tenantOf), c)
		}
		for _, m := range append(msgs, msgs...) { // the end of a job that has ended frees nothing
			b.End(m)
		}
		b.End(&nats.Msg{})
		if x.running != c.afterRun || x.spare != c.afterSpare || len(b.tenantOf) != 0 || b.freed != c.freedEnd ||
			x.tokens != c.tokenEnd {
			t.Errorf("%s, ended: %+v, %d jobs, freed %d times; want %+v", name, x, len(b.tenantOf), b.freed, c)
		}
	}
	// The slot of a job that ends is not free when the account has it no more.
	b := newBench(t)
	b.quotas["a"] = wire.Quota{Concurrency: 2}
	x := b.tenant("a")
	x.spare, x.granted = 2, 2
	one, two := &nats.Msg{}, &nats.Msg{}
	b.Began(s, b.Reserve(s, 2), []*nats.Msg{one, two})
	x.granted = 1
	if b.End(one); x.spare != 0 || x.running != 1 || b.freed != 0 {
		t.Errorf("%+v", x)
	}
	if b.End(two); x.spare != 1 || x.running != 0 || b.freed != 1 {
		t.Errorf("%+v", x)
	}
}

// TestLimiterSlots: after reservations, deliveries and ends in any order, a slot is used or spare,
// never both, and the worker has no more slots than it was granted.
func TestLimiterSlots(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t)
		b.quotas["a"] = wire.Quota{Concurrency: 1 + r.IntN(6), Rate: 1}
		s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Tenant: "a"}
		x := b.tenant("a")
		x.spare, x.granted, x.tokens = b.quotas["a"].Concurrency, b.quotas["a"].Concurrency, 100
		var at []*nats.Msg
		begun := 0
		for range 60 {
			if r.IntN(2) == 0 {
				n := b.Reserve(s, r.IntN(8))
				msgs := make([]*nats.Msg, r.IntN(n+1))
				for i := range msgs {
					msgs[i] = &nats.Msg{}
				}
				b.Began(s, n, msgs)
				at, begun = append(at, msgs...), begun+len(msgs)
			} else if len(at) > 0 {
				i := r.IntN(len(at))
				b.End(at[i])
				at = slices.Delete(at, i, i+1)
			}
			if x.running != len(at) || x.running+x.spare != x.granted || x.spare < 0 || x.tokens != 100-begun ||
				len(b.tenantOf) != len(at) {
				t.Fatalf("seed %d: %d jobs, %d begun, %+v", seed, len(at), begun, x)
			}
		}
	}
}

// change is an account as a watch of the bucket tells it.
type change struct {
	jetstream.KeyValueEntry
	key, value string
	revision   uint64
	at         time.Time
}

func (c change) Key() string        { return c.key }
func (c change) Value() []byte      { return []byte(c.value) }
func (c change) Revision() uint64   { return c.revision }
func (c change) Created() time.Time { return c.at }

// TestLimiterChanged: of the accounts of its pool a limiter learns the latest, sets its clock by
// their stamps, and gives up the jobs whose slots are gone.
func TestLimiterChanged(t *testing.T) {
	b := newBench(t)
	b.quotas["a"] = wire.Quota{Concurrency: 3}
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Tenant: "a"}
	for _, key := range []string{"gpu.a", "cpu.", "cpu", "other"} {
		if b.changed(change{key: key, revision: 9, at: time.Now()}); len(b.tenants) != 0 {
			t.Errorf("%s is an account of this pool", key)
		}
	}
	tell := func(revision uint64, value string) *tenant {
		b.changed(change{key: "cpu.a", value: value, revision: revision, at: b.clock.start.Add(-time.Hour)})
		return b.tenants["a"]
	}
	x := tell(5, `{"v":1,"tokens":1,"holders":{"me":{"slots":2,"beat":1}}}`)
	if x.revision != 5 || x.record.Holders["me"].Slots != 2 || b.woken() {
		t.Errorf("%+v", x)
	}
	x.wanted[s] = 1
	for _, revision := range []uint64{4, 5} {
		if tell(revision, `{"v":1,"tokens":7}`); x.revision != 5 || x.record.Tokens != 1 || !b.woken() {
			t.Errorf("revision %d: %+v", revision, x)
		}
	}
	if tell(6, "["); x.revision != 6 || x.record.Version != 0 || len(x.record.Holders) != 0 {
		t.Errorf("an account that is not valid: %+v", x)
	}
	x.granted, x.spare = 2, 1
	if tell(7, `{"v":1,"tokens":0,"holders":{"me":{"slots":2}}}`); x.granted != 2 || x.spare != 1 {
		t.Errorf("the slots that it has are lost: %+v", x)
	}
	mine, other := &nats.Msg{}, &nats.Msg{}
	b.tenantOf[mine], b.tenantOf[other] = "a", "b"
	causes := map[*nats.Msg]error{}
	for _, m := range []*nats.Msg{mine, other} {
		b.held.Add(m)
		b.held.OnLost(m, func(err error) { causes[m] = err })
	}
	if tell(8, `{"v":1,"tokens":0,"holders":{"me":{"slots":1}}}`); x.granted != 0 || x.spare != 0 {
		t.Errorf("slots that are gone: %+v", x)
	}
	if err := causes[mine]; !errors.Is(err, ErrSlotLost) ||
		err.Error() != "tenant a: "+ErrSlotLost.Error() ||
		causes[other] != nil {
		t.Errorf("%v, %v", causes[mine], causes[other])
	}
	before := b.clock.ahead
	b.mu.Lock()
	stamp := b.clock.now().Add(time.Hour)
	b.mu.Unlock()
	b.changed(change{key: "cpu.a", value: "", revision: 1, at: stamp})
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.clock.now(); b.clock.ahead-before < 59*time.Minute || now.Before(stamp) ||
		now.Sub(stamp) > time.Minute ||
		b.clock.at == 0 {
		t.Errorf("the clock is at %v behind a stamp of %v", now, stamp)
	}
}

// TestLimiterClock: the clock of a limiter is never ahead of the server's by what two clocks may
// part.
func TestLimiterClock(t *testing.T) {
	b := newBench(t)
	b.clock.start = time.Now().Add(-5000 * time.Second)
	for seen, want := range map[time.Duration]time.Duration{
		0: time.Second, 2500 * time.Second: 500 * time.Millisecond,
		5000 * time.Second: 0,
	} {
		b.clock.at, b.clock.ahead = seen, time.Minute
		here := time.Now().Add(time.Minute)
		behind := here.Sub(b.clock.now())
		if took := time.Since(here.Add(-time.Minute)); (behind - want).Abs() > took+10*time.Millisecond {
			t.Errorf("%v after a stamp it is %v behind, want %v", 5000*time.Second-seen, behind, want)
		}
	}
}

// TestLimiterClose: slots and tokens of a limiter that ends are on the account again, and one that
// has none writes nothing.
func TestLimiterClose(t *testing.T) {
	c := jobstest.Connected(t, natsconn.Open)
	ctx := t.Context()
	kv, err := c.JS.KeyValue(ctx, wire.TenantBucket)
	if err != nil {
		t.Fatal(err)
	}
	b := benchOn(t, c)
	b.quotas["a"], b.quotas["b"] = wire.Quota{Concurrency: 2, Rate: 0.001, Burst: 5},
		wire.Quota{Rate: 0.001, Burst: 5}
	b.quotas["c"] = b.quotas["a"]
	for name, d := range map[string]wire.Demand{"a": {MoreSlots: 2, MoreTokens: 2}, "b": {MoreTokens: 3}} {
		if got, err := b.write(ctx, name, b.tenant(name), d); !got || err != nil {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
	}
	b.tenant("c")
	read := func(name string) wire.QuotaRecord {
		t.Helper()
		e, err := kv.Get(ctx, "cpu."+name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return wire.QuotaRecord{}
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := wire.ParseQuotaRecord(e.Value())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a, b := read("a"), read("b"); a.Slots() != 2 || int(a.Tokens) != 3 || int(b.Tokens) != 2 {
		t.Fatalf("%+v, %+v", a, b)
	}
	b.Close()
	if a, b, c := read("a"), read("b"), read("c"); a.Slots() != 0 || int(a.Tokens) != 5 || int(b.Tokens) != 5 ||
		c.Version != 0 {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
}

// TestCutPool: the key of a record names its pool and its tenant.
func TestCutPool(t *testing.T) {
	if name, ok := cutPool("cpu", "cpu.a"); name != "a" || !ok {
		t.Error(name, ok)
	}
	for _, key := range []string{"cpu.", "cpu", "gpu.a", "cpux.a", ""} {
		if name, ok := cutPool("cpu", key); ok {
			t.Errorf("%s is an account of %s", key, name)
		}
	}
}
