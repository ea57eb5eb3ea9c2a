package wire

import (
	"encoding/json"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// QuotaRecord is what the workers of a pool have of one tenant's quota, as the server stores it.
// Every change is a compare-and-set of the whole record, so the numbers stay right whatever process
// dies.
type QuotaRecord struct {
	Version int `json:"v"`
	// Holders are the workers with slots, by their ids. A slot is a job that runs or may begin.
	Holders map[string]Holder `json:"holders,omitempty"`
	// Tokens may be taken. They are counted up to At, by the server's clock. All tokens ever taken
	// are at most the burst plus the rate up to At. So workers whose clocks differ cannot take more
	// than the latest clock allows.
	Tokens float64   `json:"tokens"`
	At     time.Time `json:"at,omitzero"`
}

// Holder is the part of one worker. Beat changes as long as the worker lives.
type Holder struct {
	Slots int    `json:"slots"`
	Beat  uint64 `json:"beat"`
}

// maxSlots bounds the slots of a holder: it is the largest limit of concurrency.
const maxSlots = 10_000

// ParseQuotaRecord reads a record as it is stored; empty data are an empty record. A record that no
// worker can have written is a *jobs.Error: negative slots would let others exceed the limit, and
// negative tokens would stop the tenant for ever.
func ParseQuotaRecord(data []byte) (r QuotaRecord, err error) {
	if len(data) == 0 { // it was removed
		return r, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return QuotaRecord{}, jobs.Errorf(jobs.CodeInvalid, "account: %v", err)
	}
	if r.Version != jobs.Version {
		return QuotaRecord{}, jobs.Errorf(jobs.CodeVersion,
			"account speaks protocol version %d, this agent %d: update the older side", r.Version, jobs.Version)
	}
	if r.Tokens < 0 {
		return QuotaRecord{}, jobs.Errorf(jobs.CodeInvalid, "account: %v tokens: use 0 or more", r.Tokens)
	}
	for id, h := range r.Holders {
		if h.Slots < 0 || h.Slots > maxSlots {
			return QuotaRecord{}, jobs.Errorf(jobs.CodeInvalid, "account: %d slots of %s: use 0 to %d", h.Slots, id,
				maxSlots)
		}
	}
	return r, nil
}

// clockStep is how far a record may be ahead of the clock. A record further ahead proves that the
// clock was set back.
const clockStep = time.Minute

// refill adds the tokens that came since At, up to the burst.
func (r *QuotaRecord) refill(q Quota, now time.Time) {
	switch {
	case r.At.IsZero():
		r.Tokens, r.At = q.Burst, now
	case r.At.Sub(now) > clockStep:
		r.At = now
	case now.After(r.At):
		r.Tokens, r.At = r.Tokens+q.Rate*now.Sub(r.At).Seconds(), now
	}
	r.Tokens = math.Min(r.Tokens, q.Burst)
}

// Slots returns the number of slots of all holders.
func (r *QuotaRecord) Slots() (n int) {
	for _, h := range r.Holders {
		n += h.Slots
	}
	return n
}

// Demand is what one worker has and wants.
type Demand struct {
	Worker       string   // its id
	Slots        int      // that it has and keeps
	ReturnTokens int      // that it gives back
	MoreSlots    int      // that it wants; 0 for none
	MoreTokens   int      // that it wants; 0 for none
	Beat         bool     // it must show that it lives
	Dead         []string // holders that it has found dead
}

// Apply returns the record after a demand, and the slots and tokens that the worker gets. If it
// wants both and either is missing, it gets neither. write is false if there is nothing to store. r
// does not change, and next shares no map with it.
func (r QuotaRecord) Apply(q Quota, now time.Time, d Demand) (next QuotaRecord, slots, tokens int, write bool) {
	next = QuotaRecord{Version: jobs.Version, Holders: map[string]Holder{}, Tokens: r.Tokens, At: r.At}
	for id, h := range r.Holders {
		next.Holders[id] = h
	}
	for _, id := range d.Dead {
		if _, ok := next.Holders[id]; ok && id != d.Worker {
			delete(next.Holders, id)
			write = true
		}
	}
	mine := next.Holders[d.Worker]
	if q.Rate > 0 {
		next.Tokens += float64(d.ReturnTokens)
		next.refill(q, now)
		if d.MoreTokens > 0 && next.Tokens >= q.slice() {
			tokens = int(math.Min(next.Tokens, math.Max(float64(d.MoreTokens), q.slice())))
		}
	}
	if q.Concurrency > 0 && d.MoreSlots > 0 {
		slots = max(0, min(d.MoreSlots, q.Concurrency-(next.Slots()-mine.Slots)-d.Slots))
	}
	if d.MoreSlots > 0 && slots == 0 || d.MoreTokens > 0 && tokens == 0 {
		slots, tokens = 0, 0
	}
	next.Tokens -= float64(tokens)
	write = write || slots+tokens > 0 || d.ReturnTokens > 0 && q.Rate > 0 || d.Beat || d.Slots+slots != mine.Slots
	if n := d.Slots + slots; n > 0 {
		next.Holders[d.Worker] = Holder{n, mine.Beat + 1}
	} else {
		delete(next.Holders, d.Worker)
	}
	return next, slots, tokens, write
}

// Wait returns how long it takes until there are enough tokens for a write, at most one hour.
func (r QuotaRecord) Wait(q Quota, now time.Time) time.Duration {
	r.refill(q, now)
	s := (q.slice()-r.Tokens)/q.Rate + r.At.Sub(now).Seconds()
	return time.Duration(math.Min(math.Max(s, 0), 3600) * float64(time.Second))
}
