package feed

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// entityMemory is the bytes that a job keeps for an entity besides the text of its key, which it
// has twice: its places in the dictionary, its summary, and the time of its last row.
const entityMemory = 512

// entityStep is the bytes of entities that are charged to the memory at a time.
const entityStep = 256 << 10

// Entities is the dictionary of a job with a key: each key has a group, in the order of their first
// rows. It is a function of the input and the specification, so that another attempt makes the same
// one. One goroutine calls Add and Warm. The other methods may be called concurrently.
type Entities struct {
	most  int          // groups
	hold  *access.Hold // of the job; nil for none
	free  int64        // bytes of hold that no entity uses
	table *keyTable
	keys  atomic.Pointer[[]string] // by group
}

// NewEntities returns an empty dictionary of up to most entities, whose memory is taken from h.
func NewEntities(most int, h *access.Hold) *Entities {
	e := &Entities{most: most, hold: h, table: newKeyTable()}
	e.keys.Store(&[]string{})
	return e
}

// Key implements encode.Entities.
func (e *Entities) Key(group int) (key string, ok bool) {
	keys := *e.keys.Load()
	if group < 0 || group >= len(keys) {
		return "", false
	}
	return keys[group], true
}

// Len returns the number of entities.
func (e *Entities) Len() int { return len(*e.keys.Load()) }

// Warm prepares the next calls of Add for some keys.
func (e *Entities) Warm(keys []string) { e.table.Warm(keys) }

// Add returns the group of a key. A key that is new gets the next group; full reports that there is
// none. The error is one of the memory.
func (e *Entities) Add(key string) (group int, isNew, full bool, err error) {
	if g, ok := e.table.Find(key); ok {
		return g, false, false, nil
	}
	if e.table.Len() == e.most {
		return 0, false, true, nil
	}
	need := entityMemory + 2*int64(len(key))
	if e.free < need {
		if err := e.hold.Keep(entityStep, "its entities"); err != nil {
			return 0, false, false, err
		}
		e.free += entityStep
	}
	e.free -= need
	group = e.table.Add(key)
	keys := e.table.Keys()
	e.keys.Store(&keys)
	return group, true, false, nil
}

// Restore implements commitlog.Dictionary.
func (e *Entities) Restore(all []statelog.Assignment) error {
	for _, a := range all {
		if _, _, _, err := e.Add(a.Key); err != nil {
			return err
		}
	}
	return nil
}

// Fresh implements commitlog.Dictionary: it returns the keys of the groups from a number on. The
// caller does not change them.
func (e *Entities) Fresh(from int) []string { return (*e.keys.Load())[from:] }
