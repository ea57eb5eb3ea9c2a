package travel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Kinds of Start.
const (
	StartLog      = "log"      // the initial state, and all entries of the log
	StartSnapshot = "snapshot" // a snapshot
	StartMoment   = "moment"   // a moment that the Replayer had kept
)

// ReplayMoment is the state of a shard after an entry. It does not change, and its methods may be
// called from several goroutines.
type ReplayMoment struct {
	Entry uint64
	// Round is the last round of votes of the swarm up to Entry; 0: there was none.
	Round uint64
	// Outcome is the decision of the last round that was concluded up to Entry; nil: there was none.
	Outcome  *swarms.Voted
	Start    Start
	Replayed uint64 // entries between Start and Entry
	Took     time.Duration
	Groups   state.GroupRange

	model    *swarms.ModelRef // that was adopted last; nil: the weights of the specification
	layout   kernels.Layout
	pages    pages.Packed
	identity string   // of the swarm
	sum      [32]byte // of the entry; zeros: it was not read

	once    sync.Once
	summary []Summary
	err     error // of summary
}

// PerGroup returns the number of agents of a group.
func (m *ReplayMoment) PerGroup() int { return m.layout.Agents }

// Group returns the variables of a group, one row each, and the variables of n of its agents from
// number first on, a row for each agent. group is a number in the swarm; first counts from 0 in the
// group. It fails with jobs.ErrNotFound if the shard does not have the group.
func (m *ReplayMoment) Group(group, first, n int) (of, agents []batch.Variable, err error) {
	if group < m.Groups.First || group >= m.Groups.First+m.Groups.Groups {
		return nil, nil, fmt.Errorf("group %d: shard %d of %d has the groups %d to %d: %w", group, m.Groups.Shard,
			m.Groups.Shards, m.Groups.First, m.Groups.First+m.Groups.Groups-1, jobs.ErrNotFound)
	}
	first = min(max(first, 0), m.layout.Agents)
	n = min(max(n, 0), m.layout.Agents-first)
	local := group - m.Groups.First
	page := make([]byte, m.layout.PageBytes)
	if err := m.pages.Read(uint64(local/m.layout.Slots), page); err != nil {
		return nil, nil, err
	}
	slot := local % m.layout.Slots
	for v, is := range m.layout.Vars {
		if is.Group {
			of = append(of, m.variable(v, page, slot, 1))
		} else {
			agents = append(agents, m.variable(v, page, slot*m.layout.Agents+first, n))
		}
	}
	return of, agents, nil
}

// variable returns n rows of a variable in a page, from row first on. The rows of a page are its
// agents, or its groups, in their order.
func (m *ReplayMoment) variable(v int, page []byte, first, n int) batch.Variable {
	of := m.layout.Vars[v]
	out := batch.Variable{Name: of.Name, Width: of.Width}
	switch of.Elem {
	case kernels.U64:
		out.Values = rows(m.layout, v, device.Of[uint64](m.bytes(v, page)), first, n)
	case kernels.I64:
		out.Values = rows(m.layout, v, device.Of[int64](m.bytes(v, page)), first, n)
	case kernels.U32:
		out.Values = rows(m.layout, v, device.Of[uint32](m.bytes(v, page)), first, n)
	case kernels.U8:
		out.Values = rows(m.layout, v, m.bytes(v, page), first, n)
	case kernels.BF16:
		short := rows(m.layout, v, device.Of[uint16](m.bytes(v, page)), first, n)
		values := make([]float32, len(short))
		for i, x := range short {
			values[i] = device.FromBF16(x)
		}
		out.Values = values
	default:
		out.Values = rows(m.layout, v, device.Of[float32](m.bytes(v, page)), first, n)
	}
	return out
}

func (m *ReplayMoment) bytes(v int, page []byte) []byte {
	of := m.layout.Vars[v]
	return page[m.layout.Offsets[v]:][:replayRowsOf(m.layout, of)*of.Width*of.Elem.Bytes()]
}

// replayRowsOf returns how many rows of a variable a page has.
func replayRowsOf(l kernels.Layout, of kernels.Var) int {
	if of.Group {
		return l.Slots
	}
	return l.Slots * l.Agents
}

// rows copies n rows of a variable out of its part of a page, from row first on, as an array of
// rows.
func rows[T any](l kernels.Layout, v int, page []T, first, n int) []T {
	of, all := l.Vars[v], replayRowsOf(l, l.Vars[v])
	if of.Together || of.Width == 1 {
		return slices.Clone(page[first*of.Width:][:n*of.Width])
	}
	out := make([]T, 0, n*of.Width)
	for i := first; i < first+n; i++ {
		for c := range of.Width {
			out = append(out, page[c*all+i])
		}
	}
	return out
}

