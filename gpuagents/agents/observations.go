package agents

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Observations are observations of agents, with inputs, in memory that the device reads. They may
// be stepped any number of times. Their owner closes them before the Agents that loaded them.
type Observations struct {
	agents    *Agents // the Agents that loaded them
	n         int     // observations
	positions []int   // by observation: its position in the staging buffers; nil: the same, except for moved
	moved     []moved // by a Survey
	launches  []launch
	sets      []pages.Set // sets of pages, for launches in this order
	staged    *staged     // nil: they are closed
	fetch     bool        // Step puts the copy of its outcome into the stream
	fetched   bool        // Step has enqueued the copy
	both      []byte      // memory for votes and decisions that Step has made; nil: Outcome makes it
}

// launch is a range of observations in the staging buffers. It addresses no agent twice, and its
// pages are in one set.
type launch struct{ first, n, set int }

// Outcome is the result of observations, by their index: the vote of the agent after its step, and
// the decision of its group after the launch. kernels.AgentNoVote stands for a refused observation
// and for a rule that was not met. Scores are nil for a cell without items; a score is from 0 to 1,
// or NaN where an observation asks for none or was refused.
type Outcome struct {
	Report
	Votes, Decisions []byte // by observation; the slices are the caller's
	Scores           []float32
}

// Load copies observations to memory that the device reads: values are [len(ids)][Cell().Width()].
// Several observations of an agent take effect in their order, in a launch each. They ask for no
// scores. The slices are the caller's again.
func (a *Agents) Load(ids []uint32, values []float32) (*Observations, error) {
	in, err := a.rowsOf(ids, values, nil)
	if err != nil {
		return nil, err
	}
	return a.loadUnranked(in)
}

// loadUnranked is Load for rows.
func (a *Agents) loadUnranked(in rows) (*Observations, error) {
	ids := in.ids
	if a.RanksOnDevice(len(ids)) {
		if o, err := loadMarked(a, in); o != nil || err != nil {
			return o, err
		}
	}
	if Surveys(a, len(ids)) {
		if a.surveyor == nil {
			a.surveyor = NewSurveyor(a)
		}
		return loadSurveyed(a, in, a.surveyor.Survey(ids))
	}
	if a.distinct.all(ids) {
		return a.load(in, nil)
	}
	if a.ranking == nil {
		a.ranking = NewRanking(a.n, a.cell.Agents)
	}
	defer a.ranking.Forget()
	launches, several := a.ranking.Rank(ids, nil)
	if !several {
		launches = nil
	}
	return a.load(in, launches)
}

// load is Load with the launch number of each observation; nil: all are in the first launch.
func (a *Agents) load(in rows, launches []uint32) (o *Observations, err error) {
	began := a.track.Now()
	features, ids, inputs := a.cell.Features, in.ids, in.inputs
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
	toIDs := section[uint32](o.staged, sectionIDs, all)
	toInputs := section[float32](o.staged, sectionInputs, all*features)
	toItems := section[int32](o.staged, sectionItems, all*min(a.cell.Items, 1))
	if o.positions == nil {
		copy(toIDs, ids)
		copy(toInputs, inputs)
		copy(toItems, in.items)
	}
	for i, at := range o.positions {
		toIDs[at] = ids[i]
		copy(toInputs[at*features:], inputs[i*features:][:features])
		if len(toItems) > 0 {
			toItems[at] = in.items[i]
		}
	}
	err = o.staged.upload(a)
	a.track.End(gpubatch.StageUpload, began, in.bytes())
	return o, err
}

// split cuts observations into launches by the sets of pages and, within a set, by the launches of
// a Ranking. A launch has no agent twice. All agents of a group are in one page, so its votes and
// decisions do not depend on the sets. It returns the number of positions in the staging buffers;
// each launch starts at a multiple of 16.
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
	o.sets = a.memory.PlanSets(pages, a.counts)
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
	launchOf := func(i int) (set, launch int) { // an agent that does not exist is in the first set
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
		set, launch := launchOf(i)
		for len(counts[set]) <= launch {
			counts[set] = append(counts[set], 0)
		}
		counts[set][launch]++
	}
	end := 0
	for set := range counts { // counts become the next position of each launch
		for k, n := range counts[set] {
			o.launches = append(o.launches, launch{end, n, set})
			counts[set][k] = end
			end = (end + n + 15) &^ 15
		}
	}
	o.positions = make([]int, len(ids))
	for i := range ids {
		set, launch := launchOf(i)
		o.positions[i] = counts[set][launch]
		counts[set][launch]++
	}
	return end
}

