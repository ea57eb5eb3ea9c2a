package doctor

import (
	"sync"
	"time"
)

// Fault is a check that found something that somebody should look at.
type Fault struct {
	Result
	// Since is when the check began to find it.
	Since time.Time `json:"since"`
}

// Faults follows the checks of a cluster over time. Its methods may be called concurrently.
type Faults struct {
	mu    sync.Mutex
	since map[string]time.Time // by check
}

// Of returns the faults of a cluster in the order of their causes: what explains others comes
// first. While the servers do not answer there is that one fault, because the rest of the state is
// old.
func (k *Faults) Of(f *Facts) []Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, since := []Fault{}, map[string]time.Time{}
	for _, c := range checks() {
		if c.category == "security" || c.category == "machine" || f.Error != "" && c.id != "nats-reachable" {
			continue
		}
		r := c.run(f)
		if r.Level != Failed && r.Level != Warn {
			continue
		}
		r.ID, r.Category = c.id, c.category
		at, ok := k.since[c.id]
		if !ok {
			at = f.At.UTC()
			if f.Error != "" && f.State != nil && !f.State.Since.IsZero() {
				at = f.State.Since
			}
		}
		since[c.id] = at
		r.Details = r.Details[:min(len(r.Details), mostDetails)]
		all = append(all, Fault{r, at})
	}
	k.since = since
	return all
}
