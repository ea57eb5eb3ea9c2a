package explain

import (
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

const (
	slots = 24 // of a day
	// warm is the number of rows of an entity before expected values are known.
	warm = 20
	// Rates of the means, per row. A mean of the first rows has the rate 1/n.
	slowRate  = 1.0 / 500 // of what is usual
	driftRate = 1.0 / 8   // of the present level
	noiseRate = 1.0 / 12  // of the present spread
	habitRate = 1.0 / 10  // of a slot of the day
	// bandWidth is the half of a band in mean errors: 4 of them are 3.2 deviations of normal values.
	bandWidth = 4
	// clip bounds what one value adds to a mean of usual sizes, in usual sizes.
	clip = 8
)

// feature summarises the past of one feature of an entity. Sizes are in the unit of the feature,
// and 0 before the first row.
type feature struct {
	Level   float64        // slow mean
	Day     [slots]float64 // mean distance from the level by the time of day
	Last    float64        // last value
	Dev     float64        // its distance from level and habit
	Usual   float64        // mean size of such distances
	C0, C1  float64        // means of squared distances, and of products of neighbours
	Err     float64        // mean size of the errors of expected values
	Drift   float64        // short mean of the distances
	Drifts  float64        // mean size of it
	Noise   float64        // short mean of the sizes of the errors
	Step    float64        // short mean of log2 of the steps from row to row
	Steps   float64        // slow mean of it
	StepVar float64        // mean size of the distance of both
	NoiseIn float64        // mean size of log2 of noise over its usual size
	Same    float64        // rows that have repeated the last value
	Sames   float64        // longest such sequence, which fades
	Size    float64        // short mean of the sizes of the distances
	Bad     float64        // recent share of rows outside their bands
	Events  float64        // events after a gap
	Gap     float64        // rows since the last event
	Gaps    float64        // longest gap, which fades
	Low     float64        // low values: the mean of the lower half
	High    float64        // high values
}

// expected returns the expected value and the half of its band. slot is the slot of the row.
func (s *feature) expected(slot int) (value, half float64) {
	phi := 0.0
	if s.C0 > 0 {
		phi = max(0, min(1, s.C1/s.C0))
	}
	dev := max(-3*s.Usual, min(3*s.Usual, s.Dev))
	return s.Level + s.Day[slot] + float64(phi*dev), bandWidth * s.floor(s.Err)
}

// floor keeps a size above the rounding of the values.
func (s *feature) floor(size float64) float64 {
	return max(size, 1e-9, 1e-6*math.Abs(s.Level), 0.02*s.Usual)
}

// mix moves a mean towards a value. The conversion keeps processors from fusing the operations,
// which would change the last bit.
func mix(mean *float64, rate, value float64) { *mean += float64(rate * (value - *mean)) }

// surprise compares one row of a feature with its past.
type surprise struct {
	size [batch.FeatureSurprises]float64 // by kind; 1 is at the edge of what is usual
	dev  float64                         // recent mean distance
}

// observe adds value x, which is row n of its entity, from 0, at a slot of the day with the number
// of times it was seen. open reports whether the row belongs to an incident; such a row moves the
// means little.
func (s *feature) observe(x float64, n uint64, slot int, seen uint32, open bool) (out surprise) {
	if n == 0 {
		s.Level, s.Last, s.Low, s.High = x, x, x, x
	}
	rate := max(slowRate, 1/float64(n+1))
	value, _ := s.expected(slot)
	e := x - value
	err := s.floor(s.Err)
	dev := x - s.Level - s.Day[slot]
	usual := max(s.floor(s.Usual), err)
	step := math.Log2(math.Abs(x-s.Last) + 0.05*err)

	mix(&s.Drift, max(driftRate, 1/float64(n+1)), max(-2.5*usual, min(2.5*usual, dev)))
	mix(&s.Noise, max(noiseRate, 1/float64(n+1)), min(math.Abs(e), 5*err))
	mix(&s.Step, max(noiseRate, 1/float64(n+1)), step)
	mix(&s.Size, max(driftRate, 1/float64(n+1)), min(2.5*usual, math.Abs(dev)))
	bad := 0.0
	if math.Abs(e) > bandWidth*err || math.Abs(dev) > bandWidth*usual {
		bad = 1
	}
	mix(&s.Bad, driftRate, bad)
	// The longest sequences are learnt at their ends, so that one that lasts is compared with others.
	if x == s.Last && n > 0 {
		s.Same++
	} else {
		s.Sames = max(min(s.Same, 4+2*s.Sames), s.Sames-float64(s.Sames*slowRate/4))
		s.Same = 0
	}
	// An event is a value far above the low values of the feature.
	if s.High-s.Low > 3*err && x > (s.Low+s.High)/2 {
		if s.Gap > 0 {
			s.Events++
		}
		s.Gaps = max(s.Gap, s.Gaps-float64(s.Gaps*slowRate/4))
		s.Gap = 0
	} else {
		s.Gap++
	}
	noise := math.Log2((s.Noise + 0.05*err) / err)
	if n >= warm {
		out.size = s.sizes(x, e, err, noise, slot)
		out.dev = s.Drift
	}
	s.learn(x, e, dev, err, usual, step, noise, rate, slot, seen, open)
	return out
}

// sizes returns how surprising a value is, by kind. One far value is a point, several on one side
// are a level, and several on both sides are a spread.
func (s *feature) sizes(x, e, err, noise float64, slot int) (size [batch.FeatureSurprises]float64) {
	several := 1.0
	if math.Abs(e) > bandWidth*err {
		several = max(0.25, min(1, 5*s.Bad-1.25))
	}
	size[batch.PointSurprise] = (1 - s.Bad) * math.Abs(e) / (bandWidth * err)
	level := math.Abs(s.Drift) / (3 * max(s.floor(s.Drifts), 0.3*err))
	side := math.Abs(s.Drift) / max(s.floor(s.Size), 1e-300)
	size[batch.LevelSurprise] = level * several * max(0.2, min(1.2, 2*side-0.4))
	calm := max(0, s.Steps-s.Step) / (4 * max(0.25, s.StepVar))
	rough := max(max(0, s.Step-s.Steps)/(4*max(0.25, s.StepVar)), noise/(4*max(0.2, s.NoiseIn)))
	size[batch.SpreadSurprise] = max(calm, rough*several*max(0.4, min(1, 1.6-side)))
	if frozen := s.Same / (4 + 1.5*s.Sames); frozen >= 1 {
		return [batch.FeatureSurprises]float64{batch.FrozenSurprise: 2 + frozen}
	}
	if missing := s.Gap / (6 + 1.5*s.Gaps); s.Events >= 8 && missing >= 1 && math.Abs(x-s.Low) < 0.3*(s.High-s.Low) {
		size[batch.MissingSurprise] = 1 + missing
	}
	// A rise of the day that does not come leaves the value at the lowest level of the day.
	low := slices.Min(s.Day[:])
	if rise := s.Day[slot] - low; s.Drift < 0 && rise > 6*err && x < s.Level+low+0.5*rise && x > s.Level+low-err {
		size[batch.MissingSurprise] = max(size[batch.MissingSurprise], 1.2*size[batch.LevelSurprise])
	}
	return size
}

// learn moves the means. Rows of an incident move them little.
func (s *feature) learn(x, e, dev, err, usual, step, noise, rate float64, slot int, seen uint32, open bool) {
	if open {
		rate *= 0.2
	}
	bounded := max(-clip*usual, min(clip*usual, dev))
	if s.Usual == 0 {
		bounded = dev
	}
	mix(&s.Level, rate, s.Level+bounded)
	habit := max(habitRate, 1/float64(seen+1))
	if open {
		habit *= 0.2
	}
	// The first day tells level and habit apart: a slot is learnt after the rows of a few.
	mix(&s.Day[slot], habit*0.5, s.Day[slot]+bounded)
	mix(&s.C0, rate, bounded*bounded)
	mix(&s.C1, rate, bounded*max(-clip*usual, min(clip*usual, s.Dev)))
	mix(&s.Usual, rate, math.Abs(bounded))
	if s.Err == 0 {
		s.Err = math.Abs(e)
	}
	mix(&s.Err, rate, min(math.Abs(e), clip*err))
	mix(&s.Drifts, rate, min(math.Abs(s.Drift), clip*max(s.Drifts, 0.1*usual)))
	mix(&s.StepVar, rate, math.Abs(s.Step-s.Steps))
	mix(&s.Steps, rate, step)
	mix(&s.NoiseIn, rate, min(math.Abs(noise), 3))
	if x > s.Level {
		mix(&s.High, rate, x)
	} else {
		mix(&s.Low, rate, x)
	}
	s.Last, s.Dev = x, dev
}
