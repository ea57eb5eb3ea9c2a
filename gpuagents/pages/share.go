package pages

import (
	"context"
	"math"
	"slices"
	"time"
)

// Shards share the frames of a budget by max-min fairness. The goal of a shard is the number of its
// pages, or the fair share, which is equal for all shards with more pages. A shard alone may have
// everything. A shard that did nothing for shareIdle counts with its least. A shard above its goal
// gives frames back when another lacks them, the coldest pages first, between two of its batches.

// share is what a budget knows of the use of an allocation. The mutex of the budget guards it.
type share struct {
	known bool          // its memory was opened, so gives is known
	gives bool          // there is a store below, so that pages may leave memory
	busy  bool          // it applies a batch
	used  time.Time     // end of the last batch
	moved time.Time     // when its frames were last changed, or could not be
	asked chan struct{} // has an element while others need its frames
}

func newShare() share { return share{used: time.Now(), asked: make(chan struct{}, 1)} }

const (
	// shareIdle is the time without a batch after which a shard is idle.
	shareIdle = 10 * time.Second
	// sharePatience is how long a new shard waits for its goal before its least is enough.
	sharePatience = 5 * time.Second
	// shareRest is the minimum time between two changes by which a shard grows. A change copies its
	// pages.
	shareRest = 5 * time.Second
	// shareSlack is the part of a budget that shards leave free when there are others, so that
	// small shards start without a wait.
	shareSlack = 8
)

// Shortage means that a shard lacks memory which other shards may give; see Budget.Await. It is a
// *jobs.Error for callers who do not wait.
type Shortage struct {
	room MemoryError
	of   *Allocation // the allocation that is wanted; it has nothing
}

// Error implements error.
func (s *Shortage) Error() string { return s.room.Error() }

// Unwrap returns the refusal.
func (s *Shortage) Unwrap() error { return s.room.Refusal() }

// Await asks the other shards for what s lacks. It waits until s can have its goal, or its least
// after sharePatience, or until no shard can give more, and returns the budget for the next
// attempt. The error is the cause of the end of ctx.
func (b *Budget) Await(ctx context.Context, s *Shortage) (*Budget, error) {
	w, eager, whole := s.of, *b, false
	eager.eager = true
	b.mu.Lock()
	b.all[w] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, w)
	}()
	// It polls because shards become idle.
	err := b.freed.Await(ctx, sharePatience, sharePatience/20, func(late bool) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		frames := int((b.device - w.tables) / int64(w.pageBytes))
		may := b.mayGive(w)
		whole = frames >= b.goal(w, onDevice)
		b.ask()
		return whole || !may || late && frames >= w.least()
	})
	switch {
	case err != nil:
		return nil, err
	case whole:
		return b, nil
	}
	return &eager, nil
}

