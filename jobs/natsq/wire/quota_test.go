package wire

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRecord: for any demands at any clocks, the granted slots never exceed the limit, and the
// taken tokens never exceed the burst plus the tokens up to the latest clock. What is there is
// given.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := Quota{
			Rate:        rapid.SampledFrom([]float64{0, 0.5, 3, 250}).Draw(rt, "rate"),
			Burst:       float64(rapid.IntRange(1, 40).Draw(rt, "burst")),
			Concurrency: rapid.IntRange(0, 6).Draw(rt, "concurrency"),
		}
		begin := time.Unix(1_800_000_000, 0)
		latest, now := begin, begin
		var a QuotaRecord
		have := map[string]int{}
		taken := 0
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
			seen := now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(rt, "behind")) * time.Millisecond)
			me := fmt.Sprint("w", rapid.IntRange(0, 3).Draw(rt, "worker"))
			d := Demand{Worker: me, Beat: rapid.Bool().Draw(rt, "beat")}
			if q.Concurrency > 0 {
				d.Slots = rapid.IntRange(0, have[me]).Draw(rt, "kept")
				d.MoreSlots = rapid.IntRange(0, 8).Draw(rt, "more")
			}
			if q.Rate > 0 {
				d.MoreTokens = rapid.IntRange(0, 8).Draw(rt, "take")
			}
			if rapid.IntRange(0, 9).Draw(rt, "death") == 0 {
				d.Dead = []string{"w0"}
			}
			if latest.Before(seen) || a.At.IsZero() {
				latest = seen
			}
			if a.At.IsZero() {
				begin = seen
			}
			next, slots, tokens, write := a.Apply(q, seen, d)
			if !write {
				if slots+tokens > 0 || next.Slots() != a.Slots() {
					rt.Fatalf("something changed without a write: %+v", d)
				}
				continue
			}
			a = next
			for _, id := range d.Dead {
				if id != me {
					have[id] = 0
				}
			}
			have[me] = d.Slots + slots
			taken += tokens
			if sum := have["w0"] + have["w1"] + have["w2"] + have["w3"]; sum != a.Slots() || q.Concurrency > 0 &&
				sum > q.Concurrency {
				rt.Fatalf("%v with %d allowed, the account says %d", have, q.Concurrency, a.Slots())
			}
			if most := q.Burst + q.Rate*latest.Sub(begin).Seconds(); float64(taken) > most+1e-3 || a.Tokens < -1e-9 ||
				a.Tokens > q.Burst {
				rt.Fatalf("%d taken of %v, %v left", taken, most, a.Tokens)
			}
			if d.MoreSlots > 0 && d.MoreTokens == 0 && slots == 0 && a.Slots() < q.Concurrency {
				rt.Fatalf("no slot of %d with %v", q.Concurrency, have)
			}
		}
		if q.Rate > 0 { // what has come is there
			if p := a.Wait(q, now); p > 0 {
				now = now.Add(p + time.Millisecond)
			}
			if _, _, tokens, _ := a.Apply(q, now, Demand{Worker: "late", MoreTokens: 1}); tokens == 0 {
				rt.Fatalf("no token after the pause: %+v", a)
			}
		}
	})
}

// TestRecordStep: a clock that was set back by an hour does not hold a tenant up for one.
func TestRecordStep(t *testing.T) {
	q := Quota{Rate: 1, Burst: 1}
	now := time.Unix(1_800_000_000, 0)
	a, _, n, _ := QuotaRecord{}.Apply(q, now.Add(time.Hour), Demand{Worker: "w", MoreTokens: 1})
	if n != 1 {
		t.Fatalf("%d tokens of a new account", n)
	}
	a, _, _, _ = a.Apply(q, now, Demand{Worker: "w", Beat: true})
	if _, _, n, _ = a.Apply(q, now.Add(time.Second), Demand{Worker: "w", MoreTokens: 1}); n != 1 {
		t.Fatalf("%+v", a)
	}
}

// TestRecordOver: workers keep slots above a lowered limit, and no worker gets another slot before
// these are returned.
func TestRecordOver(t *testing.T) {
	q := Quota{Concurrency: 2}
	a, n, _, _ := QuotaRecord{}.Apply(Quota{Concurrency: 5}, time.Now(), Demand{Worker: "a", MoreSlots: 9})
	if n != 5 {
		t.Fatalf("%d slots of 5", n)
	}
	if _, n, _, write := a.Apply(q, time.Now(), Demand{Worker: "b", MoreSlots: 1}); n != 0 || write {
		t.Fatalf("%d slots", n)
	}
	a, _, _, _ = a.Apply(q, time.Now(), Demand{Worker: "a", Slots: 1})
	if _, n, _, _ = a.Apply(q, time.Now(), Demand{Worker: "b", MoreSlots: 3}); n != 1 {
		t.Fatalf("%d slots", n)
	}
}