// Step has the agents of loaded observations take the inputs, step once and vote; their groups
// decide. The outcome stays on the device; see Outcome.
func (a *Agents) Step(ctx context.Context, o *Observations) (Report, error) {
	if o.agents != a || o.staged == nil {
		return Report{}, fmt.Errorf("%w: observations of others, or closed", ErrInvalid)
	}
	if a.inconsistent != nil {
		return Report{}, a.inconsistent
	}
	a.fresh = false
	ctx = waits(ctx, a.memory)                 // a batch applied in part would be an inconsistent state
	if a.pending && o.staged.onDevice == nil { // a launch without a wait may still read its head
		if err := a.stream.Sync(context.WithoutCancel(ctx)); err != nil { // the device bounds it
			return Report{}, gpubatch.Failed(err)
		}
		a.pending = false
	}
	var sum Report
	next, began := 0, a.track.Now()
	if err := a.memory.Each(ctx, o.sets, pages.Random, func(i int) error {
		began = a.paged(began, o.sets[i])
		a.memory.MarkDirty(o.sets[i].Pages)
		for next < len(o.launches) && o.launches[next].set == i {
			n := 0
			for ; n < resultSlots && next < len(o.launches) && o.launches[next].set == i; n++ {
				next++
				if err := a.launchStep(ctx, o, o.launches[next-1], n); err != nil {
					return gpubatch.Failed(errors.Join(err, a.stream.Sync(ctx)))
				}
			}
			if o.fetched = o.fetch && next == len(o.launches); o.fetched {
				if err := o.staged.fetch(a); err != nil {
					return gpubatch.Failed(errors.Join(err, a.stream.Sync(ctx)))
				}
			}
			if o.fetched && o.positions == nil && o.staged.onDevice != nil {
				o.both = touched(int(o.staged.offsets[sectionDecisions]-o.staged.offsets[sectionVotes]) + o.n)
			}
			r, err := a.await(ctx, n)
			if err != nil {
				return err
			}
			a.pending = o.fetched && o.staged.onDevice != nil
			sum = Report{sum.Stepped + r.Stepped, sum.Outside + r.Outside, sum.Refused + r.Refused, r.Tally}
		}
		a.memory.CountAccesses(o.sets[i])
		began = a.track.End(gpubatch.StageKernel, began, 0)
		return nil
	}); err != nil {
		if next > 0 && !a.memory.Resident() {
			a.inconsistent = fmt.Errorf("%w: a batch applied in part: %w", gpubatch.ErrDevice, err)
		}
		return Report{}, err
	}
	a.memory.Exchange(o.sets)
	sum.Outside -= uint64(len(o.moved)) // each moved observation has left an id of no agent
	return sum, nil
}

// launchStep steps observations and decides their groups. slot is the slot of its result.
func (a *Agents) launchStep(ctx context.Context, o *Observations, p launch, slot int) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	if len(o.launches) == 1 && o.staged.onDevice == nil && p.n <= maxHostObservations && slot == 0 {
		return o.staged.replay(ctx, a, p.n)
	}
	return a.putStep(o.staged, p, uint32(p.n), slot)
}