// shared records whether there is a store below, and reports whether the number of frames may
// change.
func (s *Allocation) shared(store bool) bool {
	if s.of == nil {
		return false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.known, s.gives = true, store && !s.of.whole
	s.of.freed.Send()
	return s.gives
}

func (s *Allocation) least() int {
	if s.of.whole {
		return s.pages
	}
	least := minFrames
	for usableFrames(least, least >= s.pages) < s.of.together {
		least++
	}
	return min(s.pages, least)
}

// size returns the number of frames in a tier of memory, and the number that is useful.
func (s *Allocation) size(tier int) (has, want int) {
	if tier == onDevice {
		return s.frames, s.pages
	}
	return s.hostFrames, s.hostNeeded
}

func (s *Allocation) wanting() bool { return s.frames == 0 }

// goal returns how many frames of a tier an allocation may have, given the other allocations. mu is
// held.
func (b *sharedBudget) goal(s *Allocation, tier int) int {
	has, want := s.size(tier)
	least := 0
	if tier == onDevice {
		least = s.least()
	}
	if least == want || !s.gives && !s.wanting() && tier == onDevice {
		return max(has, least)
	}
	left, whole := b.device-s.of.tablesOf(s), b.wholeDevice
	if tier == inHost {
		left, whole = b.host, b.wholeHost
	}
	var wants []int64 // bytes wanted by each sharer
	add := func(o *Allocation) {
		if o.gives || o.wanting() { // only memory that may be given is shared
			has, _ := o.size(tier)
			left += int64(has) * int64(o.pageBytes)
			wants = append(wants, int64(o.use(tier))*int64(o.pageBytes))
		}
	}
	for o := range b.all {
		if o != s {
			add(o)
		}
	}
	if others := len(b.all); s.gives && (others > 1 || others == 1 && !b.has(s)) {
		left -= whole / shareSlack
	}
	add(s)
	return max(least, int(min(int64(s.use(tier)), level(left, wants)/int64(s.pageBytes))))
}

// use returns how many frames of a tier an allocation has use for; an idle one has use for its
// least only.
func (s *Allocation) use(tier int) int {
	_, want := s.size(tier)
	switch {
	case s.wanting() || s.busy || time.Since(s.used) <= shareIdle:
		return want
	case tier == onDevice:
		return s.least()
	}
	return 0
}

// has reports whether an allocation is counted. mu is held.
func (b *sharedBudget) has(s *Allocation) bool {
	_, is := b.all[s]
	return is
}

// tablesOf returns the bytes that an allocation without memory takes for its tables.
func (b *Budget) tablesOf(s *Allocation) int64 {
	if s.wanting() {
		return s.tables
	}
	return 0
}

// level returns the max-min fair share: the largest number of bytes that every claimant may have,
// or MaxInt64 if bytes satisfy all wants.
func level(bytes int64, wants []int64) int64 {
	slices.Sort(wants)
	for i, want := range wants {
		part := max(bytes, 0) / int64(len(wants)-i)
		if want > part {
			return part
		}
		bytes -= want
	}
	return math.MaxInt64
}

// excess returns how many frames on the device an allocation could give now. mu is held.
func (b *sharedBudget) excess(s *Allocation) int {
	if !s.gives || s.wanting() {
		return 0
	}
	return s.frames - b.goal(s, onDevice)
}

// mayGive reports whether other allocations have frames to give to s, which has none, or may turn
// out to have some. mu is held.
func (b *sharedBudget) mayGive(s *Allocation) bool {
	if !b.has(s) {
		b.all[s] = struct{}{}
		defer delete(b.all, s)
	}
	for o := range b.all {
		if b.excess(o) > 0 && !o.failed() || !o.known && !o.wanting() && !o.of.whole {
			return true
		}
	}
	return false
}

// failed reports whether the allocation could not give frames a moment ago: moved is in the future.
func (s *Allocation) failed() bool { return time.Now().Before(s.moved) }

// ask asks the shards that have more than their goals. mu is held.
func (b *sharedBudget) ask() {
	for o := range b.all {
		if b.excess(o) > 0 || o.gives && o.hostFrames > b.goal(o, inHost) {
			select {
			case o.asked <- struct{}{}:
			default:
			}
		}
	}
}

// work records the start or the end of a batch. At the end it reports whether the shard may try to
// grow.
func (s *Allocation) work(begins bool) (look bool) {
	if s.of == nil || !s.gives {
		return false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	now := time.Now()
	look = !begins && now.Sub(s.moved) > shareRest
	s.busy, s.used = begins, now
	return look
}

// plan returns the numbers of frames that the allocation should have: its goals if it has more, or
// with grow more frames if there is room. Additional frames are taken at once. needed returns the
// useful frames in host memory for a number of frames on the device.
func (s *Allocation) plan(grow bool, needed func(frames int) int) (frames, hostFrames int) {
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	frames, hostFrames = s.frames, s.hostFrames
	goal := b.goal(s, onDevice)
	if !grow {
		frames = min(frames, goal)
		s.hostNeeded = needed(frames)
		return frames, min(hostFrames, b.goal(s, inHost))
	}
	s.moved = time.Now()
	more := func(tier, has, goal int, left, whole int64) int {
		if len(b.all) > 1 {
			left -= whole / shareSlack
		}
		n := min(goal-has, int(max(left, 0)/int64(s.pageBytes)))
		if has+n < goal && 2*(has+n) < goal {
			b.ask()
		}
		if n <= 0 || 4*n < has {
			return has
		}
		s.set(tier, has+n)
		return has + n
	}
	frames = more(onDevice, frames, goal, b.device, b.wholeDevice)
	s.hostNeeded = needed(frames)
	if goal = b.goal(s, inHost); goal <= hostFrames {
		return frames, goal
	}
	return frames, more(inHost, hostFrames, goal, b.host, b.wholeHost)
}

// settle ends a plan with the new numbers of frames. After an error others do not wait for this
// allocation for shareRest.
func (s *Allocation) settle(frames, hostFrames int, err error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.moved = time.Now(); err != nil {
		s.moved = s.moved.Add(shareRest)
	}
	s.set(onDevice, frames)
	s.set(inHost, hostFrames)
}
