package pages

import (
	"context"
	"math"
	"slices"
	"time"
)

// Shards share the frames of a budget by max-min fairness: each has a goal, which is what it has
// pages for, or the level that is the same for all shards with more pages. A shard alone may have
// everything. A shard that did nothing for shareIdle counts with its least. A shard above its goal
// gives frames back when another lacks them, the coldest pages first, between two batches of its
// own.

// share is what a budget knows of the use of an allocation, under its lock.
type share struct {
	known bool          // its memory was opened, so that gives is known
	gives bool          // there is a store below, so that pages may leave memory
	busy  bool          // it applies a batch
	used  time.Time     // when it last did
	moved time.Time     // when its frames were last changed, or could not be
	asked chan struct{} // has an element while others need its frames
}

// newShare returns the share of a shard that begins.
func newShare() share { return share{used: time.Now(), asked: make(chan struct{}, 1)} }

const (
	// shareIdle is the time without a batch after which a shard is idle.
	shareIdle = 10 * time.Second
	// sharePatience is how long a new shard waits for its goal before its least is enough.
	sharePatience = 5 * time.Second
	// shareRest is the time between two changes by which a shard grows. A change copies its pages.
	shareRest = 5 * time.Second
	// shareSlack is the part of a budget that shards which give frames leave free beside others, so
	// that small ones begin without waiting.
	shareSlack = 8
)

// Shortage says that a shard lacks memory which other shards may give; see Budget.Await. It is a
// *jobs.Error for callers who do not wait.
type Shortage struct {
	room MemoryError
	of   *Allocation // what is wanted; it has nothing
}

// Error implements error.
func (s *Shortage) Error() string { return s.room.Error() }

// Unwrap returns the refusal.
func (s *Shortage) Unwrap() error { return s.room.Refusal() }

// Await asks the other shards for what s lacks, and waits until there is its goal, or its least
// after sharePatience, or until no shard can give any more. It returns the budget to try again with.
// The error is the cause of the end of ctx.
func (b *Budget) Await(ctx context.Context, s *Shortage) (*Budget, error) {
	w, eager := s.of, *b
	eager.eager = true
	patience := time.NewTimer(sharePatience)
	defer patience.Stop()
	look := time.NewTicker(sharePatience / 20) // shards become idle
	defer look.Stop()
	b.mu.Lock()
	b.all[w] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, w)
	}()
	for late := false; ; {
		b.mu.Lock()
		next := b.freed.Next()
		frames := int((b.device - w.tables) / int64(w.pageBytes))
		goal, may := b.goal(w, onDevice), b.mayGive(w)
		b.ask()
		b.mu.Unlock()
		switch {
		case frames >= goal:
			return b, nil
		case !may, late && frames >= w.least():
			return &eager, nil
		}
		select {
		case <-next:
		case <-look.C:
		case <-patience.C:
			late = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// shared notes whether there is a store below, and reports whether the number of frames may change.
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

// least returns how many frames on the device the pages need.
func (s *Allocation) least() int {
	if s.of.whole {
		return s.pages
	}
	return min(s.pages, minFrames)
}

// size returns the frames that an allocation has in a tier of memory, and the frames that it can use.
func (s *Allocation) size(tier int) (has, want int) {
	if tier == onDevice {
		return s.frames, s.pages
	}
	return s.hostFrames, s.hostNeeded
}

// wanting reports whether an allocation has no memory yet.
func (s *Allocation) wanting() bool { return s.frames == 0 }

// goal returns how many frames of a tier an allocation may have beside the others. mu is held.
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
	var wants []int64 // in bytes, of those who share
	add := func(o *Allocation) {
		if o.gives || o.wanting() { // what others have is not shared
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

// use returns how many frames of a tier an allocation has use for: its least while it is idle.
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

// tablesOf returns the bytes that an allocation without memory takes beside its frames.
func (b *Budget) tablesOf(s *Allocation) int64 {
	if s.wanting() {
		return s.tables
	}
	return 0
}

// level returns the most that one of several may have of a number of bytes, if none that wants more
// has less.
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

// excess returns how many frames on the device an allocation has above its goal, and could give now.
// mu is held.
func (b *sharedBudget) excess(s *Allocation) int {
	if !s.gives || s.wanting() {
		return 0
	}
	return s.frames - b.goal(s, onDevice)
}

// mayGive reports whether the others have frames to give while s, which has nothing, wants some, or
// whether that is not known of one of them yet. mu is held.
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

// work notes that a batch begins or has ended. At its end it reports whether it is time to look
// whether the shard may grow.
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

// plan returns the numbers of frames that the allocation is to have: fewer where it has more than its
// goals, or with grow as many more as there is room for. It takes the memory of the latter. needed
// returns the frames in host memory that are of use beside the frames on the device.
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

// settle ends a plan: the allocation has its new frames. After an error others do not wait for
// it for a while.
func (s *Allocation) settle(frames, hostFrames int, err error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.moved = time.Now(); err != nil {
		s.moved = s.moved.Add(shareRest)
	}
	s.set(onDevice, frames)
	s.set(inHost, hostFrames)
}
