package wire

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

func ptr[T any](v T) *T { return &v }

// TestQuota: what limits come to, and when workers need the account.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		l     jobs.Limits
		want  Quota
		held  bool
		slice float64
	}{
		{jobs.Limits{}, Quota{Weight: 1, Burst: 1}, false, 1},
		{jobs.Limits{Weight: ptr(2.5), Queued: ptr(7)}, Quota{Weight: 2.5, Burst: 1, Queued: 7}, false, 1},
		{jobs.Limits{Concurrency: ptr(3)}, Quota{Weight: 1, Burst: 1, Concurrency: 3}, true, 1},
		{jobs.Limits{Rate: ptr(0.5)}, Quota{Weight: 1, Rate: 0.5, Burst: 1}, true, 1},
		{jobs.Limits{Rate: ptr(1.5)}, Quota{Weight: 1, Rate: 1.5, Burst: 2}, true, 1},
		{jobs.Limits{Rate: ptr(29.0)}, Quota{Weight: 1, Rate: 29, Burst: 29}, true, 2},
		{jobs.Limits{Rate: ptr(250.0)}, Quota{Weight: 1, Rate: 250, Burst: 250}, true, 25},
		{jobs.Limits{Rate: ptr(250.0), Burst: ptr(7)}, Quota{Weight: 1, Rate: 250, Burst: 7}, true, 7},
		{jobs.Limits{Rate: ptr(3.0), Burst: ptr(0)}, Quota{Weight: 1, Rate: 3, Burst: 3}, true, 1},
		{jobs.Limits{Rate: ptr(3.0), Burst: ptr(1)}, Quota{Weight: 1, Rate: 3, Burst: 1}, true, 1},
		{jobs.Limits{Rate: ptr(0.0)}, Quota{Weight: 1, Burst: 1}, false, 1},
	} {
		q := QuotaOf(c.l)
		if q != c.want || q.Limited() != c.held || q.slice() != c.slice {
			t.Errorf("%+v: held %v, slice %v, want %+v, %v, %v", q, q.Limited(), q.slice(), c.want, c.held, c.slice)
		}
	}
}