// putStep enqueues the kernels of launchStep: step, scores and decisions. count is the number of
// observations, or kernels.AgentHeaded.
func (a *Agents) putStep(in *staged, p launch, count uint32, slot int) error {
	of := func(section, bytes int) device.Arg {
		return in.arg(section, int64(p.first)*int64(bytes), int64(p.n)*int64(bytes))
	}
	blocks, _, _ := a.cell.Shape()
	paged, ids, votes, head := a.pagedArgs(), of(sectionIDs, 4), of(sectionVotes, 1), in.arg(sectionHead, 0, 8)
	err := a.stream.Launch(a.step, a.shape(blocks, 128, (p.n+127)/128), kernels.StepArgs{
		PagedArgs: paged, Table: device.Ptr(a.weights), Groups: uint32(a.groups), Agents: ids,
		Inputs: of(sectionInputs, 4*a.cell.Features), Count: count, Votes: votes, Scratch: device.Ptr(a.scratch),
		Host: a.memory.HostArena(), Head: head,
	}.Args()...)
	if err != nil {
		return err
	}
	shape := a.shape(decideBlocks, 128, (p.n+127)/128)
	if a.score != nil {
		first, n := a.cell.ItemWords()
		if err := a.stream.Launch(a.score, shape, kernels.ScoreArgs{
			PagedArgs: paged, Table: device.Range(a.weights, 4*int64(first), 4*int64(n)), Groups: uint32(a.groups),
			Agents: ids, Items: of(sectionItems, 4), Count: count, Votes: votes, Of: uint32(a.cell.Items),
			Scores: of(sectionScores, 4), Host: a.memory.HostArena(), Head: head,
		}.Args()...); err != nil {
			return err
		}
	}
	return a.stream.Launch(a.decide, shape, kernels.StepDecideArgs{
		PagedArgs: paged, Groups: uint32(a.groups), Agents: ids, Votes: votes, Count: count,
		Stamps: device.Ptr(a.stamps), Decisions: of(sectionDecisions, 1), Scratch: device.Ptr(a.scratch),
		Number: a.sequence, Result: a.resultOf(slot), Host: a.memory.HostArena(), Head: head,
	}.Args()...)
}

// Outcome reads the votes and decisions of the last Step. The slices are the caller's.
func (o *Observations) Outcome(ctx context.Context) (votes, decisions []byte, err error) {
	a := o.agents
	if o.staged == nil {
		return nil, nil, fmt.Errorf("%w: observations that are closed", ErrInvalid)
	}
	began := a.track.Now()
	if !o.fetched {
		if err := o.staged.fetch(a); err != nil {
			return nil, nil, gpubatch.Failed(err)
		}
	}
	o.fetched = false
	if a.pending { // else kernels have written the outcome in host memory
		if err := a.stream.Sync(ctx); err != nil {
			return nil, nil, gpubatch.Failed(err)
		}
		a.pending = false
	}
	defer func() { a.track.End(gpubatch.StageReadBack, began, 2*o.n) }()
	if o.positions == nil {
		at, to := o.staged.offsets[sectionVotes], o.staged.offsets[sectionDecisions]
		both := o.both
		if o.both = nil; both == nil {
			both = make([]byte, to-at+int64(o.n))
		}
		_ = gpubatch.Copy([]gpubatch.Part{{To: both, From: o.staged.host.Bytes()[at : to+int64(o.n)]}}, nil)
		votes, decisions = both[:o.n:o.n], both[to-at:]
		toVotes, toDecisions := o.outcomes()
		for _, m := range o.moved {
			votes[m.index], decisions[m.index] = toVotes[m.position], toDecisions[m.position]
		}
		return votes, decisions, nil
	}
	votes, decisions = make([]byte, o.n), make([]byte, o.n)
	toVotes, toDecisions := o.outcomes()
	for i, at := range o.positions {
		votes[i], decisions[i] = toVotes[at], toDecisions[at]
	}
	return votes, decisions, nil
}

func (o *Observations) outcomes() (votes, decisions []byte) {
	all := o.staging()
	return section[byte](o.staged, sectionVotes, all), section[byte](o.staged, sectionDecisions, all)
}

// staging returns the number of positions in the staging buffers.
func (o *Observations) staging() int {
	all := o.n
	for _, p := range o.launches {
		all = max(all, p.first+p.n)
	}
	return all
}

// scores copies the scores that Outcome has read; nil for a cell without items.
func (o *Observations) scores() []float32 {
	if o.agents.cell.Items == 0 {
		return nil
	}
	from, scores := section[float32](o.staged, sectionScores, o.staging()), make([]float32, o.n)
	copy(scores, from)
	for i, at := range o.positions {
		scores[i] = from[at]
	}
	for _, m := range o.moved {
		scores[m.index] = from[m.position]
	}
	return scores
}

