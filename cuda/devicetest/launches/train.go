package launches

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// TrainKernels returns the kernels that RandomTrain knows, in a fixed order.
func TrainKernels() []string { return trainset.Names() }

// maxTrainMoments is the maximum of the agents of a random launch times its moments, by which twins
// take less than a second.
const maxTrainMoments = 20_000

// RandomTrain returns a random launch of a kernel of package trainset over about n elements:
// moments of agents, or weights.
func RandomTrain(r *rand.Rand, kernel string, n int) *Arrays {
	switch kernel {
	case trainset.Gather:
		return randomGradient(r, n)
	case trainset.Adam:
		return randomAdam(r, n)
	case trainset.Maxima, trainset.Table:
		return randomTables(r, kernel, n)
	}
	at := strings.LastIndex(kernel, "_h")
	t := newTraining(r, map[string]int{"8": 8, "16": 16, "32": 32}[kernel[at+2:]], min(n, maxTrainMoments))
	switch kernel[:at] {
	case trainset.Forward:
		carry := make([]float32, t.agents*t.class)
		for i := range carry {
			if r.IntN(4) > 0 {
				carry[i] = 2*r.Float32() - 1
			}
		}
		return t.inputs((&Arrays{}).in(t.table())).in(own(t.lengths)).out(own(carry)).
			out(Poisoned(2 * t.class * t.count())).word(t.agents).word(t.moments)
	case trainset.Score:
		return t.score()
	case trainset.Back:
		return t.back()
	case trainset.Outer:
		a := t.inputs((&Arrays{}).in(t.gates())).in(own(t.lengths)).in(t.states())
		return a.out(t.sums(t.runs() * trainset.GateWeights(t.class))).word(t.agents).word(t.moments)
	}
	numbers := make([]int32, t.count())
	for i := range numbers {
		numbers[i] = r.Int32N(int32(t.rows))
	}
	return (&Arrays{}).in(t.table()).in(t.gates()).in(own(numbers)).in(own(t.lengths)).in(own(t.control())).
		in(own(t.exponents())).out(t.sums(t.rows * t.class)).out(t.sums(trainset.Totals)).
		word(t.agents).word(t.moments)
}

// training is a random batch.
type training struct {
	r                             *rand.Rand
	class, agents, moments        int
	rows, candidates, readoutRows int
	scale, readoutScale           int
	lengths                       []uint32
	embedded                      bool
}

func newTraining(r *rand.Rand, class, n int) *training {
	t := &training{
		r: r, class: class, moments: 1 + r.IntN(20), rows: 1 + r.IntN(9), scale: 9 + r.IntN(6),
		readoutScale: 8 + r.IntN(6), embedded: r.IntN(2) == 0,
	}
	if t.readoutRows = 1 + r.IntN(9); r.IntN(2) == 0 {
		t.candidates = 2 + r.IntN(3)
		if r.IntN(4) == 0 {
			t.candidates = 2 + r.IntN(kernels.AgentMostCandidates-1)
		}
		t.readoutRows = t.candidates
	}
	t.agents = max(1, n/t.moments)
	t.lengths = make([]uint32, t.agents)
	for i := range t.lengths {
		t.lengths[i] = r.Uint32N(uint32(t.moments) + 1)
		if r.IntN(2) == 0 {
			t.lengths[i] = uint32(t.moments)
		}
	}
	return t
}

func (t *training) count() int { return t.agents * t.moments }

func (t *training) runs() int { return (t.moments + trainset.Run - 1) / trainset.Run }

// numbers returns n random numbers of most at most, of either sign.
func (t *training) numbers(n, most int) []int16 {
	v := make([]int16, n)
	for i := range v {
		v[i] = int16(t.r.IntN(2*most+1) - most)
	}
	return v
}

func (t *training) states() []byte {
	return own(t.numbers(t.class*t.count(), 1<<kernels.AgentUnitBits))
}

// gates are gradients, some of them large, and zeros where an agent has no moment.
func (t *training) gates() []byte {
	v := t.numbers(4*t.class*t.count(), trainset.MostGradient)
	for i := range v {
		v[i] >>= t.r.IntN(12)
		if at := i / 4 / t.class; at/t.agents >= int(t.lengths[at%t.agents]) {
			v[i] = 0
		}
	}
	return own(v)
}

func (t *training) sums(n int) []byte {
	v := make([]uint64, n)
	for i := range v {
		v[i] = t.r.Uint64N(1 << 20)
	}
	return own(v)
}

func (t *training) table() []byte {
	v := make([]uint32, kernels.AgentTableReadout(t.class))
	for i, c := range kernels.Logistic(t.scale + kernels.AgentUnitBits - 8) {
		v[kernels.AgentTableLogistic+i] = math.Float32bits(c)
	}
	for i := range 4 * t.class {
		v[kernels.AgentTableBias+i] = uint32(t.r.Int32N(1<<20) - 1<<19)
	}
	weights := device.Of[int16](device.Bytes(v[kernels.AgentTableWeights(t.class):]))
	copy(weights, t.numbers(len(weights), 1<<(8+t.r.IntN(6))))
	return own(v)
}

