package policy

// LRU evicts the page that was not used for the longest time.
type LRU struct {
	arena
	capacity int
	order    list // least recently used first
	evict    func(uint64)
}

// NewLRU returns an empty LRU of capacity pages that reports what it evicts.
func NewLRU(capacity int, evict func(uint64)) *LRU {
	return &LRU{arena: newArena(capacity), capacity: capacity, evict: evict}
}

// Name implements Expert.
func (*LRU) Name() string { return "lru" }

// Contains implements Expert.
func (c *LRU) Contains(page uint64) bool { return c.find[page] != 0 }

// Access implements Expert.
func (c *LRU) Access(page uint64) bool {
	if i := c.find[page]; i != 0 {
		c.touch(&c.order, i)
		return true
	}
	if c.order.n >= c.capacity {
		i := c.order.head
		gone := c.nodes[i].page
		c.drop(&c.order, i)
		c.evict(gone)
	}
	c.add(&c.order, page)
	return false
}

// Remove implements Expert.
func (c *LRU) Remove(page uint64) {
	if i := c.find[page]; i != 0 {
		c.drop(&c.order, i)
	}
}
