package feed

import (
	"sync"

	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Names tells which entity the decisions of a group belong to. A group may change its entity, so
// the answer depends on the entry of the decisions. Its methods may be called from several
// goroutines. Groups are the numbers of the roster.
type Names struct {
	shardOf func(group int) int

	mu    sync.RWMutex
	keys  []string                // by group, as of the entries that were reached
	later [][]statelog.Assignment // by shard
}

// Add appends assignments, in their order. After is an entry of the log of the shard of the group.
func (n *Names) Add(all []statelog.Assignment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range all {
		k := n.shardOf(a.Group)
		for len(n.later) <= k {
			n.later = append(n.later, nil)
		}
		n.later[k] = append(n.later[k], a)
	}
}

// Reach advances to an entry of a shard. Entries only grow.
func (n *Names) Reach(shard int, entry uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if shard >= len(n.later) {
		return
	}
	done, later := 0, n.later[shard]
	for _, a := range later {
		if a.After >= entry {
			break
		}
		for len(n.keys) <= a.Group {
			n.keys = append(n.keys, "")
		}
		n.keys[a.Group] = a.Key
		done++
	}
	if n.later[shard] = later[done:]; len(n.later[shard]) == 0 {
		n.later[shard] = nil // gives the memory back
	}
}

// Key implements encode.Entities.
func (n *Names) Key(group int) (key string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if group < 0 || group >= len(n.keys) || n.keys[group] == "" {
		return "", false
	}
	return n.keys[group], true
}
