package feed

import "time"

// Change is a group that another entity gets.
type Change struct {
	Group int
	Old   string // key of the entity that loses the group; empty: it was free
	Key   string // key of the entity that gets it; empty: it becomes free
}

// Roster is the entities that have groups. The caller reads rows into a batch, asks for the group
// of each, and takes the changes before it sends the batch: they come before the rows of the batch.
// One goroutine uses it.
type Roster struct {
	most  int
	after int64 // nanoseconds of the time of rows; 0 for no limit

	groups  map[string]int32
	keys    []string // by group; empty: it is free
	seen    []int64  // by group: the latest time of a row
	batch   []uint64 // by group: the number of the last batch that has a row of it
	now     uint64   // the number of the present batch
	latest  int64    // time of all rows
	free    []int32
	expired []int32 // groups that become free with the next batch
	older   []int32 // by group: the group seen before it; -1 for none
	newer   []int32
	oldest  int32
	newest  int32
	changes []Change
	leaving map[string]bool // keys that lose their groups by changes
}

// NewRoster returns a roster of up to most groups. An entity without a row for the time after, by
// the times of rows, loses its group; with 0 it does so only when another entity needs it.
func NewRoster(most int, after time.Duration) *Roster {
	return &Roster{
		most: most, after: int64(after), groups: map[string]int32{}, oldest: -1, newest: -1, now: 1,
		leaving: map[string]bool{},
	}
}

// Len returns the number of entities with a group.
func (r *Roster) Len() int { return len(r.groups) }

// Restore assigns a group as an earlier roster did, in the order of its changes. It makes no
// change.
func (r *Roster) Restore(group int, key string) {
	for len(r.keys) <= group {
		r.grow()
	}
	g := int32(group)
	if old := r.keys[g]; old != "" {
		delete(r.groups, old)
		r.unlink(g)
		r.keys[g] = ""
	}
	if key != "" {
		r.keys[g] = key
		r.groups[key] = g
		r.link(g)
	}
}

// Restored ends a series of calls of Restore.
func (r *Roster) Restored() {
	r.free = r.free[:0]
	for g := len(r.keys) - 1; g >= 0; g-- { // the first ones are used first
		if r.keys[g] == "" {
			r.free = append(r.free, int32(g))
		}
	}
}

func (r *Roster) grow() {
	r.keys, r.seen, r.batch = append(r.keys, ""), append(r.seen, 0), append(r.batch, 0)
	r.older, r.newer = append(r.older, -1), append(r.newer, -1)
}

// link makes a group the newest of the order.
func (r *Roster) link(g int32) {
	if r.older[g], r.newer[g] = r.newest, -1; r.newest >= 0 {
		r.newer[r.newest] = g
	} else {
		r.oldest = g
	}
	r.newest = g
}

// unlink takes a group out of the order.
func (r *Roster) unlink(g int32) {
	if r.older[g] >= 0 {
		r.newer[r.older[g]] = r.newer[g]
	} else {
		r.oldest = r.newer[g]
	}
	if r.newer[g] >= 0 {
		r.older[r.newer[g]] = r.older[g]
	} else {
		r.newest = r.older[g]
	}
}

// Group returns the group of the entity with a key, for a row with a time in Unix nanoseconds. It
// returns false if the batch must be sent first: all groups have rows in it, or the entity loses
// its group before it.
func (r *Roster) Group(key string, at int64) (group int, ok bool) {
	g, has := r.groups[key]
	switch {
	case has:
		r.unlink(g)
	case r.leaving[key]:
		return 0, false
	default:
		if g, ok = r.vacate(); !ok {
			return 0, false
		}
		old := r.keys[g]
		if old != "" {
			delete(r.groups, old)
			r.unlink(g)
			r.leaving[old] = true
		}
		r.keys[g], r.seen[g] = key, at
		r.groups[key] = g
		r.changes = append(r.changes, Change{Group: int(g), Old: old, Key: key})
	}
	r.link(g)
	r.seen[g] = max(r.seen[g], at)
	r.latest = max(r.latest, at)
	r.batch[g] = r.now
	return int(g), true
}

// vacate returns a group for another entity: a free group, a new group, or the least recently seen
// group. It returns false if that group has a row in the batch, or if there is none.
func (r *Roster) vacate() (g int32, ok bool) {
	switch {
	case len(r.free) > 0:
		g = r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		return g, true
	case len(r.keys) < r.most:
		r.grow()
		return int32(len(r.keys) - 1), true
	}
	if r.oldest < 0 { // all of them have expired, and become free with the next batch
		return -1, false
	}
	return r.oldest, r.batch[r.oldest] != r.now
}

// Changes returns the changes since the last call, in their order, and begins the next batch. A
// group is in it once. The caller owns the result.
func (r *Roster) Changes() []Change {
	all := r.changes
	r.changes = nil
	clear(r.leaving)
	r.free = append(r.free, r.expired...)
	r.expired = r.expired[:0]
	r.now++
	return all
}

// Expire takes the groups of entities without a row for the time of NewRoster, up to most of them,
// as changes before the next batch. Call it between two batches.
func (r *Roster) Expire(most int) {
	if r.after == 0 {
		return
	}
	// Groups are in the order of rows, which may differ from the order of their times: an entity
	// that is behind a later one waits until that has expired too.
	for ; most > 0 && r.oldest >= 0 && r.latest-r.seen[r.oldest] > r.after; most-- {
		g := r.oldest
		old := r.keys[g]
		delete(r.groups, old)
		r.unlink(g)
		r.keys[g] = ""
		r.leaving[old] = true
		r.changes = append(r.changes, Change{Group: int(g), Old: old})
		r.expired = append(r.expired, g)
	}
}
