package explain

import "slices"

const (
	// leastMembers is the number of incidents that are a move at least, and moveNats how unlikely
	// it must be that this number of independent incidents open in three bins: once in 1.2 million
	// times.
	leastMembers = 5
	moveNats     = 14
	// moveGap is how many bins behind a move more incidents than chance explains still belong to
	// it.
	moveGap = 4
	// rateTrust is the number of incidents that weigh as much as what the alarm lets expect.
	rateTrust = 5
	// mostBins and mostMoves bound what is kept, the latest ones: two weeks of bins of five
	// minutes.
	mostBins  = 4096
	mostMoves = 256
)

// Bin counts what happened in a time of FleetLimits.Together, all entities together.
type Bin struct {
	Number int64
	Rows   uint32
	Opened uint32 // incidents
}

// Move is a run of bins in which more incidents opened than independent entities have.
type Move struct {
	Number uint64 // from 1
	// First and Last are the first and last bin of the run. An incident that opens in them, or in
	// the next one, belongs to the move. If many open up to moveGap bins later, the run continues.
	First, Last int64
}

// Moved returns the move that the last row has begun; nil for none. The incidents of other entities
// that began in its bins belong to it: the caller calls Claim for them.
func (c *Control) Moved() *Move { return c.moved }

// Claim makes the open incident of an entity part of a move, if it opened in its bins, and reports
// whether it did.
func (c *Control) Claim(e *FleetEntity, m *Move) bool {
	if !e.Open || e.Move != 0 || e.Began < m.First || e.Began > m.Last+1 {
		return false
	}
	e.join(m.Number)
	return true
}

// Past reports whether a time is behind a move, so that no incident joins it then, and all entities
// have had a bin to show that they take no part.
func (c *Control) Past(m *Move, ns int64) bool { return c.bin(ns) > m.Last+moveGap+1 }

// Missed reports whether an entity had rows all through a move, and knew its past, and took no
// part.
func (c *Control) Missed(e *FleetEntity, m *Move) bool {
	return e.Member != m.Number && e.Seen > m.Last+moveGap && float64(e.Rows) >= 3*float64(c.o.Block)
}

// Find returns the move with a number; nil for one that is too old.
func (c *Control) Find(number uint64) *Move {
	for i := range c.state.Moves {
		if c.state.Moves[i].Number == number {
			return &c.state.Moves[i]
		}
	}
	return nil
}

// Span returns the times from which and before which an incident of a move opens.
func (c *Control) Span(m *Move) (from, to int64) {
	return m.First * int64(c.o.Together), (m.Last + 2) * int64(c.o.Together)
}

func (c *Control) bin(ns int64) int64 {
	if c.o.Together == 0 {
		return 0
	}
	return floor(ns, int64(c.o.Together))
}

func floor(a, b int64) int64 {
	n := a / b
	if a%b < 0 {
		n--
	}
	return n
}

// see counts a row, and returns the number of its bin.
func (c *Control) see(e *FleetEntity, ns int64) int64 {
	if c.o.Together == 0 {
		return 0
	}
	n := c.bin(ns)
	e.Seen = n
	if b := c.place(n); b != nil {
		b.Rows++
	}
	return n
}

// place returns the bin with a number, a new one if there is none; nil for one that is too old.
func (c *Control) place(n int64) *Bin {
	return numbered(&c.state.Bins, n, mostBins, func(b *Bin) *int64 { return &b.Number })
}

// open counts an incident that opens in a bin, and lets it join a move. It finds a new move if more
// incidents have opened than chance explains.
func (c *Control) open(e *FleetEntity, n int64) {
	if c.o.Together == 0 {
		return
	}
	e.Began = n
	b := c.place(n)
	if b == nil {
		return
	}
	b.Opened++
	many := c.many(n)
	for i := len(c.state.Moves) - 1; i >= 0; i-- {
		m := &c.state.Moves[i]
		if n < m.First || n > m.Last+moveGap || n > m.Last+1 && !many {
			continue
		}
		if many {
			m.Last = max(m.Last, n)
		}
		e.join(m.Number)
		return
	}
	if !many {
		return
	}
	if len(c.state.Moves) >= mostMoves {
		c.state.Moves = slices.Delete(c.state.Moves, 0, 1)
	}
	c.state.Found++
	c.state.Moves = append(c.state.Moves, Move{Number: c.state.Found, First: n - 1, Last: n})
	c.moved = &c.state.Moves[len(c.state.Moves)-1]
	e.join(c.moved.Number)
}

// ofMove returns the decision of a row of an incident that belongs to a move.
func (c *Control) ofMove(e *FleetEntity) uint32 {
	if c.moved == nil || e.Shown {
		return suspicious
	}
	e.Shown = true
	return anomalous
}

// many reports whether more incidents opened in a bin and its neighbours than chance explains: by
// the bound of Chernoff on a Poisson distribution.
func (c *Control) many(n int64) bool {
	rows, opened := uint64(0), uint64(0)
	for k := n - 1; k <= n+1; k++ {
		i, found := slices.BinarySearchFunc(c.state.Bins, k, func(b Bin, k int64) int {
			return int(max(-1, min(1, b.Number-k)))
		})
		if found {
			rows += uint64(c.state.Bins[i].Rows)
			opened += uint64(c.state.Bins[i].Opened)
		}
	}
	got, want := float64(opened), float64(float64(rows)*c.rate(n))
	return opened >= leastMembers && got > want && float64(got*ln(got/want))-got+want >= moveNats
}

// rate returns the incidents a row that belong to no move, as the window before a bin has them.
func (c *Control) rate(n int64) float64 {
	at := c.number(n*int64(c.o.Together)) - lag
	from, _ := c.find(at - slotsOfWindow + 1)
	to, _ := c.find(at + 1)
	rows, opened := 0.0, 0.0
	for i := from; i < to; i++ {
		rows += float64(c.state.Slots[i].Rows)
		opened += float64(c.state.Slots[i].Opened)
	}
	return (opened + rateTrust) / (rows + rateTrust*c.scale.block/c.scale.rate0)
}
