package policy

// LIRS is the policy of Jiang and Zhang (SIGMETRICS 2002): pages whose last two accesses lie close
// together (LIR) keep 99 % of the room; the others pass through a queue of 1 %. A stack of recency,
// bounded here to three capacities, finds the pages that earn a place.
type LIRS struct {
	capacity, lir int
	// stack has LIR pages, and HIR pages resident or not, least recent first; queue has the
	// resident HIR pages.
	stack, queue arena
	order, hir   list
	ghosts       list // of non-resident pages in the stack, by age: nodes of ghost
	ghost        arena
	lirs         int
	evict        func(uint64)
}

// The states of a page in the stack, in node.list.
const (
	lirsLIR = iota
	lirsResident
	lirsGhost
)

// NewLIRS returns an empty LIRS of capacity pages that reports what it evicts.
func NewLIRS(capacity int, evict func(uint64)) *LIRS {
	return &LIRS{
		capacity: capacity, lir: capacity - max(capacity/100, 1), evict: evict,
		stack: newArena(2 * capacity), queue: newArena(capacity/100 + 1), ghost: newArena(capacity),
	}
}

// Name implements Expert.
func (*LIRS) Name() string { return "lirs" }

// Contains implements Expert.
func (c *LIRS) Contains(page uint64) bool {
	if i := c.stack.find[page]; i != 0 && c.stack.nodes[i].list != lirsGhost {
		return true
	}
	return c.queue.find[page] != 0
}

// Access implements Expert.
func (c *LIRS) Access(page uint64) bool {
	i, q := c.stack.find[page], c.queue.find[page]
	if i != 0 && c.stack.nodes[i].list == lirsLIR {
		c.stack.touch(&c.order, i)
		c.prune()
		return true
	}
	if q != 0 { // A resident HIR page.
		if i != 0 { // Its reuse distance is shorter than the distance of the oldest LIR page.
			c.queue.drop(&c.hir, q)
			c.promote(i)
		} else {
			c.queue.touch(&c.hir, q)
			c.stack.nodes[c.stack.add(&c.order, page)].list = lirsResident
			c.prune()
		}
		return true
	}
	if c.lirs+c.hir.n >= c.capacity {
		c.evictHIR()
		i = c.stack.find[page] // Bounding the stack may have dropped it.
	}
	switch {
	case i != 0:
		c.ghost.drop(&c.ghosts, c.ghost.find[page])
		c.promote(i)
	case c.lirs < c.lir:
		c.stack.nodes[c.stack.add(&c.order, page)].list = lirsLIR
		c.lirs++
	default:
		c.stack.nodes[c.stack.add(&c.order, page)].list = lirsResident
		c.queue.add(&c.hir, page)
	}
	return false
}

// promote makes a page of the stack LIR, and the oldest LIR page HIR when there are too many.
func (c *LIRS) promote(i int32) {
	c.stack.nodes[i].list = lirsLIR
	c.stack.touch(&c.order, i)
	c.lirs++
	if c.lirs > c.lir {
		c.prune()
		old := c.order.head
		page := c.stack.nodes[old].page
		c.stack.drop(&c.order, old)
		c.lirs--
		c.queue.add(&c.hir, page)
	}
	c.prune()
}

// prune drops HIR pages from the bottom of the stack until a LIR page is there.
func (c *LIRS) prune() {
	for i := c.order.head; i != 0 && c.stack.nodes[i].list != lirsLIR; i = c.order.head {
		if c.stack.nodes[i].list == lirsGhost {
			c.ghost.drop(&c.ghosts, c.ghost.find[c.stack.nodes[i].page])
		}
		c.stack.drop(&c.order, i)
	}
}

// evictHIR evicts the head of the queue; a page still in the stack stays there as a ghost.
func (c *LIRS) evictHIR() {
	q := c.hir.head
	if q == 0 { // No HIR page, after removals: the oldest LIR page becomes one.
		c.prune()
		old := c.order.head
		page := c.stack.nodes[old].page
		c.stack.drop(&c.order, old)
		c.lirs--
		c.prune()
		c.evict(page)
		return
	}
	page := c.queue.nodes[q].page
	c.queue.drop(&c.hir, q)
	if i := c.stack.find[page]; i != 0 {
		c.stack.nodes[i].list = lirsGhost
		c.ghost.add(&c.ghosts, page)
		if c.ghosts.n > 2*c.capacity {
			g := c.ghosts.head
			i := c.stack.find[c.ghost.nodes[g].page]
			c.ghost.drop(&c.ghosts, g)
			c.stack.drop(&c.order, i)
		}
	}
	c.evict(page)
}

// Remove implements Expert.
func (c *LIRS) Remove(page uint64) {
	if q := c.queue.find[page]; q != 0 {
		c.queue.drop(&c.hir, q)
	}
	if g := c.ghost.find[page]; g != 0 {
		c.ghost.drop(&c.ghosts, g)
	}
	if i := c.stack.find[page]; i != 0 {
		if c.stack.nodes[i].list == lirsLIR {
			c.lirs--
		}
		c.stack.drop(&c.order, i)
		c.prune()
	}
}
