package natsq

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAccount: whatever workers ask for, and whatever they think the time is, the slots out are never more than the limit and the tokens
// taken never more than the burst and what came up to the latest of those times. What is there is given.
func TestAccount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := quota{
			rate: rapid.SampledFrom([]float64{0, 0.5, 3, 250}).Draw(rt, "rate"), burst: float64(rapid.IntRange(1, 40).Draw(rt, "burst")),
			concurrency: rapid.IntRange(0, 6).Draw(rt, "concurrency"),
		}
		begin := time.Unix(1_800_000_000, 0)
		latest, now := begin, begin
		var a account
		have := map[string]int{}
		taken := 0
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
			seen := now.Add(-time.Duration(rapid.IntRange(0, 2000).Draw(rt, "behind")) * time.Millisecond)
			me := fmt.Sprint("w", rapid.IntRange(0, 3).Draw(rt, "worker"))
			d := demand{me: me, beat: rapid.Bool().Draw(rt, "beat")}
			if q.concurrency > 0 {
				d.slots = rapid.IntRange(0, have[me]).Draw(rt, "kept")
				d.more = rapid.IntRange(0, 8).Draw(rt, "more")
			}
			if q.rate > 0 {
				d.take = rapid.IntRange(0, 8).Draw(rt, "take")
			}
			if rapid.IntRange(0, 9).Draw(rt, "death") == 0 {
				d.dead = []string{"w0"}
			}
			if latest.Before(seen) || a.At.IsZero() {
				latest = seen
			}
			if a.At.IsZero() {
				begin = seen
			}
			next, slots, tokens, write := a.apply(q, seen, d)
			if !write {
				if slots+tokens > 0 || next.slots() != a.slots() {
					rt.Fatalf("something changed without a write: %+v", d)
				}
				continue
			}
			a = next
			for _, id := range d.dead {
				if id != me {
					have[id] = 0
				}
			}
			have[me] = d.slots + slots
			taken += tokens
			if sum := have["w0"] + have["w1"] + have["w2"] + have["w3"]; sum != a.slots() || q.concurrency > 0 && sum > q.concurrency {
				rt.Fatalf("%v with %d allowed, the account says %d", have, q.concurrency, a.slots())
			}
			if most := q.burst + q.rate*latest.Sub(begin).Seconds(); float64(taken) > most+1e-3 || a.Tokens < -1e-9 || a.Tokens > q.burst {
				rt.Fatalf("%d taken of %v, %v left", taken, most, a.Tokens)
			}
			if d.more > 0 && d.take == 0 && slots == 0 && a.slots() < q.concurrency {
				rt.Fatalf("no slot of %d with %v", q.concurrency, have)
			}
		}
		if q.rate > 0 { // what has come is there
			if p := a.pause(q, now); p > 0 {
				now = now.Add(p + time.Millisecond)
			}
			if _, _, tokens, _ := a.apply(q, now, demand{me: "late", take: 1}); tokens == 0 {
				rt.Fatalf("no token after the pause: %+v", a)
			}
		}
	})
}

// TestAccountStep: a clock that was set back by an hour does not hold a tenant up for one.
func TestAccountStep(t *testing.T) {
	q := quota{rate: 1, burst: 1}
	now := time.Unix(1_800_000_000, 0)
	a, _, n, _ := account{}.apply(q, now.Add(time.Hour), demand{me: "w", take: 1})
	if n != 1 {
		t.Fatalf("%d tokens of a new account", n)
	}
	a, _, _, _ = a.apply(q, now, demand{me: "w", beat: true})
	if _, _, n, _ = a.apply(q, now.Add(time.Second), demand{me: "w", take: 1}); n != 1 {
		t.Fatalf("%+v", a)
	}
}

// TestAccountOver: workers that have more slots than a lowered limit allows keep them, and nobody gets another before they are back.
func TestAccountOver(t *testing.T) {
	q := quota{concurrency: 2}
	a, n, _, _ := account{}.apply(quota{concurrency: 5}, time.Now(), demand{me: "a", more: 9})
	if n != 5 {
		t.Fatalf("%d slots of 5", n)
	}
	if _, n, _, write := a.apply(q, time.Now(), demand{me: "b", more: 1}); n != 0 || write {
		t.Fatalf("%d slots", n)
	}
	a, _, _, _ = a.apply(q, time.Now(), demand{me: "a", slots: 1})
	if _, n, _, _ = a.apply(q, time.Now(), demand{me: "b", more: 3}); n != 1 {
		t.Fatalf("%d slots", n)
	}
}
