package agents

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// LeastSurveyed is the minimum number of observations of an entry for which stepping it alone,
// after a Survey, is faster than with other entries, after a Ranking. A launch and the wait for it
// cost some 60 us, and a Ranking with its split 40 ns for each observation.
const LeastSurveyed = 4096

// Survey is what is known of the ids of one entry before it is loaded: which observations are not
// the first of their agent, and which pages the agents are in. It is not changed.
type Survey struct {
	n       int
	repeats []repeat // in the order of the observations
	pages   []uint64 // each page once, in ascending order
}

// repeat is an observation of an agent that has an earlier one in the entry.
type repeat struct {
	index  int    // index of the observation
	launch uint32 // number of its launch: 1 for the second observation of its agent
}

// A Surveyor makes Surveys. Its memory is a bit for each agent, which a core reads and writes
// faster than the words for each group of a Ranking. One goroutine uses it.
type Surveyor struct {
	agents  int64
	perPage divisor
	seen    []uint64          // a bit for each agent, zeros between two calls
	touched []byte            // by page, zeros between two calls
	again   map[uint32]uint32 // by agent: its observations after the first
}

// NewSurveyor returns a Surveyor of ids of a.
func NewSurveyor(a *Agents) *Surveyor {
	return &Surveyor{
		agents: a.n, perPage: a.perPage, seen: make([]uint64, (a.n+63)/64), touched: make([]byte, a.pages),
		again: map[uint32]uint32{},
	}
}

// Survey examines the ids of an entry. Agents need not exist.
func (s *Surveyor) Survey(ids []uint32) *Survey {
	out := &Survey{n: len(ids)}
	for i, id := range ids {
		if int64(id) >= s.agents {
			continue
		}
		word, bit := &s.seen[id/64], uint64(1)<<(id%64)
		if *word&bit != 0 {
			s.again[id]++
			out.repeats = append(out.repeats, repeat{i, s.again[id]})
			continue
		}
		*word |= bit
		s.touched[s.perPage.of(id)] = 1
	}
	for page, touched := range s.touched {
		if touched != 0 {
			out.pages = append(out.pages, uint64(page))
		}
	}
	clear(s.touched)
	clear(s.again)
	if len(s.seen) <= clearedBytes/8*len(ids) {
		clear(s.seen)
		return out
	}
	for _, id := range ids {
		if int64(id) < s.agents {
			s.seen[id/64] = 0
		}
	}
	return out
}

// noAgent is the id at the index of an observation that a later launch steps.
const noAgent = ^uint32(0)

// Surveys reports whether n observations of one entry are stepped alone, after a Survey. The pages
// of their agents are on the device.
func Surveys(a *Agents, n int) bool { return n >= a.leastSurveyed && a.memory.Resident() }

// loadSurveyed is Load for surveyed observations. The observations are copied as they are, and
// stepped in the first launch. Repeats are copied behind them, for additional launches, and leave
// the id of no agent in the first launch.
func loadSurveyed(a *Agents, in rows, s *Survey) (o *Observations, err error) {
	began, features, ids := a.track.Now(), a.cell.Features, in.ids
	if err := in.check(a.cell); err != nil || len(ids) != s.n {
		return nil, errors.Join(err, fmt.Errorf("%w: %d observations, and a survey of %d", ErrInvalid, len(ids), s.n))
	}
	o = &Observations{agents: a, n: len(ids), sets: a.memory.PlanSets(slices.Clone(s.pages), nil)}
	all := o.plan(s.repeats)
	if o.staged, err = a.takeStaging(all); err != nil {
		return nil, err
	}
	toIDs := section[uint32](o.staged, sectionIDs, all)
	toInputs := section[float32](o.staged, sectionInputs, all*features)
	toItems := section[int32](o.staged, sectionItems, all*min(a.cell.Items, 1))
	_ = gpubatch.Copy([]gpubatch.Part{
		{To: device.Bytes(toIDs), From: device.Bytes(ids)},
		{To: device.Bytes(toInputs), From: device.Bytes(in.inputs)},
		{To: device.Bytes(toItems), From: device.Bytes(in.items)},
	}, nil)
	for _, m := range o.moved {
		toIDs[m.index], toIDs[m.position] = noAgent, ids[m.index]
		copy(toInputs[m.position*features:], in.inputs[m.index*features:][:features])
		if len(toItems) > 0 {
			toItems[m.position] = in.items[m.index]
		}
	}
	if err := o.staged.upload(a); err != nil {
		return o, fmt.Errorf("%w: load %d observations: %w", gpubatch.ErrDevice, len(ids), err)
	}
	a.track.End(gpubatch.StageUpload, began, in.bytes())
	return o, nil
}

// moved is an observation that is not at its index in the staging buffers.
type moved struct{ index, position int }

// plan makes the launches of observations with repeats, and the positions of the repeats in the
// staging buffers. It returns the number of positions; each launch starts at a multiple of 16.
func (o *Observations) plan(repeats []repeat) int {
	o.launches = []launch{{0, o.n, 0}}
	if len(repeats) == 0 {
		return o.n
	}
	for _, r := range repeats {
		for len(o.launches) <= int(r.launch) {
			o.launches = append(o.launches, launch{})
		}
		o.launches[r.launch].n++
	}
	end := o.n
	next := make([]int, len(o.launches)) // by launch: its next place
	for k := 1; k < len(o.launches); k++ {
		end = (end + 15) &^ 15
		next[k], o.launches[k].first = end, end
		end += o.launches[k].n
	}
	o.moved = make([]moved, len(repeats))
	for i, r := range repeats {
		o.moved[i] = moved{r.index, next[r.launch]}
		next[r.launch]++
	}
	return end
}
