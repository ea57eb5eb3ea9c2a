package natsq

import (
	"encoding/json"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// quota is what the limits of a tenant come to; 0 is no limit.
type quota struct {
	weight, rate, burst float64
	concurrency, queued int
}

func quotaOf(l jobs.Limits) quota {
	q := quota{weight: 1}
	if l.Weight != nil {
		q.weight = *l.Weight
	}
	if l.Rate != nil {
		q.rate = *l.Rate
	}
	if q.burst = math.Max(1, math.Ceil(q.rate)); l.Burst != nil && *l.Burst > 0 {
		q.burst = float64(*l.Burst)
	}
	if l.Concurrency != nil {
		q.concurrency = *l.Concurrency
	}
	if l.Queued != nil {
		q.queued = *l.Queued
	}
	return q
}

// held says whether workers need the account to begin jobs.
func (q quota) held() bool { return q.rate > 0 || q.concurrency > 0 }

// sliceOf is how long the tokens last that a worker takes at once, where its slots are not more: ten writes a second a worker.
const sliceOf = 100 * time.Millisecond

// slice is the fewest tokens worth a write.
func (q quota) slice() float64 {
	return math.Min(q.burst, math.Max(1, math.Floor(q.rate*sliceOf.Seconds())))
}

// account is what the workers of a pool have of a tenant, as it stands on the server. Each change is a compare-and-set of the whole,
// so the numbers are right whoever dies. It does no I/O.
type account struct {
	Version int `json:"v"`
	// Holders are the workers that have slots, which are jobs that run or may be begun.
	Holders map[string]hold `json:"holders,omitempty"`
	// Tokens may be taken; they were counted up to At, by the server's clock. All that were ever taken are the burst and what came up to At, so
	// workers that disagree about the time cannot take more than belongs to the latest of them.
	Tokens float64   `json:"tokens"`
	At     time.Time `json:"at,omitzero"`
}

// hold is one worker's part. Beat changes as long as the worker lives.
type hold struct {
	Slots int    `json:"slots"`
	Beat  uint64 `json:"beat"`
}

// maxSlots is the most slots of a tenant: the largest limit of concurrency.
const maxSlots = 10_000

// parseAccount reads an account as it is stored. One that no worker can have written is an error: negative slots would let others have more
// than the limit, and negative tokens would stop the tenant for ever.
func parseAccount(data []byte) (a account, err error) {
	if len(data) == 0 { // it was removed
		return a, nil
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return account{}, jobs.Errorf(jobs.CodeInvalid, "account: %v", err)
	}
	if a.Version != jobs.Version {
		return account{}, jobs.Errorf(jobs.CodeVersion, "account speaks protocol version %d, this agent %d: update the older side", a.Version, jobs.Version)
	}
	if a.Tokens < 0 {
		return account{}, jobs.Errorf(jobs.CodeInvalid, "account: %v tokens: use 0 or more", a.Tokens)
	}
	for id, h := range a.Holders {
		if h.Slots < 0 || h.Slots > maxSlots {
			return account{}, jobs.Errorf(jobs.CodeInvalid, "account: %d slots of %s: use 0 to %d", h.Slots, id, maxSlots)
		}
	}
	return a, nil
}

// clockStep is how far the account may be ahead of the clock before the clock is taken to have been set back.
const clockStep = time.Minute

func (a *account) refill(q quota, now time.Time) {
	switch {
	case a.At.IsZero():
		a.Tokens, a.At = q.burst, now
	case a.At.Sub(now) > clockStep:
		a.At = now
	case now.After(a.At):
		a.Tokens, a.At = a.Tokens+q.rate*now.Sub(a.At).Seconds(), now
	}
	a.Tokens = math.Min(a.Tokens, q.burst)
}

func (a *account) slots() (n int) {
	for _, h := range a.Holders {
		n += h.Slots
	}
	return n
}

// demand is what a worker wants of an account.
type demand struct {
	me    string
	slots int      // that it has and keeps
	back  int      // tokens that it gives back
	more  int      // slots that it would like, 0 for none
	take  int      // tokens that it would like, 0 for none
	beat  bool     // it must show that it lives
	dead  []string // holders that do not
}

// apply makes the next account. It gives slots and tokens, or none of either where both are wanted and one is not there. write is
// false when there is nothing to store.
func (a account) apply(q quota, now time.Time, d demand) (next account, slots, tokens int, write bool) {
	next = account{Version: jobs.Version, Holders: map[string]hold{}, Tokens: a.Tokens, At: a.At}
	for id, h := range a.Holders {
		next.Holders[id] = h
	}
	for _, id := range d.dead {
		if _, ok := next.Holders[id]; ok && id != d.me {
			delete(next.Holders, id)
			write = true
		}
	}
	mine := next.Holders[d.me]
	if q.rate > 0 {
		next.Tokens += float64(d.back)
		next.refill(q, now)
		if d.take > 0 && next.Tokens >= q.slice() {
			tokens = int(math.Min(next.Tokens, math.Max(float64(d.take), q.slice())))
		}
	}
	if q.concurrency > 0 && d.more > 0 {
		slots = max(0, min(d.more, q.concurrency-(next.slots()-mine.Slots)-d.slots))
	}
	if d.more > 0 && slots == 0 || d.take > 0 && tokens == 0 {
		slots, tokens = 0, 0
	}
	next.Tokens -= float64(tokens)
	write = write || slots+tokens > 0 || d.back > 0 && q.rate > 0 || d.beat || d.slots+slots != mine.Slots
	if n := d.slots + slots; n > 0 {
		next.Holders[d.me] = hold{n, mine.Beat + 1}
	} else {
		delete(next.Holders, d.me)
	}
	return next, slots, tokens, write
}

// pause is how long until tokens are worth a look.
func (a account) pause(q quota, now time.Time) time.Duration {
	a.refill(q, now)
	s := (q.slice()-a.Tokens)/q.rate + a.At.Sub(now).Seconds()
	return time.Duration(math.Min(math.Max(s, 0), 3600) * float64(time.Second))
}
