package edges

import (
	"fmt"
	"math"
)

// Links says whom each agent has links to: Rows of a list of edges or, if that is nil, links that
// the device generates.
type Links struct {
	// Rows are the edges of a list. They are not changed or kept.
	Rows *Rows
	// Degree is the number of links of an agent. Link k goes to the agent at the distance k/2+1 on the
	// ring of all, ahead if k is even and behind if it is odd. Each link is replaced with the chance
	// Rewire, 0 to 1, by one to a random other agent. Draws depend on Seed.
	Degree int
	Rewire float64
	Seed   uint64
	// Delays of generated links. Rows have delays in the list.
	Delays Delays
}

// Delays are the least and the most ticks that a spike takes over a link, 1 to MaxDelay. The delay
// of each link is a draw between them, both included. The zero value is 1 and 1.
type Delays struct{ Least, Most int }

// Longest returns the longest delay of a link, in ticks. It is 1 if spikes arrive in the next tick.
func (l Links) Longest() int {
	longest := max(1, l.Delays.Most)
	if l.Rows != nil {
		longest = 1
		for _, d := range l.Rows.Delays {
			longest = max(longest, int(d))
		}
	}
	return longest
}

// Count returns the number of links of all agents.
func (l Links) Count(agents int64) int64 {
	if l.Rows != nil {
		return int64(len(l.Rows.Columns))
	}
	return agents * int64(l.Degree)
}

// Before returns the number of links of all agents below id.
func (l Links) Before(id int64) int64 {
	if l.Rows != nil {
		return int64(l.Rows.Offsets[id])
	}
	return id * int64(l.Degree)
}

// MinBytes is the smallest size of a buffer for links. A kernel gets a buffer also where it reads
// nothing.
const MinBytes = 8

// Bytes returns the device memory of all links, in bytes.
func (l Links) Bytes(agents int64) int64 {
	b, offsets, weights := 4*l.Count(agents), int64(0), int64(0)
	if l.Rows != nil {
		offsets, weights = 8*(agents+1), 4*int64(len(l.Rows.Weights))
	}
	return max(MinBytes, b) + max(MinBytes, offsets) + max(MinBytes, weights)
}

// Check returns an error for links that do not fit the number of agents.
func (l Links) Check(agents int64) error {
	if r := l.Rows; r != nil {
		if int64(len(r.Offsets)) != agents+1 || r.Offsets[agents] != uint64(len(r.Columns)) ||
			r.Weights != nil && len(r.Weights) != len(r.Columns) ||
			r.Delays != nil && len(r.Delays) != len(r.Columns) {
			return fmt.Errorf("rows of %d offsets, %d links, %d weights and %d delays for %d agents",
				len(r.Offsets), len(r.Columns), len(r.Weights), len(r.Delays), agents)
		}
		for at, d := range r.Delays {
			if d < 1 || d > MaxDelay {
				return fmt.Errorf("link %d has a delay of %d ticks: use 1 to %d", at, d, MaxDelay)
			}
		}
		return nil
	}
	if d := l.Delays; d != (Delays{}) && (d.Least < 1 || d.Most < d.Least || d.Most > MaxDelay) {
		return fmt.Errorf("delays of %d to %d ticks: use 1 to %d", d.Least, d.Most, MaxDelay)
	}
	switch {
	case l.Degree < 1 || int64(l.Degree) > max(1, agents-1) || l.Degree > math.MaxInt32:
		return fmt.Errorf("%d links of each of %d agents: use 1 or more, and fewer than agents",
			l.Degree, agents)
	case !(l.Rewire >= 0 && l.Rewire <= 1): // a NaN is neither
		return fmt.Errorf("links are replaced with the chance %v: use 0 to 1", l.Rewire)
	case agents < 2:
		return fmt.Errorf("links of one agent: use two agents or more")
	}
	return nil
}

// Weighted reports whether links have weights of their own.
func (l Links) Weighted() bool { return l.Rows != nil && l.Rows.Weights != nil }
