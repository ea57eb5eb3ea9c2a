package celltwin

import (
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/host/fmath"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

const (
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
type front struct {
	level, spread []float32
	// now is the current observation, and last the one before it, in spreads from the level. A
	// group whose cell needs no last has none.
	last, now []float32
}

// part returns the features from one to another, in the same memory.
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

// projectAll sets views to what project returns for each agent. directions has a row of len(views) for
// each feature.
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
// week adds to that, in spreads. A stream whose times say nothing finds all its observations in a
// few slots, whose habit is then its level.
type habits struct {
	day, week         []float32 // [I*slots]
	daySeen, weekSeen []uint32  // [slots]
	// Of day and daySeen, and of week and weekSeen, only the slots of these sets are those of the
	// page: a run needs few of them, and each is a line of the cache.
	dayLoaded  uint64
	weekLoaded [(kernels.WeekSlots + 63) / 64]uint64
	// of the current observation:
	daySlot, weekSlot int
	dayNow, weekNow   []float32 // [I]
}

// habitClip bounds what one observation adds to a habit, in spreads: habits are of the bulk, not of
// outliers.
const habitClip = 3

// recall finds the habits of time t, in unix nanoseconds, in the page of the group if it needs to.
func (h *habits) recall(o *observation, t int64) {
	h.daySlot = slotOf(t, 86_400_000_000_000/kernels.DaySlots, kernels.DaySlots)
	h.weekSlot = slotOf(t, 604_800_000_000_000/kernels.WeekSlots, kernels.WeekSlots)
	if day := uint64(1) << h.daySlot; h.dayLoaded&day == 0 {
		h.dayLoaded |= day
		h.daySeen[h.daySlot] = o.u32[o.group(kernels.PredictorVarDaySeen, h.daySlot)]
		for at := h.daySlot; at < len(h.day); at += kernels.DaySlots {
			h.day[at] = o.f32[o.group(kernels.PredictorVarDay, at)]
		}
	}
	if week := uint64(1) << (h.weekSlot % 64); h.weekLoaded[h.weekSlot/64]&week == 0 {
		h.weekLoaded[h.weekSlot/64] |= week
		h.weekSeen[h.weekSlot] = o.u32[o.group(kernels.PredictorVarWeekSeen, h.weekSlot)]
		for at := h.weekSlot; at < len(h.week); at += kernels.WeekSlots {
			h.week[at] = o.f32[o.group(kernels.PredictorVarWeek, at)]
		}
	}
	for i := range h.dayNow {
		h.dayNow[i] = h.day[i*kernels.DaySlots+h.daySlot]
		h.weekNow[i] = h.week[i*kernels.WeekSlots+h.weekSlot]
	}
}

// load forgets the slots of another run.
func (h *habits) load() {
	h.dayLoaded = 0
	clear(h.weekLoaded[:])
}

// store writes the slots that were recalled back to the page.
func (h *habits) store(o *observation) {
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

// slotOf cuts time into slots of width nanoseconds and counts them modulo n, also before 1970.
func slotOf(t, width, n int64) int {
	t %= width * n
	if t < 0 {
		t += width * n
	}
	return int(t / width)
}

// learn moves the recalled habits towards the observation in spreads: fast in a slot that is new,
// then at the rate.
func (h *habits) learn(now []float32, rate float32) {
	day := fmath.Max(1/(float32(h.daySeen[h.daySlot])+1), rate)
	week := fmath.Max(1/(float32(h.weekSeen[h.weekSlot])+2), float32(2*rate))
	for i, u := range now {
		miss := fmath.Clamp(u, habitClip) - h.dayNow[i]
		h.day[i*kernels.DaySlots+h.daySlot] = h.dayNow[i] + float32(day*miss)
		h.week[i*kernels.WeekSlots+h.weekSlot] = h.weekNow[i] + float32(week*(miss-h.weekNow[i]))
	}
	if h.daySeen[h.daySlot] < 1<<20 {
		h.daySeen[h.daySlot]++
	}
	if h.weekSeen[h.weekSlot] < 1<<20 {
		h.weekSeen[h.weekSlot]++
	}
}
