package state

import (
	"context"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// plan groups the observations of a batch into runs, one for each group, in the order of the batch:
// s.order[k] is the index in the batch of observation k of the kernel. The frame of a run is the
// number of its page. groups are numbers of the shard. It returns false when the batch is in that
// order already. It needs s.seen to be -1 for all groups, and leaves it so.
func (s *groupState) plan(groups []uint32) (moved bool) {
	s.runs = s.runs[:0]
	contiguous := true // so far the observations of each group follow one another
	for i, g := range groups {
		r := s.seen[g]
		switch {
		case r < 0:
			s.seen[g] = int32(len(s.runs))
			s.runs = append(s.runs, kernels.Run{
				Frame: g / uint32(s.layout.Slots), Slot: g % uint32(s.layout.Slots), First: uint32(i), Count: 1,
				Group: uint32(s.has.First) + g,
			})
		default:
			if i > 0 && groups[i-1] != g {
				contiguous = false
			}
			s.runs[r].Count++
		}
	}
	if !contiguous {
		first := uint32(0)
		for i := range s.runs {
			s.runs[i].First = first
			first += s.runs[i].Count
		}
		// A counting sort by run, which keeps the order within a group.
		s.order = slices.Grow(s.order[:0], len(groups))[:len(groups)]
		next := make([]uint32, len(s.runs))
		for i, g := range groups {
			r := s.seen[g]
			s.order[s.runs[r].First+next[r]] = i
			next[r]++
		}
	}
	for _, g := range groups {
		s.seen[g] = -1
	}
	// Long runs first: blocks start in this order, and the longest run decides when the launch
	// ends.
	slices.SortStableFunc(s.runs, func(a, b kernels.Run) int { return int(b.Count) - int(a.Count) })
	return !contiguous
}

// gather returns a copy of rows of width elements in the order of the kernel: row k of the result
// is row order[k] of src. scatter is its inverse.
func gather[T any](order []int, src []T, width int) []T {
	dst := make([]T, len(src))
	for k, i := range order {
		copy(dst[k*width:(k+1)*width], src[i*width:(i+1)*width])
	}
	return dst
}

// scatter copies rows of width elements out of the order of the kernel. src is not changed.
func scatter[T any](order []int, src []T, width int) []T {
	dst := make([]T, len(src))
	for k, i := range order {
		copy(dst[i*width:(i+1)*width], src[k*width:(k+1)*width])
	}
	return dst
}

// sets cuts the pages of the runs into sets that are pinned together, and sorts the runs by sets:
// the runs of set i end before ends[i]. plan has run before. A set has at most as many pages as
// there are frames.
func (s *groupState) sets() (sets []pages.Set, ends []int) {
	var pages []uint64
	for _, r := range s.runs {
		if s.rows[r.Frame] == 0 {
			pages = append(pages, uint64(r.Frame))
		}
		s.rows[r.Frame] += r.Count
	}
	sets = s.memory.PlanSets(pages, s.rows)
	for _, r := range s.runs {
		s.rows[r.Frame] = 0
	}
	if len(sets) == 1 {
		return sets, []int{len(s.runs)}
	}
	setOf := make(map[uint32]int, len(pages))
	for i, set := range sets {
		for _, page := range set.Pages {
			setOf[uint32(page)] = i
		}
	}
	slices.SortStableFunc(s.runs, func(a, b kernels.Run) int { return setOf[a.Frame] - setOf[b.Frame] })
	ends = make([]int, len(sets))
	for _, r := range s.runs {
		ends[setOf[r.Frame]]++
	}
	for i := range ends[1:] {
		ends[i+1] += ends[i]
	}
	return sets, ends
}

// launch steps the runs from first up to end, whose pages are pinned. No earlier launch may be
// running. It does not wait for the device: the caller syncs the stream.
func (s *groupState) launch(first, end int) error {
	words := make([]uint32, 0, kernels.RunWords*(end-first))
	for _, r := range s.runs[first:end] {
		r.Frame = s.memory.Frame(int(r.Frame))
		words = r.Words(words)
	}
	if err := s.staging[ioRuns].Memory.Write(0, device.Bytes(words)); err != nil {
		return err
	}
	io := func(of int) device.Arg { return device.Ptr(s.staging[of].Memory) }
	g := device.Geometry{Grid: end - first, Block: blockSize(s.layout.Agents, s.dev.Properties().MaxThreadsPerBlock)}
	return s.stream.Launch(s.kernel, g, kernels.ObserveArgs{
		Pages: device.Ptr(s.memory.Arena()), PageBytes: uint64(s.layout.PageBytes), Layout: device.Ptr(s.layoutTable),
		Params: device.Ptr(s.params), Weights: device.Ptr(s.weights),
		Runs: device.Range(s.staging[ioRuns].Memory, 0, int64(4*len(words))), Times: io(ioTimes),
		Features: io(ioFeatures), Scores: io(ioScores), Decisions: io(ioDecisions), Counts: io(ioCounts),
		Leaders: io(ioLeaders), Rounds: io(ioRounds), Host: s.memory.HostArena(),
	}.Args()...)
}

// observe steps the agents of the addressed groups in the order of the batch. It returns a decision
// for each observation, and how often the device had no memory for a part. obs has passed check.
// After an error the state is undefined, and the shard starts again from its checkpoint. The
// splitter reports in halved how often it cut a part into two.
func (s *groupState) observe(
	ctx context.Context, obs *batch.Observations,
) (dec *batch.Decisions, halved int, err error) {
	n, candidates := obs.Len(), len(s.bound.Cell.Candidates)
	dec = &batch.Decisions{
		Group: obs.Group, Row: obs.Row, Read: obs.Read, Timestamp: obs.Timestamp, Value: obs.Value,
		Score: make([]float32, n), Decision: make([]uint32, n), Candidates: candidates,
		Counts: make([]uint32, n*candidates), Leader: make([]uint64, n), Round: make([]uint64, n),
	}
	if s.bound.Drop != 0 {
		dec.Dropped = make([]uint8, n)
	}
	// Observations take effect in their order wherever the batch is cut, so that answers do not
	// depend on cuts.
	halved, err = s.splitter.Each(n, func(from, most int) (int, error) {
		to := min(n, from+most)
		return to, s.observePart(ctx, obs, dec, from, to)
	}, s.trim)
	return dec, halved, err
}

// trim releases the staging buffers, and the memory that the device caches. The splitter calls it
// before it tries a part again with half of the observations.
func (s *groupState) trim() error {
	for i := range s.staging {
		if err := s.staging[i].Close(); err != nil {
			return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
		}
	}
	if _, err := s.dev.Trim(); err != nil {
		return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
	}
	return nil
}

// observePart applies the observations from one index up to another, and writes their decisions to
// the same positions of whole. A gpubatch.ErrNoMemory has changed nothing, so the caller may try a
// smaller part. After any other error the pages are undefined. from and to are indices of
// observations.
func (s *groupState) observePart(
	ctx context.Context, all *batch.Observations, whole *batch.Decisions, from, to int,
) error {
	n, candidates := to-from, len(s.bound.Cell.Candidates)
	obs := &batch.Observations{
		Group: all.Group[from:to], // of the swarm
		Time:  all.Time[from:to],
	}
	dec := &batch.Decisions{
		Score:    whole.Score[from:to],
		Decision: whole.Decision[from:to],
		Counts:   whole.Counts[from*candidates : to*candidates],
		Round:    whole.Round[from:to],
	}
	// The kernel steps a run of each group, so the observations of a group must follow one another.
	groups := obs.Group
	if s.has.First > 0 {
		s.local = s.has.local(s.local[:0], groups, 1)
		groups = s.local
	}
	moved := s.plan(groups)
	sets, ends := s.sets()
	times, features := obs.Time, all.Doubles(from, to)
	if moved {
		times, features = gather(s.order, times, 1), gather(s.order, features, s.inputs)
	}
	began := s.track.Now()
	// Everything is allocated before a page changes, so that a lack of memory changes nothing.
	leaders := make([]uint32, n)
	outputs := [8][]byte{
		ioScores: device.Bytes(dec.Score), ioDecisions: device.Bytes(dec.Decision), ioCounts: device.Bytes(dec.Counts),
		ioLeaders: device.Bytes(leaders), ioRounds: device.Bytes(dec.Round),
	}
	sizes := [8]int{ioRuns: 4 * kernels.RunWords * len(s.runs)} // written later
	uploaded, returned := 0, 0
	for i, data := range [8][]byte{ioTimes: device.Bytes(times), ioFeatures: device.Bytes(features)} {
		uploaded, returned = uploaded+len(data), returned+len(outputs[i])
		if err := s.staging[i].Grow(s.dev, max(len(data), len(outputs[i]), sizes[i]), ioPurpose[i]); err != nil {
			return gpubatch.AllocError(err)
		}
		if err := s.staging[i].Memory.Write(0, data); err != nil {
			return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
		}
	}
	began = s.track.End(gpubatch.StageUpload, began, uploaded)
	// A launch for each set of pages, while the next set is paged in.
	first := 0
	if err := s.memory.Each(ctx, sets, pages.Random, func(i int) error {
		if !s.memory.Resident() {
			began = s.track.End(gpubatch.StagePage, began, len(sets[i].Pages)*s.layout.PageBytes)
		}
		if err := s.launch(first, ends[i]); err != nil {
			return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
		}
		first = ends[i]
		s.memory.MarkDirty(sets[i].Pages)
		if err := s.stream.Sync(ctx); err != nil {
			return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
		}
		s.memory.CountAccesses(sets[i])
		began = s.track.End(gpubatch.StageKernel, began, 0)
		return nil
	}); err != nil {
		return err
	}
	s.memory.Exchange(sets)
	for i, data := range outputs {
		if err := s.staging[i].Memory.Read(0, data); err != nil {
			return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
		}
	}
	s.track.End(gpubatch.StageReadBack, began, returned)
	// The answers are in the order of the batch again.
	if moved {
		copy(dec.Score, scatter(s.order, dec.Score, 1))
		copy(dec.Decision, scatter(s.order, dec.Decision, 1))
		copy(dec.Round, scatter(s.order, dec.Round, 1))
		copy(dec.Counts, scatter(s.order, dec.Counts, candidates))
		leaders = scatter(s.order, leaders, 1)
	}
	// The kernel numbers leaders within their group.
	for i, l := range leaders {
		whole.Leader[from+i] = uint64(obs.Group[i])*uint64(s.layout.Agents) + uint64(l)
	}
	if whole.Dropped != nil {
		markDropped(dec.Decision, whole.Dropped[from:to])
	}
	return nil
}

// markDropped moves the reasons why observations were dropped from decisions to dropped. Both have
// an element for each observation.
func markDropped(decisions []uint32, dropped []uint8) {
	for i, d := range decisions {
		switch d {
		case kernels.DroppedLate:
			dropped[i], decisions[i] = batch.DroppedLate, batch.NoDecision
		case kernels.DroppedDuplicate:
			dropped[i], decisions[i] = batch.DroppedDuplicate, batch.NoDecision
		}
	}
}

// blockSize returns the threads of a block: one for each agent in whole warps, up to the limit of
// the device. A device that states no limit counts as one of 1,024 threads.
func blockSize(agents, most int) int {
	if most < 32 {
		most = 1024
	}
	return min((agents+31)/32*32, most)
}
