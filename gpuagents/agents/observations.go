package agents

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/staging"
)

// Observations are for agents, each with inputs of its own, and are where the device reads them. They may be observed any number of times.
// Their owner closes them before the Agents that loaded them.
type Observations struct {
	agents   *Agents
	n        int
	places   []int // index in the parcel by index; nil: the same
	launches []launch
	sets     []pages.Set // of pages, which launches need one after the other
	staged   *staged
}

// part is the observations of one launch, which address no agent twice, by their index in the parcel, and the set of pages that it
// needs.
type launch struct{ first, n, set int }

// Outcome is what became of observations, by their index: the vote of the agent after its step, and what its group decides by
// the votes of its agents after the launch. kernels.AgentNoVote stands for a refused observation and for a rule that was not met.
type Outcome struct {
	Report
	Votes, Decisions []byte
}

// Load brings observations to the device: inputs are [len(ids)][features]. An agent may have several, which take effect in
// their order, in a launch each. The slices are the caller's again. It costs a look at a bit of memory an observation.
func (a *Agents) Load(ids []uint32, inputs []float32) (*Observations, error) {
	if a.ranking == nil {
		a.ranking = NewRanking(a.n, a.cell.Agents)
	}
	defer a.ranking.Forget()
	launches, several := a.ranking.Rank(ids, nil)
	if !several {
		launches = nil
	}
	return a.load(ids, inputs, launches)
}

// load is Load of observations whose launches are known; nil: all are in the first.
func (a *Agents) load(ids []uint32, inputs []float32, launches []uint32) (o *Observations, err error) {
	features := a.cell.Features
	if len(ids)*features != len(inputs) || int64(len(ids)) > int64(^uint32(0)) {
		return nil, fmt.Errorf("%w: %d inputs for %d observations of %d features", ErrInvalid, len(inputs), len(ids), features)
	}
	o = &Observations{agents: a, n: len(ids)}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
			o = nil
		}
	}()
	all := o.split(ids, launches)
	if o.staged, err = a.takeStaging(all); err != nil {
		return o, err
	}
	toIDs, toInputs := section[uint32](o.staged, sectionIDs, all), section[float32](o.staged, sectionInputs, all*features)
	if o.places == nil {
		copy(toIDs, ids)
		copy(toInputs, inputs)
	}
	for i, place := range o.places {
		toIDs[place] = ids[i]
		copy(toInputs[place*features:], inputs[i*features:][:features])
	}
	return o, o.staged.upload(a)
}

// split cuts observations into launches, by the sets of pages that are held together and, within a set, by the launches of ranking,
// of which none has an agent twice. All agents of a group are in one page, so its votes and decisions do not depend on the sets. It
// returns how many places the observations take in the parcel, where each launch begins at a multiple of sixteen.
func (o *Observations) split(ids, launches []uint32) int {
	a := o.agents
	if a.counts == nil {
		a.counts = make([]uint32, a.pages)
	}
	var pages []uint64
	for _, id := range ids {
		if int64(id) >= a.n {
			continue
		}
		page := a.page(id)
		if a.counts[page]++; a.counts[page] == 1 {
			pages = append(pages, uint64(page))
		}
	}
	o.sets = a.memory.Place(pages, a.counts)
	defer func() {
		for _, set := range o.sets {
			for _, page := range set.Pages {
				a.counts[page] = 0
			}
		}
	}()
	if launches == nil && len(o.sets) == 1 {
		o.launches = []launch{{0, len(ids), 0}}
		return len(ids)
	}
	for i, set := range o.sets {
		for _, page := range set.Pages {
			a.counts[page] = uint32(i)
		}
	}
	placeOf := func(i int) (set, launch int) { // of an agent that there is not, any
		if len(o.sets) > 1 && int64(ids[i]) < a.n {
			set = int(a.counts[a.page(ids[i])])
		}
		if launches != nil {
			launch = int(launches[i])
		}
		return set, launch
	}
	counts := make([][]int, len(o.sets)) // by set and launch
	counts[0] = []int{0}
	for i := range ids {
		set, launch := placeOf(i)
		for len(counts[set]) <= launch {
			counts[set] = append(counts[set], 0)
		}
		counts[set][launch]++
	}
	end := 0
	for set := range counts { // counts become the next place of each
		for k, n := range counts[set] {
			o.launches = append(o.launches, launch{end, n, set})
			counts[set][k] = end
			end = (end + n + 15) &^ 15
		}
	}
	o.places = make([]int, len(ids))
	for i := range ids {
		set, launch := placeOf(i)
		o.places[i] = counts[set][launch]
		counts[set][launch]++
	}
	return end
}

