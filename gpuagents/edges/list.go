// Package edges describes the links between the agents of a graph: lists of edges from files,
// packed lists, the edges of each agent, and links that a device generates.
package edges

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// ErrInvalid is an invalid list of edges. The text says where, and what to do.
var ErrInvalid = errors.New("invalid list of edges")

// MaxWeight is the largest weight of an edge, and -MaxWeight the smallest.
const MaxWeight = 32767

// MaxDelay is the largest delay of an edge, in ticks. The smallest is 1.
const MaxDelay = 32

// Edge is one edge. Weight is in 2^-16. Delay is the ticks that a spike takes over it.
type Edge struct {
	From, To uint32
	Weight   int32
	Delay    uint8
}

// WeightOne is the weight 1.
const WeightOne = 1 << 16

// List is edges, sorted by To, From, Weight and Delay. It is not changed after it was made.
type List struct {
	Edges []Edge
	// Weighted says that the edges have weights of their own. Else all are WeightOne.
	Weighted bool
	// Longest is the longest delay of an edge. It is 1 where all have the delay 1.
	Longest int
}

// newList makes a list of edges, and keeps the slice.
func newList(all []Edge, weighted bool) *List {
	slices.SortFunc(all, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From), cmp.Compare(a.Weight, b.Weight),
			cmp.Compare(a.Delay, b.Delay))
	})
	l := &List{Edges: all, Weighted: weighted, Longest: 1}
	for _, e := range all {
		l.Longest = max(l.Longest, int(e.Delay))
	}
	return l
}

// Agents returns the number of agents that the list needs: one more than the largest number in it.
func (l *List) Agents() int64 {
	most := int64(0)
	for _, e := range l.Edges {
		most = max(most, int64(e.From)+1, int64(e.To)+1)
	}
	return most
}

// Weights returns the smallest and the largest weight, in 2^-16; 0 and 0 of an empty list.
func (l *List) Weights() (least, most int32) {
	for i, e := range l.Edges {
		if i == 0 {
			least, most = e.Weight, e.Weight
		}
		least, most = min(least, e.Weight), max(most, e.Weight)
	}
	return least, most
}

// Rows is the edges of a list by agent. Columns[Offsets[i]:Offsets[i+1]] are the agents at the
// other ends of the edges of agent i.
type Rows struct {
	Offsets []uint64
	Columns []uint32
	Weights []int32 // by edge, in 2^-16; nil: all are 1
	Delays  []uint8 // by edge, in ticks, 1 to MaxDelay; nil: all are 1
}

// In returns the rows of n agents, which the caller owns: agent To has From. Edges that are not
// directed are in the rows of both, and one between an agent and itself once. It returns an
// ErrInvalid if the list has another agent.
func (l *List) In(n int64, directed bool) (*Rows, error) {
	return l.rows(n, directed, func(e Edge) (row, column uint32) { return e.To, e.From })
}

// Out is In with the ends of each edge exchanged: agent From has To.
func (l *List) Out(n int64, directed bool) (*Rows, error) {
	return l.rows(n, directed, func(e Edge) (row, column uint32) { return e.From, e.To })
}

func (l *List) rows(n int64, directed bool, of func(e Edge) (row, column uint32)) (*Rows, error) {
	if most := l.Agents(); most > n {
		return nil, fmt.Errorf("%w: it has agent %d, the swarm has %d, from 0 on: use more agents, or leave agents out",
			ErrInvalid, most-1, n)
	}
	each := func(f func(row, column uint32, e Edge)) {
		for _, e := range l.Edges {
			row, column := of(e)
			if f(row, column, e); !directed && row != column {
				f(column, row, e)
			}
		}
	}
	r := &Rows{Offsets: make([]uint64, n+1)}
	each(func(row, _ uint32, _ Edge) { r.Offsets[row+1]++ })
	for i := range n {
		r.Offsets[i+1] += r.Offsets[i]
	}
	next := slices.Clone(r.Offsets[:n])
	r.Columns = make([]uint32, r.Offsets[n])
	if l.Weighted {
		r.Weights = make([]int32, r.Offsets[n])
	}
	if l.Longest > 1 {
		r.Delays = make([]uint8, r.Offsets[n])
	}
	each(func(row, column uint32, e Edge) {
		at := next[row]
		r.Columns[at] = column
		if l.Weighted {
			r.Weights[at] = e.Weight
		}
		if r.Delays != nil {
			r.Delays[at] = e.Delay
		}
		next[row]++
	})
	return r, nil
}

