package explain

import "math"

// Levels is the number of levels of incidents.
const Levels = 80

// The rate of incidents that the predictor opens on quiet series is a function of their surprise in
// nats. Its line, of kernels.RateNats, sets the alarm from a rate: -ln of the rate a block is
// lineBend + r, at lineNats + lineSlope r + lineRare r^2 nats, and it is straight below.
const (
	lineBend  = 3.5
	lineNats  = 2.59
	lineSlope = 0.52
	lineRare  = 0.04
	// The score of a surprise is nats / (nats + scoreHalf). Rows that open no incident have quietPart
	// of the score of the alarm times that.
	scoreHalf = 4
	quietPart = 0.83
	// mostScore is the score of the largest surprise, 76 nats.
	mostScore = 0.95
)

// The height of an incident is how rare its largest surprise is, and how long it lasts: false
// incidents are short. On quiet series (tools/labelled, seed 3, families not held back) the number
// of rows with loudNats exceeds n in a share n^-loudWeight of the incidents. At one false incident
// in 20,000 blocks, 145 of 487 labelled incidents exceed both together, 69 the surprise alone and
// 93 the rows alone. heightPart makes the mean height of false incidents about 1.
const (
	loudNats   = 2
	loudWeight = 1.65
	loudLeast  = 1.6 // rows that count nothing
	heightPart = 0.4
)

// The levels are steps of heightStep, beginning startHeight below the height of an incident that
// has just opened, of an entity as expected. The rates of false incidents above a level follow the
// rates of the series above, with a fifth more at the start: factors of rateSlope a level, and of
// rateSteep from level rateBend on.
const (
	heightStep  = 0.25
	startHeight = 1
	rateStart   = 3.0
	rateSlope   = 0.7866278610665535 // exp(-0.24)
	rateSteep   = 0.6570468198150567 // exp(-0.42)
	rateBend    = 10
	// youngRate bounds the level of a young entity: the tail of a short history is not known. Of
	// entities of n blocks, quiet ones exceeded any surprise at a rate of up to youngRate / n^2.
	youngRate = 0.05
)

// scale turns scores into levels.
type scale struct {
	alarm float64 // nats from which the swarm opens an incident
	quiet float64 // the largest score of a row that opens none
	base  float64 // rarity of the alarm
	rate0 float64 // of incidents a block, at the alarm
	block float64
	rate  [Levels]float64 // of false incidents a block above each level
}

func newScale(o FleetLimits) scale {
	s := scale{alarm: o.Alarm, block: float64(o.Block)}
	s.quiet = quietPart * (o.Alarm / (o.Alarm + scoreHalf)) * (1 + 1e-6)
	s.base = Rarity(o.Alarm)
	s.rate0 = exp(-s.base)
	v := float64(s.rate0 * rateStart)
	for l := range s.rate {
		s.rate[l] = v
		if l < rateBend {
			v *= rateSlope
		} else {
			v *= rateSteep
		}
	}
	return s
}

// nats returns the surprise of a score of the predictor.
func (s *scale) nats(score float32) float64 {
	x := float64(score)
	if x <= s.quiet {
		x *= (s.alarm + scoreHalf) / (quietPart * s.alarm)
	}
	x = min(x, mostScore)
	return scoreHalf * x / (1 - x)
}

// Rarity returns -ln of the rate of incidents a block that reach a surprise in nats.
func Rarity(nats float64) float64 {
	above := nats - lineNats
	if above <= 0 {
		return lineBend + above/lineSlope
	}
	root := math.Sqrt(lineSlope*lineSlope + float64(4*lineRare*above))
	return lineBend + (root-lineSlope)/(2*lineRare)
}

// height returns the height of an incident whose largest surprise is rarer than the alarm by top,
// with a number of loud rows.
func height(top float64, loud uint32) float64 {
	long := float64(loudWeight * ln(max(1, float64(loud)/loudLeast)))
	return heightPart * (top + long)
}

// level returns the level of a height of an entity's incident. An entity with more or higher
// incidents than expected needs a greater height. Heights of false incidents are exponential, and
// heights beyond mostHeight are censored.
func (s *scale) level(e *FleetEntity, height float64) uint8 {
	blocks := float64(e.Rows) / s.block
	often := (float64(e.Incidents) + trust) / (float64(s.rate0*blocks) + trust)
	size := (float64(e.Heights)/heightUnit + trust) / (float64(e.Below) + trust)
	at := startHeight + height/max(size, leastSize) - ln(max(often, leastOften))
	young := float64(2*ln(max(blocks, 1))) - ln(youngRate) - s.base + startHeight
	return uint8(max(0, min(Levels, math.Ceil(min(at, young)/heightStep))))
}

// ln returns the natural logarithm of a positive number. Every machine gives the same bits, which
// math.Log does not promise.
func ln(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = 2*fraction, exponent-1
	}
	y := (fraction - 1) / (fraction + 1)
	square, power, sum := float64(y*y), y, 0.0
	for n := 1; n < 40; n += 2 {
		sum += power / float64(n)
		power = float64(power * square)
	}
	return float64(2*sum) + float64(math.Ln2*float64(exponent))
}

// exp returns e to the power of x for x of 0 to -100, with the same bits on every machine.
func exp(x float64) float64 {
	sum, term := 1.0, 1.0
	for n := 1; n < 20; n++ {
		term = float64(term*(x/128)) / float64(n)
		sum += term
	}
	for range 7 {
		sum = float64(sum * sum)
	}
	return sum
}
