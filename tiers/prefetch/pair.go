package prefetch

// Numbers of the correlation.
const (
	// followers is how many successors of a page are remembered.
	followers = 4
	// chain is how many steps ahead it guesses, at most.
	chain = 4
	// seen is how often a successor must have come to be guessed.
	seen = 2
	// most is where counts are halved, so that what is old fades.
	most = 15
)

// pair is a page and what came after it.
type pair struct {
	page  uint64
	next  [followers]uint64
	count [followers]uint8
	trust uint8 // how often the page came, fading when others want the place; 0: free
}

// pairs remembers successors in a table of fixed size: two places a page, and whoever comes less
// gives way.
type pairs struct {
	room  int    // the length of the table
	table []pair // nil before the first pair
	last  uint64
	known bool // last is a page
}

// newPairs has room for n pages, at least two.
func newPairs(n int) pairs { return pairs{room: max(n, 2)} }

// at is one of the two places of a page.
func (t *pairs) at(page uint64, which uint) *pair {
	h := (page + 1) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	if which > 0 {
		h *= 0xbf58476d1ce4e5b9
	}
	return &t.table[h>>16%uint64(len(t.table))]
}

// find is the entry of a page, or nil.
func (t *pairs) find(page uint64) *pair {
	for which := range uint(2) {
		if t.table == nil {
			return nil
		}
		if e := t.at(page, which); e.trust > 0 && e.page == page {
			return e
		}
	}
	return nil
}

// learn takes in that a page came after the last one. One that a run explains only becomes the
// last.
func (t *pairs) learn(page uint64, explained bool) {
	last, known := t.last, t.known
	t.last, t.known = page, true
	if !known || explained || last == page {
		return
	}
	if t.table == nil {
		t.table = make([]pair, t.room)
	}
	e := t.find(last)
	if e == nil {
		a, b := t.at(last, 0), t.at(last, 1)
		if b.trust < a.trust {
			a = b
		}
		if a.trust > 1 { // Both are in use: the weaker one fades.
			a.trust--
			return
		}
		*a = pair{page: last}
		e = a
	}
	e.trust = min(e.trust+1, most)
	weakest := 0
	for i := range e.next {
		if e.count[i] > 0 && e.next[i] == page {
			if e.count[i]++; e.count[i] >= most {
				for j := range e.count {
					e.count[j] /= 2
				}
			}
			return
		}
		if e.count[i] < e.count[weakest] {
			weakest = i
		}
	}
	if e.count[weakest] > 1 {
		e.count[weakest]--
		return
	}
	e.next[weakest], e.count[weakest] = page, 1
}

// follow guesses the likeliest successor, its likeliest successor, and so on, up to depth.
func (t *pairs) follow(page uint64, depth int, out []Guess) []Guess {
	from, asked := len(out), page
	for range depth {
		e := t.find(page)
		if e == nil {
			break
		}
		best, sum := 0, 0
		for i, n := range e.count {
			sum += int(n)
			if n > e.count[best] {
				best = i
			}
		}
		if e.count[best] < seen || 2*int(e.count[best]) < sum {
			break
		}
		page = e.next[best]
		if page == asked {
			return out
		}
		for _, g := range out[from:] {
			if g.Page == page { // A circle.
				return out
			}
		}
		out = append(out, Guess{page, Correlation})
	}
	return out
}