// Read reads a list of text: an edge on each line, FROM,TO or FROM,TO,WEIGHT or
// FROM,TO,WEIGHT,DELAY, with the numbers of agents from 0 on. Commas, semicolons, spaces and tabs
// separate the values. Empty lines, lines that start with #, and a first line of names are skipped.
// Either all edges have a weight or none has, and likewise for delays. It reads at most most edges.
// The error is an ErrInvalid with the line, or an error of r.
func Read(r io.Reader, most int) (*List, error) {
	var all []Edge
	width, line := 0, 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line++
		text := strings.TrimSpace(lines.Text())
		if line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		if text == "" || text[0] == '#' {
			continue
		}
		fields := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(",; \t", c) })
		if width == 0 && isHeader(fields) {
			width = -len(fields)
			continue
		}
		if width <= 0 {
			if width < 0 && -width != len(fields) {
				return nil, fmt.Errorf("%w: line %d: %d values below %d names", ErrInvalid, line, len(fields), -width)
			}
			width = len(fields)
		}
		if len(fields) != width || width < 2 || width > 4 {
			return nil, fmt.Errorf("%w: line %d: %d values: write FROM,TO on all lines, or FROM,TO,WEIGHT on all, or "+
				"FROM,TO,WEIGHT,DELAY on all", ErrInvalid, line, len(fields))
		}
		if len(all) == most {
			return nil, fmt.Errorf("%w: line %d: more than %d edges: use fewer", ErrInvalid, line, most)
		}
		e := Edge{Weight: WeightOne, Delay: 1}
		for i, to := range []*uint32{&e.From, &e.To} {
			v, err := strconv.ParseUint(fields[i], 10, 32)
			if err != nil || v == math.MaxUint32 {
				return nil, fmt.Errorf("%w: line %d: agent %q: use a whole number from 0 to %d", ErrInvalid, line,
					clipped(fields[i]), uint32(math.MaxUint32-1))
			}
			*to = uint32(v)
		}
		if width > 2 {
			v, err := dialect.Float(fields[2], 64)
			if err != nil || !(math.Abs(v) <= MaxWeight) { // a NaN is not
				return nil, fmt.Errorf("%w: line %d: weight %q: use a number from %d to %d", ErrInvalid, line,
					clipped(fields[2]), -MaxWeight, MaxWeight)
			}
			e.Weight = int32(math.RoundToEven(v * WeightOne))
		}
		if width > 3 {
			v, err := strconv.ParseUint(fields[3], 10, 8)
			if err != nil || v < 1 || v > MaxDelay {
				return nil, fmt.Errorf("%w: line %d: delay %q: use a whole number of ticks from 1 to %d", ErrInvalid,
					line, clipped(fields[3]), MaxDelay)
			}
			e.Delay = uint8(v)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: line %d: %w", ErrInvalid, line+1, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: it has no edge: write FROM,TO on each line", ErrInvalid)
	}
	return newList(all, width > 2), nil
}

// isHeader reports whether the values of a first line are names.
func isHeader(fields []string) bool {
	for _, f := range fields {
		if c := f[0]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '"' {
			if _, err := strconv.ParseFloat(f, 64); err != nil { // NaN and Inf are no names
				continue
			}
		}
		return false
	}
	return len(fields) > 0
}

func clipped(text string) string { return text[:min(len(text), 40)] }
