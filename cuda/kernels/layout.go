package kernels

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Elem is the element type of a state variable.
type Elem uint8

// The element types of state.
const (
	F32 Elem = iota + 1
	U32
	U64
	U8
	BF16
	I64
)

// Bytes is the size of one element.
func (e Elem) Bytes() int {
	switch e {
	case U64, I64:
		return 8
	case BF16:
		return 2
	case U8:
		return 1
	}
	return 4
}

// Var is one state variable of a cell. An agent variable has Width elements an agent, a group
// variable Width elements a group.
type Var struct {
	Name  string
	Elem  Elem
	Width int
	Group bool
	// Together reports whether the elements of one agent, or of one group, are consecutive: for
	// variables of agents that are addressed one by one, so that an agent's elements are one
	// stretch of memory and not Width stretches.
	Together bool
}

// varAlign is the alignment of each variable inside a page: one coalesced access of a warp of
// 8-byte elements.
const varAlign = 256

// Layout places the state of whole groups in a page of fixed size, variable-major: element c of
// variable v of agent a in the group at slot s stands at byte
//
//	Offsets[v] + ((c*Slots + s)*Agents + a) * Elem.Bytes()
//
// and the element of a group variable at Offsets[v] + (c*Slots + s) * Elem.Bytes(). Where the
// variable is Together, they stand at
//
//	Offsets[v] + ((s*Agents + a)*Width + c) * Elem.Bytes()
//
// and at Offsets[v] + (s*Width + c) * Elem.Bytes(). A page of zeros is the state of groups that
// have seen nothing.
type Layout struct {
	Vars      []Var
	Agents    int // agents a group
	Slots     int // groups a page
	PageBytes int
	Offsets   []uint32 // by variable, multiples of 256
}

// NewLayout fits as many groups as possible into a page. A group never spans two pages, so a page
// that cannot hold one is an error that says how large it must be.
func NewLayout(vars []Var, agents, pageBytes int) (Layout, error) {
	if agents < 1 || pageBytes < varAlign {
		return Layout{}, fmt.Errorf("layout: %d agents a group in pages of %d bytes: %w", agents, pageBytes,
			device.ErrInvalidArgument)
	}
	perGroup := 0
	for _, v := range vars {
		perGroup += v.bytes(agents, 1)
	}
	for slots := max(pageBytes/max(perGroup, 1), 1); slots > 0; slots-- {
		l := Layout{Vars: vars, Agents: agents, Slots: slots, PageBytes: pageBytes, Offsets: make([]uint32, len(vars))}
		end := 0
		for i, v := range vars {
			l.Offsets[i] = uint32(end)
			end += (v.bytes(agents, slots) + varAlign - 1) / varAlign * varAlign
		}
		if end <= pageBytes {
			return l, nil
		}
		if slots == 1 {
			return Layout{}, fmt.Errorf("layout: a group of %d agents needs a page of %d bytes, page_size is %d: %w",
				agents, end, pageBytes, device.ErrInvalidArgument)
		}
	}
	panic("unreachable: the loop ends at one slot")
}

func (v Var) bytes(agents, slots int) int {
	n := v.Width * v.Elem.Bytes() * slots
	if !v.Group {
		n *= agents
	}
	return n
}

// Table is the layout as a kernel reads it: Agents, Slots, then the offsets.
func (l Layout) Table() []uint32 {
	return append([]uint32{uint32(l.Agents), uint32(l.Slots)}, l.Offsets...)
}
