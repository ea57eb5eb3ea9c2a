package tierstest

import (
	"math/rand/v2"
	"slices"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Crash clones the file system as a power loss at this moment would leave it. Of what was not
// synced, every 4 KiB block of every write, every longer length and every creation or deletion of a
// name survives with probability keep (0 to 1), each on its own: so writes are torn and reordered.
// The original is not changed and can be used further; the clone holds no lock and everything in it
// is durable.
func (m *Mem) Crash(keep float64, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem(m.capacity)
	for dir, d := range m.dirs {
		left := &memDir{now: map[string]*memNode{}, synced: map[string]*memNode{}, touched: map[string]bool{}}
		c.dirs[dir] = left
		for name, n := range d.synced {
			left.now[name] = n
		}
		for _, name := range sorted(d.touched) {
			if rng.Float64() >= keep {
				continue
			}
			if n := d.now[name]; n != nil {
				left.now[name] = n
			} else {
				delete(left.now, name)
			}
		}
		for _, name := range sorted(left.now) {
			n := left.now[name].crash(keep, rng)
			left.now[name], left.synced[name] = n, n
			c.used += int64(len(n.now))
		}
	}
	return c
}

// sorted returns the keys of a map in order, so that a seed leads to one outcome.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// crash returns what a power loss leaves of a file.
func (n *memNode) crash(keep float64, rng *rand.Rand) *memNode {
	b := append([]byte{}, n.synced...)
	for _, w := range n.pending {
		if len(w.data) == 0 {
			if rng.Float64() < keep {
				b = w.apply(b)
			}
			continue
		}
		for at := 0; at < len(w.data); {
			// Cut at block boundaries of the file, wherever the write began.
			end := min(len(w.data), at+vfs.BlockSize-int((w.off+int64(at))%vfs.BlockSize))
			if rng.Float64() < keep {
				b = memWrite{off: w.off + int64(at), data: w.data[at:end]}.apply(b)
			}
			at = end
		}
	}
	return &memNode{now: b, synced: append([]byte{}, b...)}
}
