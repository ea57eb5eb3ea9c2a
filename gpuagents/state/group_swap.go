package state

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// swap takes the states of groups away and gives the groups other ones. The state of a group is the
// bytes of its variables and of the variables of its agents, in the order of the layout. A state
// moves between groups unchanged, because no cell but gru with weights by group computes with the
// number of its group; the specification of such a swarm is refused by the client.
func (s *groupState) swap(ctx context.Context, data []byte) (Answer, error) {
	ask, err := swarms.DecodeSwap(data)
	if err != nil {
		return Answer{}, err
	}
	size, bytes := s.groupBytes(), 0
	for _, g := range ask.Groups {
		if _, err := s.has.owns([]uint32{g.Group}, 1, "group"); err != nil {
			return Answer{}, jobs.Errorf(jobs.CodeInvalid, "swap: group %v", err)
		}
		switch {
		case len(g.State) != 0 && len(g.State) != size:
			return Answer{}, jobs.Errorf(
				jobs.CodeInvalid, "swap: group %d: a state of %d bytes: the groups of this swarm have %d", g.Group,
				len(g.State), size,
			)
		case g.Tag != "":
			bytes += (size+2)/3*4 + 6*len(g.Tag) + 32 // as JSON
		}
	}
	if bytes > swarms.MaxState {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "swap: an answer of %d bytes: ask for at most %d", bytes, swarms.MaxState,
		)
	}
	answer := swarms.Swapped{Version: jobs.Version, States: []swarms.TaggedState{}}
	var read, written []pager.Part
	for _, g := range ask.Groups {
		if g.Tag != "" {
			state := make([]byte, size)
			answer.States = append(answer.States, swarms.TaggedState{Tag: g.Tag, State: state})
			read = append(read, s.groupParts(g.Group-uint32(s.has.First), state)...)
		}
		state := g.State
		if len(state) == 0 {
			state = make([]byte, size)
		}
		written = append(written, s.groupParts(g.Group-uint32(s.has.First), state)...)
	}
	if err := s.memory.ReadAll(ctx, read); err != nil {
		return Answer{}, err
	}
	if err := s.memory.WriteAll(ctx, written); err != nil {
		return Answer{}, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return Answer{}, fmt.Errorf("encode the answer to a swap: %w", err)
	}
	return Answer{Kind: swarms.EntrySwapped, Data: out}, nil
}

func (s *groupState) groupBytes() (n int) {
	for _, v := range s.layout.Vars {
		of := v.Width * v.Elem.Bytes()
		if !v.Group {
			of *= s.layout.Agents
		}
		n += of
	}
	return n
}

// groupParts returns the parts of the page of a group of the shard that have its state, with their
// buffers in state, which has groupBytes bytes.
func (s *groupState) groupParts(group uint32, state []byte) (parts []pager.Part) {
	page, slot := uint64(group)/uint64(s.layout.Slots), int(group)%s.layout.Slots
	for i, v := range s.layout.Vars {
		agents := s.layout.Agents
		if v.Group {
			agents = 1
		}
		// The elements of all agents of a group are contiguous. In a variable that is Together, so
		// are the elements of an agent; otherwise each element has a row of all agents of the page.
		rows, bytes := v.Width, agents*v.Elem.Bytes()
		if v.Together {
			rows, bytes = 1, agents*v.Elem.Bytes()*v.Width
		}
		for c := range rows {
			off := int64(s.layout.Offsets[i]) + int64(c*s.layout.Slots+slot)*int64(bytes)
			parts = append(parts, pager.Part{Page: page, Off: off, Bytes: state[:bytes]})
			state = state[bytes:]
		}
	}
	return parts
}
