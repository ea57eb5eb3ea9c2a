package celltwin

import (
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

const (
	// A feature below leastOffset in size has the offset 0: its float32 has two decimal places. An
	// offset follows a level that is more than offsetSpreads spreads away from it: a float32 level no
	// longer moves by a step of rate times d when the spread is some 6,700 times smaller, at a rate of
	// 1/2000. Offsets are below offsetRange in size.
	leastOffset   = 1 << 16
	offsetSpreads = 1 << 10
	offsetRange   = 1 << 61
	// largest bounds a raw feature, so that no distance, and no multiple of one that the front
	// forms, overflows.
	largest = 1e36
	// eager is how many observations shape a new group's level and spread without being clipped.
	eager = 20
	// settling is how many observations pass before a feature counts as anything but level.
	settling = 5
	// jolt is the least rate of level and spread under a clipped observation: a lone glitch moves
	// them by half a spread, while a lasting change of scale multiplies the spread by 1.6 each
	// time.
	jolt = 1.0 / 64
)

// front is what all agents of a group see of an observation: its features in units of their running
// spread. Level and spread are robust: a feature further than clip spreads away counts as that far.
// All slices have one element a feature.
//
// Features are float64. What the front sees of one is a float32: how far it is above its offset. So
// a small change of a large number, as of a counter, is not lost.
type front struct {
	offset        []int64
	above         []float32
	level, spread []float32 // the level is above the offset
	// now is the current observation, and last the one before it, in spreads from the level. A
	// group whose cell needs no last has none.
	last, now []float32
}

// raise sets above to the features less their offsets. The first observation sets the offset of a
// feature, and it follows the level. round is the number of observations before this one.
func (f *front) raise(x []float64, round uint64) {
	for i, v := range x {
		if round == 0 {
			f.offset[i] = offsetOf(v)
		} else if round >= eager && fmath.Abs(f.level[i]) > float32(offsetSpreads*f.spread[i]) {
			by := offsetOf(float64(f.level[i]))
			if to := f.offset[i] + by; to < offsetRange && to > -offsetRange {
				f.offset[i] = to
				f.level[i] -= float32(by)
			}
		}
		f.above[i] = float32(v - float64(f.offset[i]))
	}
}

// offsetOf returns the offset of a feature of this size: 0 for small ones.
func offsetOf(v float64) int64 {
	if size := math.Abs(v); size >= leastOffset && size < offsetRange {
		return int64(v)
	}
	return 0
}

func (f *front) part(from, to int) front {
	return front{
		level: f.level[from:to:to], spread: f.spread[from:to:to], last: f.last[from:to:to], now: f.now[from:to:to],
	}
}

// see updates level and spread by the features of one observation and sets now. round is the number
// of observations that the group has seen before, rate the rate of level and spread, at least
// 1/(round+1). clip is the greatest distance from the level that counts, in spreads.
func (f *front) see(x []float32, round uint64, rate, clip float32) {
	for i, v := range x {
		v = finite(v, f.level[i])
		if round == 0 {
			f.level[i], f.spread[i] = v, 0
		}
		unit := f.spread[i] + float32(1e-6*fmath.Abs(f.level[i])) + 1e-30
		d := v - f.level[i]
		limit, r := float32(clip*unit), rate
		u := float32(0)
		if fmath.Abs(d) < limit {
			u = d / unit
		} else {
			u = clip
			if d < 0 {
				u = -clip
			}
			if round >= eager {
				d = fmath.Clamp(d, limit)
				r = fmath.Max(r, jolt)
			}
		}
		if round < settling {
			u = 0
		}
		f.now[i] = u
		f.level[i] += float32(r * d)
		f.spread[i] += float32(r * (float32(1.25*fmath.Abs(d)) - f.spread[i]))
	}
}

// finite limits a raw feature to ±largest. A NaN, which the contract excludes, becomes the level.
func finite(v, level float32) float32 {
	if v != v {
		return level
	}
	return fmath.Clamp(v, largest)
}

// project returns an agent's view of a vector of features: the sum of their products with the
// agent's direction, whose components are A elements apart.
func project(direction []float32, A int, x []float32) float32 {
	sum := float32(0)
	for f, v := range x {
		sum += float32(direction[f*A] * v)
	}
	return sum
}

// projectAll sets views to what project returns for each agent. directions has a row of len(views)
// for each feature.
func projectAll(views, directions, x []float32) {
	A := len(views)
	clear(views)
	for f, v := range x {
		for i, d := range directions[f*A:][:A] {
			views[i] += float32(d * v)
		}
	}
}

// projectViews sets the views of each agent to what project returns for the vector of each. A
// direction is read once for all vectors.
func projectViews(to *[views][]float32, directions []float32, of *[views][]float32) {
	A, n := len(to[0]), len(of[0])
	x0, x1, x2, x3 := of[0][:n], of[1][:n], of[2][:n], of[3][:n]
	for i := range A {
		var a, b, c, d float32
		for f, at := 0, i; f < n; f, at = f+1, at+A {
			w := directions[at]
			a += float32(w * x0[f])
			b += float32(w * x1[f])
			c += float32(w * x2[f])
			d += float32(w * x3[f])
		}
		to[0][i], to[1][i], to[2][i], to[3][i] = a, b, c, d
	}
}

// habits are a group's memory of what is usual at a time of the day, and of what the hour of the
// week adds to that, in spreads. A visit of a slot is the observations of one half hour, or of one
// hour. A habit is a mean of finished visits, so it does not move while agents look at it. Agents
// see nothing in a slot without a finished visit. A stream whose times do not move has one visit,
// which never ends, and no habits.
type habits struct {
	day, week         []float32 // [I*slots]
	daySeen, weekSeen []uint32  // [slots]: finished visits
	// Of day and daySeen, and of week and weekSeen, only the slots of these sets are loaded from
	// the page: a run needs few of them, and each is a cache line.
	dayLoaded  uint64
	weekLoaded [(kernels.WeekSlots + 63) / 64]uint64
	// The present visits: their half hour, the number of their observations and their means.
	half                uint32
	visited             [2]uint32
	dayVisit, weekVisit []float32 // [I]
	dayWorth, weekWorth []float32 // [I]
	daySlot, weekSlot   int
	dayKnown, weekKnown bool
	dayNow, weekNow     []float32 // [I]: what agents see of the habits
}

const (
	// habitClip bounds what one observation adds to a habit, in spreads: habits are of the bulk, not
	// of outliers.
	habitClip = 3
	halfHour  = 86_400_000_000_000 / kernels.DaySlots
	// A habit is worth by how much it is nearer to an observation than the level, in spreads. It
	// begins with worthStart and is averaged over some 200 observations. Agents see all of a habit
	// whose worth is 1/worthGain or more, and nothing of one that is worth nothing: the habit of a
	// cycle that does not divide the day changes with each visit.
	worthStart = 0.4
	worthRate  = 1.0 / 200
	worthGain  = 10
)

// over reports whether the present visit of a half hour, in a slot, is over at time t.
func (h *habits) over(t int64) (slot int, over bool) {
	return int(h.half % kernels.DaySlots), h.visited[0] > 0 && halfOf(t) != h.half
}

// recall ends the visits that are over at time t, in unix nanoseconds, and finds the habits of t.
// It reads slots from the page of the group if it needs to.
func (h *habits) recall(o *observation, t int64, first bool, rate float32) {
	half := halfOf(t)
	if first {
		for i := range h.dayWorth {
			h.dayWorth[i], h.weekWorth[i] = worthStart, worthStart
		}
	}
	if slot, over := h.over(t); over {
		h.loadDay(o, slot)
		// The level is not settled in the first visit, so the second one replaces it.
		r := fmath.Max(1/fmath.Max(1, float32(h.daySeen[slot])), rate)
		endVisit(h.day[slot:], kernels.DaySlots, h.dayVisit, r)
		h.daySeen[slot], h.visited[0] = min(h.daySeen[slot]+1, 1<<20), 0
	}
	if h.visited[1] > 0 && half/2 != h.half/2 {
		slot := int(h.half / 2 % kernels.WeekSlots)
		h.loadWeek(o, slot)
		r := fmath.Max(1/(float32(h.weekSeen[slot])+1), float32(2*rate))
		endVisit(h.week[slot:], kernels.WeekSlots, h.weekVisit, r)
		h.weekSeen[slot], h.visited[1] = min(h.weekSeen[slot]+1, 1<<20), 0
	}
	h.half = half
	h.daySlot, h.weekSlot = int(half%kernels.DaySlots), int(half/2%kernels.WeekSlots)
	h.loadDay(o, h.daySlot)
	h.loadWeek(o, h.weekSlot)
	h.dayKnown, h.weekKnown = h.daySeen[h.daySlot] > 0, h.weekSeen[h.weekSlot] > 0
	for i := range h.dayNow {
		h.dayNow[i] = float32(shownOf(h.dayWorth[i]) * h.day[i*kernels.DaySlots+h.daySlot])
		h.weekNow[i] = float32(shownOf(h.weekWorth[i]) * h.week[i*kernels.WeekSlots+h.weekSlot])
	}
}

// endVisit moves the habit of a slot, whose elements are slots apart, towards the mean of a visit,
// and clears the mean.
func endVisit(habit []float32, slots int, visit []float32, rate float32) {
	for i, mean := range visit {
		habit[i*slots] += float32(rate * (mean - habit[i*slots]))
	}
	clear(visit)
}

// shownOf returns the part of a habit that agents see.
func shownOf(worth float32) float32 { return fmath.Max(0, fmath.Min(1, float32(worthGain*worth))) }

func (h *habits) loadDay(o *observation, slot int) {
	if h.dayLoaded&(1<<slot) != 0 {
		return
	}
	h.dayLoaded |= 1 << slot
	h.daySeen[slot] = o.u32[o.group(kernels.PredictorVarDaySeen, slot)]
	for at := slot; at < len(h.day); at += kernels.DaySlots {
		h.day[at] = o.f32[o.group(kernels.PredictorVarDay, at)]
	}
}

func (h *habits) loadWeek(o *observation, slot int) {
	if h.weekLoaded[slot/64]&(1<<(slot%64)) != 0 {
		return
	}
	h.weekLoaded[slot/64] |= 1 << (slot % 64)
	h.weekSeen[slot] = o.u32[o.group(kernels.PredictorVarWeekSeen, slot)]
	for at := slot; at < len(h.week); at += kernels.WeekSlots {
		h.week[at] = o.f32[o.group(kernels.PredictorVarWeek, at)]
	}
}

// load reads the present visits from the page, and forgets the slots of another run.
func (h *habits) load(o *observation) {
	h.dayLoaded = 0
	clear(h.weekLoaded[:])
	h.half = o.u32[o.group(kernels.PredictorVarVisit, 0)]
	o.loadGroup32(kernels.PredictorVarVisited, h.visited[:])
	o.loadGroup(kernels.PredictorVarDayVisit, h.dayVisit)
	o.loadGroup(kernels.PredictorVarWeekVisit, h.weekVisit)
	o.loadGroup(kernels.PredictorVarDayWorth, h.dayWorth)
	o.loadGroup(kernels.PredictorVarWeekWorth, h.weekWorth)
}

// store writes the present visits, and the slots that were recalled, back to the page.
func (h *habits) store(o *observation) {
	o.u32[o.group(kernels.PredictorVarVisit, 0)] = h.half
	o.storeGroup32(kernels.PredictorVarVisited, h.visited[:])
	o.storeGroup(kernels.PredictorVarDayVisit, h.dayVisit)
	o.storeGroup(kernels.PredictorVarWeekVisit, h.weekVisit)
	o.storeGroup(kernels.PredictorVarDayWorth, h.dayWorth)
	o.storeGroup(kernels.PredictorVarWeekWorth, h.weekWorth)
	for left := h.dayLoaded; left != 0; left &= left - 1 {
		slot := bits.TrailingZeros64(left)
		o.u32[o.group(kernels.PredictorVarDaySeen, slot)] = h.daySeen[slot]
		for at := slot; at < len(h.day); at += kernels.DaySlots {
			o.f32[o.group(kernels.PredictorVarDay, at)] = h.day[at]
		}
	}
	for i, left := range h.weekLoaded {
		for ; left != 0; left &= left - 1 {
			slot := 64*i + bits.TrailingZeros64(left)
			o.u32[o.group(kernels.PredictorVarWeekSeen, slot)] = h.weekSeen[slot]
			for at := slot; at < len(h.week); at += kernels.WeekSlots {
				o.f32[o.group(kernels.PredictorVarWeek, at)] = h.week[at]
			}
		}
	}
}

// halfOf returns the half hour of a time, counted from kernels.HabitWeeks weeks before 1970.
func halfOf(t int64) uint32 {
	half := t / halfHour
	if t%halfHour < 0 {
		half--
	}
	return uint32(half + kernels.HabitWeeks*2*kernels.WeekSlots)
}

// learn adds the observation in spreads to the present visits, and to the worth of the habits.
func (h *habits) learn(now []float32) {
	days, weeks := float32(h.visited[0]+1), float32(h.visited[1]+1)
	for i, u := range now {
		u = fmath.Clamp(u, habitClip)
		h.dayVisit[i] += (u - h.dayVisit[i]) / days
		if !h.dayKnown {
			continue
		}
		beyond := u - h.day[i*kernels.DaySlots+h.daySlot]
		h.weekVisit[i] += (beyond - h.weekVisit[i]) / weeks
		h.dayWorth[i] += float32(worthRate * (fmath.Abs(u) - fmath.Abs(beyond) - h.dayWorth[i]))
		if h.weekKnown {
			rest := beyond - h.week[i*kernels.WeekSlots+h.weekSlot]
			h.weekWorth[i] += float32(worthRate * (fmath.Abs(beyond) - fmath.Abs(rest) - h.weekWorth[i]))
		}
	}
	h.visited[0]++
	if h.dayKnown {
		h.visited[1]++
	}
}
