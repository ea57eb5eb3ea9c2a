package policy

// S3FIFO is the policy of Yang and others (SOSP 2023): a small queue that most pages leave unseen,
// a main queue with reinsertion, and a ghost queue: a page that comes back while it is there goes
// to the main queue directly.
type S3FIFO struct {
	arena
	capacity, small int
	lists           [3]list
	evict           func(uint64)
}

// The queues of S3FIFO.
const (
	s3Small = iota
	s3Main
	s3Ghost
)

// NewS3FIFO returns an empty S3FIFO of capacity pages that reports what it evicts.
func NewS3FIFO(capacity int, evict func(uint64)) *S3FIFO {
	return &S3FIFO{arena: newArena(2 * capacity), capacity: capacity, small: max(capacity/10, 1), evict: evict}
}

// Name implements Expert.
func (*S3FIFO) Name() string { return "s3fifo" }

// Contains implements Expert.
func (c *S3FIFO) Contains(page uint64) bool {
	i := c.find[page]
	return i != 0 && c.nodes[i].list != s3Ghost
}

// Access implements Expert.
func (c *S3FIFO) Access(page uint64) bool {
	i := c.find[page]
	if i != 0 && c.nodes[i].list != s3Ghost {
		c.nodes[i].freq = min(c.nodes[i].freq+1, 3)
		return true
	}
	to := uint8(s3Small)
	if i != 0 {
		c.drop(&c.lists[s3Ghost], i)
		to = s3Main
	}
	for c.lists[s3Small].n+c.lists[s3Main].n >= c.capacity {
		if c.lists[s3Small].n >= c.small || c.lists[s3Main].n == 0 {
			c.evictSmall()
		} else {
			c.evictMain()
		}
	}
	i = c.add(&c.lists[to], page)
	c.nodes[i].list = to
	return false
}

// evictSmall empties the head of the small queue: into the main one when it was used again, else
// into the ghost.
func (c *S3FIFO) evictSmall() {
	for i := c.lists[s3Small].head; i != 0; i = c.lists[s3Small].head {
		c.cut(&c.lists[s3Small], i)
		if c.nodes[i].freq > 1 {
			c.nodes[i].freq = 0
			c.nodes[i].list = s3Main
			c.push(&c.lists[s3Main], i)
			if c.lists[s3Main].n > c.capacity-c.small {
				c.evictMain()
			}
			if c.lists[s3Small].n+c.lists[s3Main].n < c.capacity {
				return
			}
			continue
		}
		c.nodes[i].list = s3Ghost
		c.push(&c.lists[s3Ghost], i)
		if c.lists[s3Ghost].n > c.capacity-c.small {
			c.drop(&c.lists[s3Ghost], c.lists[s3Ghost].head)
		}
		c.evict(c.nodes[i].page)
		return
	}
}

// evictMain drops the first page of the main queue that was not used since it was last looked at.
func (c *S3FIFO) evictMain() {
	for i := c.lists[s3Main].head; i != 0; i = c.lists[s3Main].head {
		if c.nodes[i].freq == 0 {
			gone := c.nodes[i].page
			c.drop(&c.lists[s3Main], i)
			c.evict(gone)
			return
		}
		c.nodes[i].freq--
		c.touch(&c.lists[s3Main], i)
	}
}

// Remove implements Expert.
func (c *S3FIFO) Remove(page uint64) {
	if i := c.find[page]; i != 0 {
		c.drop(&c.lists[c.nodes[i].list], i)
	}
}