// Step takes loaded observations: their agents hold the inputs, step once and vote; groups that were touched decide. What became
// of each stays on the device; see Outcome.
func (a *Agents) Step(ctx context.Context, o *Observations) (Report, error) {
	if o.agents != a || o.staged == nil {
		return Report{}, fmt.Errorf("%w: observations of others, or closed", ErrInvalid)
	}
	if a.inconsistent != nil {
		return Report{}, a.inconsistent
	}
	ctx = a.waits(ctx)                         // a part of a batch is no state to be in
	if a.pending && o.staged.onDevice == nil { // a launch that nobody has waited for may still read its head
		if err := a.stream.Sync(context.WithoutCancel(ctx)); err != nil { // the device bounds it
			return Report{}, fmt.Errorf("%w: %w", fault.ErrDevice, err)
		}
		a.pending = false
	}
	var sum Report
	next := 0
	if err := a.memory.Each(ctx, o.sets, pages.Random, func(i int) error {
		a.memory.MarkDirty(o.sets[i].Pages)
		for next < len(o.launches) && o.launches[next].set == i {
			n := 0
			for ; n < resultSlots && next < len(o.launches) && o.launches[next].set == i; n++ {
				next++
				if err := a.launchStep(ctx, o, o.launches[next-1], n); err != nil {
					return fmt.Errorf("%w: %w", fault.ErrDevice, errors.Join(err, a.stream.Sync(ctx)))
				}
			}
			r, err := a.await(ctx, n)
			if err != nil {
				return err
			}
			sum = Report{sum.Stepped + r.Stepped, sum.Outside + r.Outside, sum.Refused + r.Refused, r.Tally}
		}
		a.memory.CountAccesses(o.sets[i])
		return nil
	}); err != nil {
		if next > 0 && !a.memory.Resident() {
			a.inconsistent = fmt.Errorf("%w: a batch applied in part: %w", fault.ErrDevice, err)
		}
		return Report{}, err
	}
	a.memory.Exchange(o.sets)
	return sum, nil
}

// launchStep steps observations and decides their groups; slot is that of its result.
func (a *Agents) launchStep(ctx context.Context, o *Observations, p launch, slot int) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	if len(o.launches) == 1 && o.staged.onDevice == nil && p.n <= maxHostObservations && slot == 0 {
		return a.replay(ctx, o.staged, p.n)
	}
	return a.putStep(o.staged, p, uint32(p.n), slot)
}

// putStep puts the launches of launchStep into the stream. count is the number of observations, or kernels.AgentHeaded.
func (a *Agents) putStep(in *staged, p launch, count uint32, slot int) error {
	of := func(section, bytes int) device.Arg {
		return in.arg(section, int64(p.first)*int64(bytes), int64(p.n)*int64(bytes))
	}
	n, head := device.Uint32(count), in.arg(sectionHead, 0, 8)
	step := append(a.head(true), of(sectionIDs, 4), of(sectionInputs, 4*a.cell.Features), n, of(sectionVotes, 1), device.Ptr(a.scratch), a.memory.HostArena(), head)
	decide := append(a.head(false), of(sectionIDs, 4), of(sectionVotes, 1), n, device.Ptr(a.stamps), of(sectionDecisions, 1),
		device.Ptr(a.scratch), device.Uint32(a.sequence), a.resultOf(slot), a.memory.HostArena(), head)
	blocks, _, _ := a.cell.Shape()
	if err := a.stream.Launch(a.step, a.shape(blocks, 128, (p.n+127)/128), step...); err != nil {
		return err
	}
	return a.stream.Launch(a.decide, a.shape(decideBlocks, 128, (p.n+127)/128), decide...)
}