// TestParse: an account that no worker can have written is refused, and nothing is an account of
// nothing.
func TestParse(t *testing.T) {
	at := time.Unix(1_800_000_000, 0).UTC()
	for text, want := range map[string]QuotaRecord{
		"":                   {},
		`{"v":1,"tokens":0}`: {Version: 1},
		`{"v":1,"tokens":1.5,"at":"2027-01-15T08:00:00Z","holders":{"a":{"slots":0,"beat":7},"b":{"slots":10000,` +
			`"beat":0}}}`: {Version: 1, Tokens: 1.5, At: at, Holders: map[string]Holder{"a": {0, 7}, "b": {10000, 0}}},
	} {
		if jobs.Version != 1 {
			text, want.Version = strings.Replace(text, `"v":1`, fmt.Sprintf(`"v":%d`, jobs.Version), 1),
				map[bool]int{true: 0, false: jobs.Version}[text == ""]
		}
		if got, err := ParseQuotaRecord([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	v := fmt.Sprintf(`"v":%d`, jobs.Version)
	for text, c := range map[string]struct {
		code jobs.Code
		want string
	}{
		`{`: {jobs.CodeInvalid, "account: "}, `{"v":99}`: {jobs.CodeVersion, "speaks protocol version 99"},
		`{}`:                          {jobs.CodeVersion, "version 0"},
		`{` + v + `,"tokens":-0.001}`: {jobs.CodeInvalid, "-0.001 tokens"},
		`{` + v + `,"holders":{"a":{"slots":-1}}}`:    {jobs.CodeInvalid, "-1 slots of a: use 0 to 10000"},
		`{` + v + `,"holders":{"a":{"slots":10001}}}`: {jobs.CodeInvalid, "10001 slots of a"},
	} {
		var e *jobs.Error
		if got, err := ParseQuotaRecord([]byte(text)); !errors.As(err, &e) || e.Code != c.code ||
			!strings.Contains(err.Error(), c.want) || !reflect.DeepEqual(got, QuotaRecord{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestRecordRefill: tokens come with the time up to the burst, and neither a clock that is behind
// nor one that was set back takes any.
func TestRecordRefill(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	q := Quota{Rate: 2, Burst: 10}
	for name, c := range map[string]struct {
		a      QuotaRecord
		tokens float64
		at     time.Time
	}{
		"new":          {QuotaRecord{}, 10, now},
		"now":          {QuotaRecord{Tokens: 3, At: now}, 3, now},
		"a second":     {QuotaRecord{Tokens: 3, At: now.Add(-time.Second)}, 5, now},
		"full":         {QuotaRecord{Tokens: 3, At: now.Add(-time.Hour)}, 10, now},
		"too many":     {QuotaRecord{Tokens: 30, At: now}, 10, now},
		"behind":       {QuotaRecord{Tokens: 3, At: now.Add(time.Second)}, 3, now.Add(time.Second)},
		"a minute":     {QuotaRecord{Tokens: 3, At: now.Add(time.Minute)}, 3, now.Add(time.Minute)},
		"set back":     {QuotaRecord{Tokens: 3, At: now.Add(time.Minute + 1)}, 3, now},
		"half a token": {QuotaRecord{Tokens: 0, At: now.Add(-250 * time.Millisecond)}, 0.5, now},
	} {
		if c.a.refill(q, now); c.a.Tokens != c.tokens || !c.a.At.Equal(c.at) {
			t.Errorf("%s: %v tokens at %v, want %v at %v", name, c.a.Tokens, c.a.At, c.tokens, c.at)
		}
	}
}

// TestRecordApply: what an account grants and what it writes, demand by demand.
func TestRecordApply(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	both, slots, rate := Quota{Rate: 1, Burst: 5, Concurrency: 3}, Quota{Concurrency: 3, Burst: 1},
		Quota{Rate: 1, Burst: 5}
	fast := Quota{Rate: 100, Burst: 100} // a slice is 10 tokens
	holders := func(pairs ...any) map[string]Holder {
		all := map[string]Holder{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i].(string)] = Holder{pairs[i+1].(int), 1}
		}
		return all
	}
	for name, c := range map[string]struct {
		q             Quota
		have          map[string]Holder
		tokens        float64
		d             Demand
		slots, take   int
		write         bool
		left          float64
		mine, holders int // slots of the worker, and holders, afterwards
	}{
		"nothing": {
			slots, holders("me", 1, "b", 1), 0,
			Demand{Worker: "me", Slots: 1},
			0, 0, false, 0, 1,
			2,
		},
		"a beat": {
			slots, holders("me", 1), 0,
			Demand{Worker: "me", Slots: 1, Beat: true},
			0, 0, true, 0,
			1, 1,
		},
		"a slot":              {slots, holders("b", 1), 0, Demand{Worker: "me", MoreSlots: 1}, 1, 0, true, 0, 1, 2},
		"more than there are": {slots, holders("b", 1), 0, Demand{Worker: "me", MoreSlots: 9}, 2, 0, true, 0, 2, 2},
		"beside its own": {
			slots, holders("me", 1, "b", 1), 0,
			Demand{Worker: "me", Slots: 1, MoreSlots: 9},
			1, 0,
			true, 0, 2, 2,
		},
		"none is left":      {slots, holders("b", 3), 0, Demand{Worker: "me", MoreSlots: 1}, 0, 0, false, 0, 0, 1},
		"too many are out":  {slots, holders("b", 5), 0, Demand{Worker: "me", MoreSlots: 1}, 0, 0, false, 0, 0, 1},
		"it gives one back": {slots, holders("me", 2), 0, Demand{Worker: "me", Slots: 1}, 0, 0, true, 0, 1, 1},
		"it gives all back": {slots, holders("me", 2), 0, Demand{Worker: "me"}, 0, 0, true, 0, 0, 0},
		"it lost some":      {slots, holders("b", 1), 0, Demand{Worker: "me", Slots: 2}, 0, 0, true, 0, 2, 2},
		"the dead": {
			slots, holders("b", 3), 0,
			Demand{Worker: "me", MoreSlots: 1, Dead: []string{"b"}},
			1,
			0, true, 0, 1, 1,
		},
		"not itself": {
			slots, holders("me", 1), 0,
			Demand{Worker: "me", Slots: 1, Dead: []string{"me"}},
			0, 0,
			false, 0, 1, 1,
		},
		"the unknown dead": {
			slots, holders("me", 1), 0,
			Demand{Worker: "me", Slots: 1, Dead: []string{"x"}},
			0, 0,
			false, 0, 1, 1,
		},
		"without a limit": {
			Quota{Burst: 1},
			nil, 3,
			Demand{Worker: "me", MoreSlots: 1, MoreTokens: 1, ReturnTokens: 2},
			0, 0, false, 3, 0, 0,
		},
		"a token":              {rate, nil, 1, Demand{Worker: "me", MoreTokens: 1}, 0, 1, true, 0, 0, 0},
		"half a token":         {rate, nil, 0.5, Demand{Worker: "me", MoreTokens: 1}, 0, 0, false, 0.5, 0, 0},
		"as many as there are": {rate, nil, 2.5, Demand{Worker: "me", MoreTokens: 4}, 0, 2, true, 0.5, 0, 0},
		"tokens come back":     {rate, nil, 1, Demand{Worker: "me", ReturnTokens: 2}, 0, 0, true, 3, 0, 0},
		"beyond the burst":     {rate, nil, 4, Demand{Worker: "me", ReturnTokens: 2}, 0, 0, true, 5, 0, 0},
		"back and taken": {
			rate, nil, 0,
			Demand{Worker: "me", ReturnTokens: 2, MoreTokens: 1},
			0, 1, true, 1, 0,
			0,
		},
		"a slice":              {fast, nil, 50, Demand{Worker: "me", MoreTokens: 1}, 0, 10, true, 40, 0, 0},
		"exactly a slice":      {fast, nil, 10, Demand{Worker: "me", MoreTokens: 1}, 0, 10, true, 0, 0, 0},
		"less than a slice":    {fast, nil, 9, Demand{Worker: "me", MoreTokens: 1}, 0, 0, false, 9, 0, 0},
		"more than a slice":    {fast, nil, 50, Demand{Worker: "me", MoreTokens: 20}, 0, 20, true, 30, 0, 0},
		"both":                 {both, nil, 5, Demand{Worker: "me", MoreSlots: 2, MoreTokens: 2}, 2, 2, true, 3, 2, 1},
		"no token, so no slot": {both, nil, 0, Demand{Worker: "me", MoreSlots: 2, MoreTokens: 2}, 0, 0, false, 0, 0, 0},
		"no slot, so no token": {
			both, holders("b", 3), 5,
			Demand{Worker: "me", MoreSlots: 2, MoreTokens: 2},
			0, 0,
			false, 5, 0, 1,
		},
		"a slot alone":  {both, nil, 0, Demand{Worker: "me", MoreSlots: 1}, 1, 0, true, 0, 1, 1},
		"a token alone": {both, holders("b", 3), 5, Demand{Worker: "me", MoreTokens: 1}, 0, 1, true, 4, 0, 1},
	} {
		a := QuotaRecord{Version: jobs.Version, Holders: c.have, Tokens: c.tokens, At: now}
		next, s, n, write := a.Apply(c.q, now, c.d)
		if s != c.slots || n != c.take || write != c.write {
			t.Errorf("%s: %d slots, %d tokens, write %v; want %d, %d, %v", name, s, n, write, c.slots, c.take, c.write)
		}
		if math.Abs(next.Tokens-c.left) > 1e-9 || next.Holders[c.d.Worker].Slots != c.mine ||
			len(next.Holders) != c.holders || next.Version != jobs.Version || !next.At.Equal(now) {
			t.Errorf("%s: %+v, want %v tokens, %d slots, %d holders", name, next, c.left, c.mine, c.holders)
		}
		if h, ok := next.Holders[c.d.Worker]; ok && h.Beat != c.have[c.d.Worker].Beat+1 {
			t.Errorf("%s: beat %d behind %d", name, h.Beat, c.have[c.d.Worker].Beat)
		}
	}
}

// TestRecordPause: how long until a slice of tokens is there, an hour at most.
func TestRecordPause(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		q    Quota
		a    QuotaRecord
		want time.Duration
	}{
		"there":     {Quota{Rate: 2, Burst: 10}, QuotaRecord{Tokens: 1, At: now}, 0},
		"half":      {Quota{Rate: 2, Burst: 10}, QuotaRecord{Tokens: 0, At: now}, 500 * time.Millisecond},
		"a slice":   {Quota{Rate: 100, Burst: 100}, QuotaRecord{Tokens: 5, At: now}, 50 * time.Millisecond},
		"behind":    {Quota{Rate: 2, Burst: 10}, QuotaRecord{At: now.Add(time.Second)}, 1500 * time.Millisecond},
		"very slow": {Quota{Rate: 1e-6, Burst: 1}, QuotaRecord{Tokens: 0, At: now}, time.Hour},
	} {
		if got := c.a.Wait(c.q, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