func (t *training) readout() []byte {
	padded := trainset.Padded(t.readoutRows)
	v := make([]uint32, trainset.ReadoutHead+padded+t.readoutRows*t.class/2)
	for i, c := range kernels.Logistic(t.readoutScale + kernels.AgentUnitBits - 8) {
		v[i] = math.Float32bits(c)
	}
	for i := range padded {
		v[trainset.ReadoutHead+i] = uint32(t.r.Int32N(1<<18) - 1<<17)
	}
	weights := device.Of[int16](device.Bytes(v[trainset.ReadoutHead+padded:]))
	copy(weights, t.numbers(len(weights), 1<<(8+t.r.IntN(5))))
	return own(v)
}

func (t *training) control() []uint32 {
	v := make([]uint32, trainset.ControlWords)
	v[trainset.ControlGateScale], v[trainset.ControlReadoutScale] = uint32(t.scale), uint32(t.readoutScale)
	return v
}

// exponents are such that some gradients are cut off.
func (t *training) exponents() []int32 {
	v := make([]int32, t.runs())
	for i := range v {
		v[i] = int32(8 + t.r.IntN(12))
	}
	return v
}

// inputs appends rows, numbers and embedded. Numbers behind the moments of an agent have no row.
func (t *training) inputs(a *Arrays) *Arrays {
	if !t.embedded {
		return a.in(own(t.numbers(t.class*t.count(), 32_512))).in(nil).word(0)
	}
	numbers := make([]int32, t.count())
	for i := range numbers {
		if numbers[i] = t.r.Int32N(int32(t.rows)); i/t.agents >= int(t.lengths[i%t.agents]) {
			numbers[i] = math.MaxInt32
		}
	}
	return a.in(own(t.numbers(t.class*t.rows, 32_512))).in(own(numbers)).word(1)
}

// asked returns the items and the targets of a batch. Without items, the first is nil.
func (t *training) asked(all bool) (items, targets []int32) {
	targets = make([]int32, t.count())
	if t.candidates == 0 {
		items = make([]int32, t.count())
	}
	for i := range targets {
		targets[i] = t.r.Int32N(int32(max(2, t.candidates)))
		if items != nil {
			items[i] = t.r.Int32N(int32(t.readoutRows))
			if i >= t.agents && items[i-t.agents] >= 0 && t.r.IntN(2) == 0 {
				items[i] = items[i-t.agents]
			}
		}
		there := i/t.agents < int(t.lengths[i%t.agents])
		if !there || t.r.IntN(4) == 0 {
			targets[i] = -1
			if items != nil && (!there || all || t.r.IntN(2) == 0) {
				items[i] = -1
			}
		}
	}
	return items, targets
}

func (t *training) score() *Arrays {
	train := t.r.IntN(3) > 0
	items, targets := t.asked(false)
	elements := max(1, t.candidates)
	a := (&Arrays{}).in(t.readout()).in(t.states()).in(own(items)).in(own(targets)).in(own(t.lengths)).
		word(t.candidates).word(t.readoutRows)
	drop := 0
	if t.r.IntN(3) > 0 {
		drop = t.r.IntN(1 << 15)
	}
	keep := float32(1 / (1 - float64(drop)/(1<<16)))
	if train {
		a.word(1).word(drop)
	} else {
		a.word(0).word(0)
	}
	a.scalar(device.Float32(keep)).scalar(device.Uint64(t.r.Uint64())).word(t.r.IntN(1 << 20)).
		word(t.r.IntN(1 << 30)).in(own(t.control()))
	if train {
		a.out(Poisoned(2 * elements * t.count())).out(Poisoned(4 * t.count())).in(nil).
			out(t.sums(t.readoutRows*t.class + trainset.Padded(t.readoutRows)))
	} else {
		a.in(nil).in(nil).out(Poisoned(4 * elements * t.count())).in(nil)
	}
	return a.out(t.sums(trainset.Totals)).word(t.agents).word(t.moments)
}

func (t *training) back() *Arrays {
	items, targets := t.asked(true)
	elements := max(1, t.candidates)
	gradients, masks := t.numbers(elements*t.count(), 1<<trainset.GradientBits), make([]uint32, t.count())
	for i, target := range targets {
		if target < 0 {
			clear(gradients[i*elements:][:elements])
			continue
		}
		masks[i] = t.r.Uint32()
		for k := range elements { // probabilities add up to one
			gradients[i*elements+k] /= int16(elements)
		}
	}
	a := t.inputs((&Arrays{}).in(t.table())).in(own(t.lengths)).in(t.states()).in(t.readout()).word(t.readoutRows).
		in(own(items)).word(t.candidates).in(own(gradients)).in(own(masks)).
		scalar(device.Float32(1 + t.r.Float32())).in(own(t.control())).in(own(t.exponents()))
	return a.out(make([]byte, 4*t.runs())).out(Poisoned(8 * t.class * t.count())).out(t.sums(trainset.Totals)).
		word(t.agents).word(t.moments)
}

