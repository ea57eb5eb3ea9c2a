package policy

// Numbers of the temporal correlation. They were chosen on recorded traces; see
// docs/performance.md.
const (
	// chain is the most steps ahead, and the most pages, that it guesses.
	chain = 4
	// window is the number of demands within which another page follows.
	window = 4
	// followers is the number of followers remembered for a page.
	followers = 6
	// A page is guessed when its score is above scoreOver/scoreOf: in more than four fifths of the
	// times that the other page was demanded it followed within the window. leastSeen times are
	// enough to tell.
	scoreOver, scoreOf = 4, 5
	leastSeen          = 3
	// mostSeen is where counts are halved, so that what is old fades.
	mostSeen = 16
)

// history is a page and what followed it.
type history struct {
	page  uint64
	seen  uint8 // how often it was demanded, and its window is over; 0 and not open: free
	open  bool  // it was demanded less than a window ago
	next  [followers]uint64
	count [followers]uint8 // of the times of seen and the open one in which next followed
	here  uint8            // bits: next has followed in the open window
}

// temporal is the temporal correlation of pages: the share of demands of a page after which another
// one followed soon. The table has a fixed size and two places for a page; the page with fewer
// demands gives way.
type temporal struct {
	room   int       // the length of the table
	table  []history // nil before the first page
	recent [window]uint64
	demand int // number of demands that were learnt
}

func newTemporal(n int) temporal { return temporal{room: max(n, 2)} }

func (t *temporal) at(page uint64, which uint) *history {
	h := (page + 1) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	if which > 0 {
		h *= 0xbf58476d1ce4e5b9
	}
	return &t.table[h>>16%uint64(len(t.table))]
}

func (t *temporal) find(page uint64) *history {
	for which := range uint(2) {
		if t.table == nil {
			return nil
		}
		if e := t.at(page, which); (e.seen > 0 || e.open) && e.page == page {
			return e
		}
	}
	return nil
}

// learn takes in a demand: the page follows the last ones.
func (t *temporal) learn(page uint64) {
	if t.table == nil {
		t.table = make([]history, t.room)
	}
	slot := &t.recent[t.demand%window]
	if t.demand >= window { // the window of the page that leaves is over
		if e := t.find(*slot); e != nil && e.open {
			e.close()
		}
	}
	for i := range min(t.demand, window) {
		if other := t.recent[i]; other != page {
			if e := t.find(other); e != nil && e.open {
				e.follow(page)
			}
		}
	}
	*slot = page
	t.demand++
	e := t.find(page)
	if e == nil {
		a, b := t.at(page, 0), t.at(page, 1)
		if b.seen < a.seen {
			a = b
		}
		if a.open || a.seen > 1 { // Both are in use: the one that came less fades.
			if !a.open {
				a.seen--
			}
			return
		}
		*a = history{page: page}
		e = a
	}
	if e.open { // It came again within its window.
		e.close()
	}
	e.open = true
}

func (e *history) close() {
	e.open, e.here = false, 0
	if e.seen++; e.seen < mostSeen {
		return
	}
	e.seen /= 2
	for i := range e.count {
		e.count[i] /= 2
	}
}

// follow notes that a page follows, once in a window.
func (e *history) follow(page uint64) {
	weakest := 0
	for i := range e.next {
		if e.count[i] > 0 && e.next[i] == page {
			if e.here&(1<<i) == 0 {
				e.count[i]++
				e.here |= 1 << i
			}
			return
		}
		if e.count[i] < e.count[weakest] {
			weakest = i
		}
	}
	if e.count[weakest] > 1 || e.here&(1<<weakest) != 0 {
		if e.here&(1<<weakest) == 0 {
			e.count[weakest]--
		}
		return
	}
	e.next[weakest], e.count[weakest] = page, 1
	e.here |= 1 << weakest
}

// guess appends up to most pages with a score that is high enough, the highest first, and then what
// follows the first of them.
func (t *temporal) guess(page uint64, most int, out []Guess) []Guess {
	from, at := len(out), page
	for range chain {
		e := t.find(at)
		if e == nil || e.seen < leastSeen {
			break
		}
		first, best := page, uint8(0)
		for i, n := range e.count {
			if int(n)*scoreOf <= scoreOver*int(e.seen) || e.next[i] == page {
				continue
			}
			if n > best && !guessed(out[from:], e.next[i]) {
				first, best = e.next[i], n
			}
			if len(out)-from < most && !guessed(out[from:], e.next[i]) {
				out = append(out, Guess{e.next[i], Correlation})
			}
		}
		if first == page || len(out)-from >= most {
			break
		}
		at = first
	}
	return out
}

func guessed(all []Guess, page uint64) bool {
	for _, g := range all {
		if g.Page == page {
			return true
		}
	}
	return false
}
