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

// Aging is the clock-tick approximation of LRU with a memory: every page has eight bits, shifted
// right every half capacity of accesses, with the top bit set by an access; the page with the
// smallest number goes, the least recently used first among equals.
type Aging struct {
	arena
	capacity int
	ticks    int
	buckets  [256]list // by counter, which is node.freq
	resident int
	evict    func(uint64)
}

// NewAging returns an empty Aging of capacity pages that reports what it evicts.
func NewAging(capacity int, evict func(uint64)) *Aging {
	return &Aging{arena: newArena(capacity), capacity: capacity, evict: evict}
}

// Name implements Expert.
func (*Aging) Name() string { return "aging" }

// Contains implements Expert.
func (c *Aging) Contains(page uint64) bool { return c.find[page] != 0 }

// Access implements Expert.
func (c *Aging) Access(page uint64) bool {
	if c.ticks++; c.ticks >= max(c.capacity/2, 1) {
		c.ticks = 0
		c.shift()
	}
	if i := c.find[page]; i != 0 {
		n := &c.nodes[i]
		c.cut(&c.buckets[n.freq], i)
		n.freq |= 0x80
		c.push(&c.buckets[n.freq], i)
		return true
	}
	if c.resident >= c.capacity {
		for f := range c.buckets {
			if i := c.buckets[f].head; i != 0 {
				gone := c.nodes[i].page
				c.drop(&c.buckets[f], i)
				c.resident--
				c.evict(gone)
				break
			}
		}
	}
	i := c.add(&c.buckets[0x80], page)
	c.nodes[i].freq = 0x80
	c.resident++
	return false
}

// shift halves every counter. Pages of two buckets that fall together keep the order of their
// counters.
func (c *Aging) shift() {
	for f := 1; f < len(c.buckets); f++ {
		to := f >> 1
		for i := c.buckets[f].head; i != 0; i = c.buckets[f].head {
			c.cut(&c.buckets[f], i)
			c.nodes[i].freq = uint8(to)
			c.push(&c.buckets[to], i)
		}
	}
}

// Remove implements Expert.
func (c *Aging) Remove(page uint64) {
	if i := c.find[page]; i != 0 {
		c.drop(&c.buckets[c.nodes[i].freq], i)
		c.resident--
	}
}