// randomWeights returns the sizes of a vector of about n weights.
func randomWeights(r *rand.Rand, n int) (units, readoutRows, embedRows, all int) {
	units = trainset.Classes()[r.IntN(3)]
	rest := max(0, n-trainset.GateWeights(units)) / units
	readoutRows = 1 + r.IntN(rest/2+2)
	embedRows = r.IntN(rest + 1)
	return units, readoutRows, embedRows,
		trainset.GateWeights(units) + (readoutRows+embedRows)*units + trainset.Padded(readoutRows)
}

func randomGradient(r *rand.Rand, n int) *Arrays {
	units, readoutRows, embedRows, all := randomWeights(r, n)
	runs := 1 + r.IntN(4)
	sums := func(n int) []byte {
		v := make([]int64, n)
		for i := range v {
			v[i] = (r.Int64() - r.Int64()) >> (8 + r.IntN(50))
		}
		return own(v)
	}
	exponents := make([]int32, runs)
	for i := range exponents {
		exponents[i] = r.Int32N(2*trainset.MostExponent+1) - trainset.MostExponent
	}
	control := make([]uint32, trainset.ControlWords)
	for i := range control {
		if i != trainset.ControlTicket {
			control[i] = r.Uint32()
		}
	}
	return (&Arrays{}).in(sums(runs * trainset.GateWeights(units))).
		in(sums(readoutRows*units + trainset.Padded(readoutRows))).in(sums(embedRows * units)).in(own(exponents)).
		out(own(control)).out(Poisoned(4 * all)).
		out(Poisoned(4 * ((all + trainset.SuperTile - 1) / trainset.SuperTile))).
		scalar(device.Float32(1 + r.Float32())).scalar(device.Float32(r.Float32())).
		scalar(device.Float32(float32(r.IntN(3)))).word(units).word(runs).word(readoutRows).word(embedRows)
}

func randomAdam(r *rand.Rand, n int) *Arrays {
	values := func(most float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()*most))
		}
		return v
	}
	square := values(4)
	for i, v := range square {
		if square[i] = v * v; r.IntN(8) == 0 {
			square[i] = 0
		}
	}
	control := make([]uint32, trainset.ControlWords)
	control[trainset.ControlNorm] = math.Float32bits(r.Float32())
	control[trainset.ControlCoefficient] = math.Float32bits(r.Float32())
	if r.IntN(8) == 0 {
		control[trainset.ControlNorm] = math.Float32bits(float32(math.Inf(1))) + r.Uint32N(2)
	}
	return (&Arrays{}).out(own(values(1))).out(own(values(4))).out(own(square)).in(own(values(4))).in(own(control)).
		scalar(device.Float32(1e-5)).scalar(device.Float32(0.1)).scalar(device.Float32(0.999)).
		scalar(device.Float32(0.001)).scalar(device.Float32(4e-3 * (1 + r.Float32()))).
		scalar(device.Float32(r.Float32())).scalar(device.Float32(1e-8)).scalar(device.Uint64(uint64(n)))
}

func randomTables(r *rand.Rand, kernel string, n int) *Arrays {
	units, readoutRows, embedRows, all := randomWeights(r, n)
	weights, most := make([]float32, all), 4*r.Float32()
	for i := range weights {
		weights[i] = (2*r.Float32() - 1) * most
	}
	control := make([]uint32, trainset.ControlWords)
	if kernel == trainset.Maxima {
		return (&Arrays{}).in(own(weights)).out(own(control)).word(units).word(readoutRows)
	}
	for i, by := range []float32{16, 2, 1, 1} {
		control[trainset.ControlGates+i] = math.Float32bits(most * by * (1 + r.Float32()))
	}
	runs := 1 + r.IntN(40)
	exponents, maxima := make([]int32, runs), make([]uint32, runs)
	for i := range maxima {
		if exponents[i] = r.Int32N(100); r.IntN(3) > 0 {
			maxima[i] = r.Uint32N(255 << 23)
		}
	}
	return (&Arrays{}).in(own(weights)).out(own(control)).out(Poisoned(4 * kernels.AgentTableReadout(units))).
		out(Poisoned(4 * (trainset.ReadoutHead + trainset.Padded(readoutRows) + readoutRows*units/2))).
		out(Poisoned(2 * embedRows * units)).out(own(exponents)).out(own(maxima)).
		word(units).word(runs).word(readoutRows).word(embedRows)
}
