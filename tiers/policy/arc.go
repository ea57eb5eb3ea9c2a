package policy

// ARC is the Adaptive Replacement Cache of Megiddo and Modha (FAST 2003): two lists of pages seen
// once and more often, each with a ghost of what it evicted, and a target for the first that ghost
// hits move.
type ARC struct {
	arena
	capacity int
	target   int // of lists[arcRecent]
	lists    [4]list
	evict    func(uint64)
}

// The lists of ARC; T1, T2, B1, B2 in the paper.
const (
	arcRecent = iota
	arcFrequent
	arcRecentGhost
	arcFrequentGhost
)

// NewARC returns an empty ARC of capacity pages that reports what it evicts.
func NewARC(capacity int, evict func(uint64)) *ARC {
	return &ARC{arena: newArena(2 * capacity), capacity: capacity, evict: evict}
}

// Name implements Expert.
func (*ARC) Name() string { return "arc" }

// Contains implements Expert.
func (c *ARC) Contains(page uint64) bool {
	i := c.find[page]
	return i != 0 && c.nodes[i].list <= arcFrequent
}

// move puts a node at the recent end of another list.
func (c *ARC) move(i int32, to uint8) {
	c.cut(&c.lists[c.nodes[i].list], i)
	c.nodes[i].list = to
	c.push(&c.lists[to], i)
}

// Access implements Expert.
func (c *ARC) Access(page uint64) bool {
	i := c.find[page]
	if i != 0 {
		b1, b2 := c.lists[arcRecentGhost].n, c.lists[arcFrequentGhost].n
		switch c.nodes[i].list {
		case arcRecentGhost:
			c.target = min(c.target+max(b2/max(b1, 1), 1), c.capacity)
			c.replace(false)
			c.move(i, arcFrequent)
			return false
		case arcFrequentGhost:
			c.target = max(c.target-max(b1/max(b2, 1), 1), 0)
			c.replace(true)
			c.move(i, arcFrequent)
			return false
		}
		c.move(i, arcFrequent)
		return true
	}
	total := 0
	for _, l := range c.lists {
		total += l.n
	}
	if c.lists[arcRecent].n+c.lists[arcRecentGhost].n >= c.capacity {
		if c.lists[arcRecent].n < c.capacity {
			c.drop(&c.lists[arcRecentGhost], c.lists[arcRecentGhost].head)
			c.replace(false)
		} else {
			i := c.lists[arcRecent].head
			gone := c.nodes[i].page
			c.drop(&c.lists[arcRecent], i)
			c.evict(gone)
		}
	} else if total >= c.capacity {
		if total >= 2*c.capacity {
			c.drop(&c.lists[arcFrequentGhost], c.lists[arcFrequentGhost].head)
		}
		c.replace(false)
	}
	c.add(&c.lists[arcRecent], page)
	return false
}

// replace evicts from the list that is over its target, into its ghost.
func (c *ARC) replace(fromFrequentGhost bool) {
	if c.lists[arcRecent].n+c.lists[arcFrequent].n < c.capacity {
		return
	}
	from := uint8(arcFrequent)
	if n := c.lists[arcRecent].n; n > 0 && (n > c.target || (fromFrequentGhost && n == c.target) ||
		c.lists[arcFrequent].n == 0) {
		from = arcRecent
	}
	i := c.lists[from].head
	c.move(i, from+2)
	c.evict(c.nodes[i].page)
}

// Remove implements Expert.
func (c *ARC) Remove(page uint64) {
	if i := c.find[page]; i != 0 {
		c.drop(&c.lists[c.nodes[i].list], i)
	}
}
