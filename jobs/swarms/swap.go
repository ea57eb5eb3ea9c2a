package swarms

import (
	"github.com/exoswarm/exoswarm/jobs"
)

// Kinds of swarms whose groups are addressed, for groups that other entities take over.
const (
	EntrySwap    = "swap"    // gives groups other states; Swap as JSON
	EntrySwapped = "swapped" // the answer to a swap; Swapped as JSON
)

// MaxTag bounds the name of a state in bytes.
const MaxTag = 4 << 10

// Swap takes the states of groups away and gives the groups other ones. It is applied as a whole.
type Swap struct {
	Version int         `json:"v"`
	Groups  []SwapGroup `json:"groups"` // each group at most once
}

// SwapGroup is a group of a Swap.
type SwapGroup struct {
	Group uint32 `json:"group"` // number in the swarm
	// Tag names the state that the group had in the answer, up to MaxTag bytes; empty: the answer
	// does not have it.
	Tag string `json:"tag,omitempty"`
	// State is the state that the group continues with, from an earlier answer; empty: its agents
	// begin in their initial state.
	State []byte `json:"state,omitempty"`
}

// Swapped has the states of the tagged groups of a Swap, in their order.
type Swapped struct {
	Version int           `json:"v"`
	States  []TaggedState `json:"states"`
}

// TaggedState is the state of a group of one cell with one specification. Its bytes are the
// variables in the order of the layout of a page, and mean nothing for another specification.
type TaggedState struct {
	Tag   string `json:"tag"`
	State []byte `json:"state"`
}

// DecodeSwap reads the data of an EntrySwap, as DecodeTick does.
func DecodeSwap(data []byte) (s Swap, err error) {
	if err := decodeEntry("swap", data, &s, &s.Version); err != nil {
		return s, err
	}
	if len(s.Groups) == 0 || len(s.Groups) > MaxAddressed {
		return s, invalid("swap: %d groups: use 1 to %d", len(s.Groups), MaxAddressed)
	}
	seen := make(map[uint32]bool, len(s.Groups))
	for _, g := range s.Groups {
		switch {
		case seen[g.Group]:
			return s, invalid("swap: group %d is named twice", g.Group)
		case len(g.Tag) > MaxTag:
			return s, invalid("swap: group %d has a tag of %d bytes: use at most %d", g.Group, len(g.Tag), MaxTag)
		}
		seen[g.Group] = true
	}
	return s, nil
}

// DecodeSwapped reads the data of an EntrySwapped.
func DecodeSwapped(data []byte) (s Swapped, err error) {
	return s, decodeEntry("swapped", data, &s, &s.Version)
}

// NewSwap returns a Swap of this version.
func NewSwap(groups []SwapGroup) Swap { return Swap{Version: jobs.Version, Groups: groups} }