// Outcome reads what became of the observations in the last Step.
func (o *Observations) Outcome(ctx context.Context) (votes, decisions []byte, err error) {
	a := o.agents
	if o.staged == nil {
		return nil, nil, fmt.Errorf("%w: observations that are closed", ErrInvalid)
	}
	if err := o.staged.download(ctx, a); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	votes, decisions = make([]byte, o.n), make([]byte, o.n)
	all := o.n
	for _, p := range o.launches {
		all = max(all, p.first+p.n)
	}
	toVotes, toDecisions := section[byte](o.staged, sectionVotes, all), section[byte](o.staged, sectionDecisions, all)
	if o.places == nil {
		copy(votes, toVotes)
		copy(decisions, toDecisions)
	}
	for i, place := range o.places {
		votes[i], decisions[i] = toVotes[place], toDecisions[place]
	}
	return votes, decisions, nil
}

// Observe loads observations, steps their agents and says what became of them; see Load and Step.
func (a *Agents) Observe(ctx context.Context, ids []uint32, inputs []float32) (out Outcome, err error) {
	o, err := a.Load(ids, inputs)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if out.Report, err = a.Step(ctx, o); err != nil {
		return out, err
	}
	out.Votes, out.Decisions, err = o.Outcome(ctx)
	return out, err
}

// observeParts is Observe in parts, and says how often the device had no room for one. Votes, decisions and state are those of one part,
// because all observations of a group are in the same one. launches are those of load. After an error the state is undefined.
func (a *Agents) ObserveParts(ctx context.Context, parts *staging.Splitter, ids []uint32, inputs []float32, launches []uint32) (votes, decisions []byte, halved int, err error) {
	var order []int // observations by group, each group's in their order; nil: all at once have been enough so far
	var partIDs, partLaunches []uint32
	var partInputs []float32
	features, size := a.cell.Features, uint32(a.cell.Agents)
	halved, err = parts.Each(len(ids), func(from, most int) (end int, err error) {
		o := (*Observations)(nil)
		if end = from + most; end-from == len(ids) {
			o, err = a.load(ids, inputs, launches)
		} else {
			if order == nil {
				order = make([]int, len(ids))
				for i := range order {
					order[i] = i
				}
				sort.SliceStable(order, func(i, k int) bool { return ids[order[i]]/size < ids[order[k]]/size })
				votes, decisions = make([]byte, len(ids)), make([]byte, len(ids))
			}
			for end < len(ids) && ids[order[end-1]]/size == ids[order[end]]/size {
				end++
			}
			partIDs, partInputs, partLaunches = partIDs[:0], partInputs[:0], partLaunches[:0]
			for _, i := range order[from:end] {
				if launches != nil {
					partLaunches = append(partLaunches, launches[i])
				}
				partIDs, partInputs = append(partIDs, ids[i]), append(partInputs, inputs[i*features:][:features]...)
			}
			o, err = a.load(partIDs, partInputs, partLaunches)
		}
		if err != nil {
			return end, staging.AllocError(err)
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		if _, err := a.Step(ctx, o); err != nil {
			return end, err
		}
		v, d, err := o.Outcome(ctx)
		if err != nil {
			return end, err
		}
		if order == nil {
			votes, decisions = v, d
			return end, nil
		}
		for k, i := range order[from:end] {
			votes[i], decisions[i] = v[k], d[k]
		}
		return end, nil
	}, a.trim)
	return votes, decisions, halved, err
}

// Close gives the memory back to the Agents, after work whose wait was given up. A second call does nothing.
func (o *Observations) Close() (err error) {
	if o.staged == nil {
		return nil
	}
	if a := o.agents; a.pending {
		err = a.stream.Sync(context.Background()) // the device bounds it
	}
	o.agents.returnStaging(o.staged)
	o.staged = nil
	return err
}

// decideBlocks fill a multiprocessor with threads that wait for memory.
const decideBlocks = 16
