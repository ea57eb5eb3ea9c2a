package feed_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
)

// model is a roster that searches all entities, and the state that the changes lead to.
type model struct {
	group   map[string]int   // by key
	used    map[string]int   // by key: number of its last row
	seen    map[string]int64 // by key: its latest time
	batch   map[string]bool  // keys with a row in the batch
	leaving map[string]bool
	holds   map[int]string // by group, as the changes say
}

// oldest returns the key whose last row is the earliest; empty if there is none.
func (m *model) oldest() (key string) {
	for k := range m.group {
		if key == "" || m.used[k] < m.used[key] {
			key = k
		}
	}
	return key
}

// TestAgainstModel: the entity that loses its group is the one whose last row is the earliest, and
// only when no group is free. No entity loses its group in a batch with a row of it or gets one in
// the batch before which it loses one. Changes lead to the groups that the rows got.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		most, entities, after := 1+r.IntN(8), 1+r.IntN(20), int64(r.IntN(3))*30
		real := feed.NewRoster(most, time.Duration(after))
		m := &model{
			group: map[string]int{}, used: map[string]int{}, seen: map[string]int64{}, batch: map[string]bool{},
			leaving: map[string]bool{}, holds: map[int]string{},
		}
		latest := int64(0)
		send := func() {
			t.Helper()
			changed := map[int]bool{}
			for _, c := range real.Changes() {
				if m.holds[c.Group] != c.Old || changed[c.Group] || c.Group >= most {
					t.Fatalf("seed %d: change %+v of a group that %q has", seed, c, m.holds[c.Group])
				}
				changed[c.Group] = true
				if m.holds[c.Group] = c.Key; c.Key == "" {
					delete(m.holds, c.Group)
				}
			}
			for key, g := range m.group {
				if m.holds[g] != key {
					t.Fatalf("seed %d: group %d belongs to %q by the changes, want %q", seed, g, m.holds[g], key)
				}
			}
			if len(m.holds) != len(m.group) || real.Len() != len(m.group) {
				t.Fatalf(
					"seed %d: %d groups are held, Len is %d, want %d",
					seed,
					len(m.holds),
					real.Len(),
					len(m.group),
				)
			}
			clear(m.batch)
			clear(m.leaving)
			real.Expire(1000)
			for k := m.oldest(); after > 0 && k != "" && latest-m.seen[k] > after; k = m.oldest() {
				delete(m.group, k)
				delete(m.seen, k)
				m.leaving[k] = true
			}
		}
		for row := range 400 {
			key, at := fmt.Sprint("e", r.IntN(entities)), int64(row-r.IntN(4))
			for tries := 0; ; tries++ {
				if tries > 2 {
					t.Fatalf("seed %d, row %d: %s gets no group", seed, row, key)
				}
				g, ok := real.Group(key, at)
				if had, has := m.group[key]; has {
					if !ok || g != had {
						t.Fatalf("seed %d, row %d: %s has group %d, %v, want %d", seed, row, key, g, ok, had)
					}
				} else if !ok {
					if !m.leaving[key] && !m.batch[m.oldest()] && len(m.group) > 0 {
						t.Fatalf("seed %d, row %d: %s gets no group, with %v", seed, row, key, m.group)
					}
					send()
					continue
				} else {
					for old, of := range m.group {
						if of != g {
							continue
						}
						if old != m.oldest() || m.batch[old] || len(m.holds) < most && len(m.group) < most {
							t.Fatalf("seed %d, row %d: %s gets the group of %s, of %v", seed, row, key, old, m.group)
						}
						delete(m.group, old)
						delete(m.seen, old)
						m.leaving[old] = true
					}
					if m.leaving[key] {
						t.Fatalf("seed %d, row %d: %s gets a group before it has lost the other", seed, row, key)
					}
				}
				m.group[key], m.used[key], m.batch[key] = g, row, true
				m.seen[key] = max(at, m.seen[key])
				latest = max(latest, at)
				break
			}
			if r.IntN(6) == 0 {
				send()
			}
		}
		send()
		// A roster that is restored has the same groups.
		send()
		again := feed.NewRoster(most, 0)
		for g, key := range m.holds {
			again.Restore(g, "before")
			again.Restore(g, key)
		}
		again.Restored()
		for key, g := range maps.Clone(m.group) {
			if got, ok := again.Group(key, 1); !ok || got != g {
				t.Fatalf("seed %d: the restored roster gives %s group %d, %v, want %d", seed, key, got, ok, g)
			}
		}
		if c := again.Changes(); len(c) != 0 {
			t.Fatalf("seed %d: a restored roster has the changes %+v", seed, c)
		}
	}
}
