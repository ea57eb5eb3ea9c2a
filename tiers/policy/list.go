package policy

// arena holds the nodes of several doubly linked lists and finds them by page. Nodes are addressed
// by index, so lists of millions of pages hold no pointers for the collector to follow.
type arena struct {
	nodes []node
	free  []int32
	find  map[uint64]int32
}

// node is a page in one list.
type node struct {
	page       uint64
	prev, next int32
	list       uint8 // which list it is in, by the owner's numbering
	freq       uint8
}

// list is the ends of a list of nodes; the zero list is empty. Node 0 of an arena is nobody, so 0
// ends a list.
type list struct {
	head, tail int32
	n          int
}

func newArena(n int) arena {
	return arena{nodes: make([]node, 1, n+1), find: make(map[uint64]int32, n)}
}

// add makes a node for a page that has none and puts it at the tail of a list.
func (a *arena) add(l *list, page uint64) int32 {
	var i int32
	if n := len(a.free); n > 0 {
		i = a.free[n-1]
		a.free = a.free[:n-1]
		a.nodes[i] = node{page: page}
	} else {
		i = int32(len(a.nodes))
		a.nodes = append(a.nodes, node{page: page})
	}
	a.find[page] = i
	a.push(l, i)
	return i
}

// drop takes a node out of its list and forgets its page.
func (a *arena) drop(l *list, i int32) {
	a.cut(l, i)
	delete(a.find, a.nodes[i].page)
	a.free = append(a.free, i)
}

// push puts a node that is in no list at the tail of one.
func (a *arena) push(l *list, i int32) {
	a.nodes[i].prev, a.nodes[i].next = l.tail, 0
	if l.tail != 0 {
		a.nodes[l.tail].next = i
	} else {
		l.head = i
	}
	l.tail = i
	l.n++
}

func (a *arena) cut(l *list, i int32) {
	n := &a.nodes[i]
	if n.prev != 0 {
		a.nodes[n.prev].next = n.next
	} else {
		l.head = n.next
	}
	if n.next != 0 {
		a.nodes[n.next].prev = n.prev
	} else {
		l.tail = n.prev
	}
	n.prev, n.next = 0, 0
	l.n--
}

func (a *arena) touch(l *list, i int32) {
	a.cut(l, i)
	a.push(l, i)
}