// Summary returns a description of each variable, in the order of the layout. It reads the whole
// state at the first call.
func (m *ReplayMoment) Summary() ([]Summary, error) {
	m.once.Do(func() { m.summary, m.err = m.summarize() })
	return m.summary, m.err
}

func (m *ReplayMoment) summarize() ([]Summary, error) {
	all := make([]Summary, len(m.layout.Vars))
	for v, of := range m.layout.Vars {
		all[v] = Summary{Name: of.Name, Per: per(of.Group), Width: of.Width, Min: math.Inf(1), Max: math.Inf(-1)}
	}
	page := make([]byte, m.layout.PageBytes)
	for first := 0; first < m.Groups.Groups; first += m.layout.Slots {
		if err := m.pages.Read(uint64(first/m.layout.Slots), page); err != nil {
			return nil, err
		}
		groups := min(m.layout.Slots, m.Groups.Groups-first)
		for v, of := range m.layout.Vars {
			n := groups
			if !of.Group {
				n *= m.layout.Agents
			}
			all[v].add(m.variable(v, page, 0, n).Values)
		}
	}
	for v := range all {
		if s := &all[v]; s.Values == 0 {
			s.Min, s.Max = 0, 0
		} else {
			s.Mean /= float64(s.Values)
		}
	}
	return all, nil
}

// add adds values to Values, Unusual, Min and Max, and their sum to Mean.
func (s *Summary) add(values any) {
	switch values := values.(type) {
	case []float32:
		sum(s, values)
	case []uint32:
		sum(s, values)
	case []uint64:
		sum(s, values)
	case []int64:
		sum(s, values)
	case []uint8:
		sum(s, values)
	}
}

func sum[T float32 | uint32 | uint64 | int64 | uint8](s *Summary, values []T) {
	for _, v := range values {
		x := float64(v)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			s.Unusual++
			continue
		}
		s.Values++
		s.Mean += x
		s.Min, s.Max = min(s.Min, x), max(s.Max, x)
	}
}

// Same reports whether two moments of a shard have the same bits, wherever their entries are.
func (m *ReplayMoment) Same(o *ReplayMoment) (bool, error) {
	if m.layout.PageBytes != o.layout.PageBytes || m.Groups != o.Groups {
		return false, nil
	}
	one, other := make([]byte, m.layout.PageBytes), make([]byte, m.layout.PageBytes)
	for first := 0; first < m.Groups.Groups; first += m.layout.Slots {
		page := uint64(first / m.layout.Slots)
		if err := m.pages.Read(page, one); err != nil {
			return false, err
		}
		if err := o.pages.Read(page, other); err != nil {
			return false, err
		}
		if !slices.Equal(one, other) {
			return false, nil
		}
	}
	return true, nil
}

// moments are the moments that a Replayer keeps, the least recently used first. Its methods may be
// called from several goroutines.
type moments struct {
	most int64 // bytes

	mu  sync.Mutex
	all []*ReplayMoment
}

// maxMoments bounds the number of moments that are kept.
const maxMoments = 64

// add keeps a moment in place of a moment of the same entry, and forgets the least recently used
// ones.
func (k *moments) add(m *ReplayMoment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(o *ReplayMoment) bool {
		return o.identity == m.identity && o.Groups.Shard == m.Groups.Shard && o.Entry == m.Entry
	})
	k.all = append(k.all, m)
	total := int64(0)
	for i := len(k.all) - 1; i >= 0; i-- {
		total += k.all[i].pages.Bytes()
		if i < len(k.all)-1 && (total > k.most || len(k.all)-i > maxMoments) {
			k.all = slices.Delete(k.all, 0, i+1)
			break
		}
	}
}

// latest returns the latest moment of a shard up to an entry, and marks it as the most recently
// used; nil: there is none.
func (k *moments) latest(identity string, shard int, entry uint64) *ReplayMoment {
	k.mu.Lock()
	defer k.mu.Unlock()
	best := -1
	for i, m := range k.all {
		if m.identity == identity && m.Groups.Shard == shard && m.Entry <= entry &&
			(best < 0 || m.Entry > k.all[best].Entry) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	m := k.all[best]
	k.all = append(slices.Delete(k.all, best, best+1), m)
	return m
}

func (k *moments) drop(identity string, shard int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(m *ReplayMoment) bool {
		return m.identity == identity && m.Groups.Shard == shard
	})
}

func (k *moments) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = nil
}

// sortStarts brings snapshots into the order of their entries, the latest first.
func sortStarts(all []start) {
	slices.SortFunc(all, func(a, b start) int {
		return cmp.Or(cmp.Compare(b.entry, a.entry), cmp.Compare(a.ref.Name, b.ref.Name))
	})
}
