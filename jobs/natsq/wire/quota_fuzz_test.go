package wire

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// FuzzLimits: for any records of a tenant, no worker gets more than the limits allow.
func FuzzLimits(f *testing.F) {
	f.Add([]byte(`{"v":1,"concurrency":8,"rate":5,"burst":3}`),
		[]byte(`{"v":1,"holders":{"w":{"slots":3,"beat":17}},"tokens":4.5,"at":"2026-01-31T12:00:00Z"}`), uint16(4),
		uint16(2), uint16(1))
	f.Add([]byte(`{"v":1,"rate":1e400}`),
		[]byte(`{"v":1,"holders":{"x":{"slots":-9000000000000000000}},"tokens":-1e308,"at":"9999-12-31T00:00:00Z"}`),
		uint16(1), uint16(1), uint16(0))
	f.Add([]byte(`{"v":1,"weight":0.01,"concurrency":1,"rate":0.001}`),
		[]byte(`{"v":1,"holders":{"x":{"slots":9999}},"tokens":1e308,"at":"0001-01-01T00:00:01Z"}`), uint16(1),
		uint16(1), uint16(9))
	f.Add([]byte(`{"v":1,"concurrency":8}`), []byte(`{"v":1,"holders":{"x":{"slots":-100}}}`), uint16(20), uint16(0),
		uint16(0))
	f.Add([]byte(`{"v":1}`),
		[]byte(`{"v":1,"holders":{"x":{"slots":9223372036854775807},"y":{"slots":9223372036854775807}}}`), uint16(1),
		uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, limits, acc []byte, more, take, has uint16) {
		l, err := schema.ParseLimits(limits)
		typed(t, err)
		a, err := ParseQuotaRecord(acc)
		typed(t, err)
		if l.Validate() != nil {
			l = jobs.Limits{Version: jobs.Version}
		}
		q := QuotaOf(l)
		now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
		next, slots, tokens, _ := a.Apply(q, now, Demand{
			Worker: "me", Slots: int(has), MoreSlots: int(more),
			MoreTokens: int(take),
		})
		others := 0
		for id, h := range a.Holders {
			if id != "me" {
				others += max(0, h.Slots)
			}
		}
		switch {
		case slots < 0 || tokens < 0 || math.IsNaN(next.Tokens) || q.Rate > 0 && next.Tokens < 0:
			t.Fatalf("%d slots, %d tokens of %+v: %+v", slots, tokens, a, next)
		case slots > 0 && (q.Concurrency == 0 || others+int(has)+slots > q.Concurrency):
			t.Fatalf("%d slots beside %d of others: %+v", slots, others, q)
		case float64(tokens) > q.Burst:
			t.Fatalf("%d tokens of a burst of %v", tokens, q.Burst)
		}
		if d := next.Wait(Quota{Rate: 1, Burst: 1}, now); d < 0 || d > time.Hour {
			t.Fatalf("a pause of %v", d)
		}
	})
}

// typed fails unless err, when there is one, is of a class that its receiver can act on.
func typed(t *testing.T, err error) {
	t.Helper()
	var e *jobs.Error
	var s *schema.Error
	if err != nil && !errors.As(err, &s) && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid &&
		e.Code != jobs.CodeVersion) {
		t.Fatalf("an error of no class: %v", err)
	}
}