// touched returns bytes whose pages are mapped: the host takes the page faults while the device
// works, and not while it copies.
func touched(n int) []byte {
	const page = 4096
	b := make([]byte, n)
	for i := 0; i < n; i += page {
		b[i] = 1
	}
	return b
}

// Observe loads observations, steps their agents and returns the outcome; see Load and Step.
func (a *Agents) Observe(ctx context.Context, ids []uint32, inputs []float32) (out Outcome, err error) {
	o, err := a.Load(ids, inputs)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	o.fetch = true
	if out.Report, err = a.Step(ctx, o); err != nil {
		return out, err
	}
	if out.Votes, out.Decisions, err = o.Outcome(ctx); err == nil {
		out.Scores = o.scores()
	}
	return out, err
}

// Launches are the numbers of the launches of observations, by observation; nil: all are in the
// first.
type Launches struct {
	Numbers []uint32 // from a Ranking
	// Unknown reports that the observations are from one entry and not ranked.
	Unknown bool
	// Survey describes the observations, which are from one entry; nil: they were not surveyed.
	Survey *Survey
}

// ObserveParts is Observe in parts; halved is the number of times that the device had no memory for
// a part. items has the item of each observation whose score it asks for, from 0 to Cell().Items-1,
// or kernels.AgentNoItem; nil: none asks. All observations of a group are in the same part, so the
// outcome and the state do not depend on the parts. The outcome is without a Report. After an error
// the state is undefined.
func (a *Agents) ObserveParts(
	ctx context.Context, parts *gpubatch.Splitter, ids []uint32, values []float32, items []int32, ranked Launches,
) (out Outcome, halved int, err error) {
	in, err := a.rowsOf(ids, values, items)
	if err != nil {
		return out, 0, err
	}
	launches := ranked.Numbers
	load := a.load
	if ranked.Unknown || ranked.Survey != nil {
		load = func(part rows, _ []uint32) (*Observations, error) { return a.loadUnranked(part) }
	}
	// observations by group, in their order within a group; nil: there was memory for all at once
	// so far
	var order []int
	var partLaunches []uint32
	var part rows
	size := uint32(a.cell.Agents)
	halved, err = parts.Each(len(ids), func(from, most int) (end int, err error) {
		o := (*Observations)(nil)
		if end = from + most; end-from == len(ids) && ranked.Survey != nil && a.memory.Resident() {
			o, err = loadSurveyed(a, in, ranked.Survey) // a part is in another order
		} else if end-from == len(ids) {
			o, err = load(in, launches)
		} else {
			if order == nil {
				order = make([]int, len(ids))
				for i := range order {
					order[i] = i
				}
				sort.SliceStable(order, func(i, k int) bool { return ids[order[i]]/size < ids[order[k]]/size })
				out = Outcome{Votes: make([]byte, len(ids)), Decisions: make([]byte, len(ids))}
				if a.cell.Items > 0 {
					out.Scores = make([]float32, len(ids))
				}
			}
			for end < len(ids) && ids[order[end-1]]/size == ids[order[end]]/size {
				end++
			}
			part, partLaunches = rows{part.ids[:0], part.inputs[:0], part.items[:0]}, partLaunches[:0]
			for _, i := range order[from:end] {
				if launches != nil {
					partLaunches = append(partLaunches, launches[i])
				}
				part.pick(a.cell, in, i)
			}
			o, err = load(part, partLaunches)
		}
		if err != nil {
			return end, gpubatch.AllocError(err)
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		o.fetch = true
		if _, err := a.Step(ctx, o); err != nil {
			return end, err
		}
		v, d, err := o.Outcome(ctx)
		if err != nil {
			return end, err
		}
		scores := o.scores()
		if order == nil {
			out = Outcome{Votes: v, Decisions: d, Scores: scores}
			return end, nil
		}
		for k, i := range order[from:end] {
			out.Votes[i], out.Decisions[i] = v[k], d[k]
			if scores != nil {
				out.Scores[i] = scores[k]
			}
		}
		return end, nil
	}, func() error { return trim(a) })
	return out, halved, err
}

// Close gives the memory back to the Agents, after the end of work that nobody has waited for. A
// second call does nothing.
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

// decideBlocks is the number of blocks for each multiprocessor: enough threads to hide the latency
// of memory.
const decideBlocks = 16
