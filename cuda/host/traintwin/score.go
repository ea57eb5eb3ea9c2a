package traintwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	for _, class := range trainset.Classes() {
		twins.Register(trainset.Name(trainset.Score, class), func(b *twins.Block, a *trainset.ScoreBound) {
			score(b, a, class)
		})
	}
}

// readout is the table of a readout.
type readout struct {
	logistic fmath.Logistic
	bias     []int32
	numbers  []int16
	scale    int
}

func newReadout(words []uint32, rows uint32, control []uint32) readout {
	r := readout{scale: int(int32(control[trainset.ControlReadoutScale]))}
	for i := range r.logistic {
		r.logistic[i] = math.Float32frombits(words[i])
	}
	rest, padded := words[trainset.ReadoutHead:], trainset.Padded(int(rows))
	r.bias = device.Of[int32](device.Bytes(rest[:padded]))
	r.numbers = device.Of[int16](device.Bytes(rest[padded:]))
	return r
}

// mostLocalRows is the largest readout whose sums a block adds up alone before it adds them to all.
const mostLocalRows = 4096

// scoreWork is what a block needs of a launch of Score.
type scoreWork struct {
	a        *trainset.ScoreBound
	class    int
	readout  readout
	unit     float32
	elements int
	sums     []uint64 // nil: the block adds to the sums of all
	loss     uint64
	// Of each candidate: the logit, how far it is below the largest one, and the probability. With
	// items there is one. total is the sum that probabilities are parts of.
	logits, below, probabilities [kernels.AgentMostCandidates]float32
	total                        float32
}

// score is the twin of score.cu.
func score(b *twins.Block, a *trainset.ScoreBound, class int) {
	from, to := b.Part(uint64(a.Agents) * uint64(a.Moments))
	if from == to {
		return
	}
	w := &scoreWork{
		a: a, class: class, readout: newReadout(a.Readout, a.ReadoutRows, a.Control),
		elements: max(1, int(a.Candidates)),
	}
	w.unit = power(-w.readout.scale - 6)
	if a.Train != 0 && a.ReadoutRows <= mostLocalRows {
		sums := borrow(len(a.Sums))
		defer sums.release()
		clear(sums.of)
		w.sums = device.Of[uint64](device.Bytes(sums.of))
	}
	for at := from; at < to; at++ {
		w.target(int(at), uint32(at%uint64(a.Agents)), uint32(at/uint64(a.Agents)))
	}
	for i, v := range w.sums {
		if v != 0 {
			atomic.AddUint64(&a.Sums[i], v)
		}
	}
	atomic.AddUint64(&a.Totals[trainset.TotalLoss], w.loss)
}

// target makes one moment of an agent.
func (w *scoreWork) target(at int, agent, moment uint32) {
	a := w.a
	target, row := int(a.Targets[at]), 0
	if a.Candidates == 0 {
		row = int(a.Items[at])
	}
	if a.Train != 0 {
		w.train(at, row, target, agent, moment)
		return
	}
	if moment >= a.Lengths[agent] || row < 0 {
		return
	}
	units := a.States[at*w.class:][:w.class]
	for c := range w.elements {
		sum := w.readout.bias[row+c]
		for k, h := range units {
			sum += w.product(int32(h), row+c, k)
		}
		w.logits[c] = float32(sum)
	}
	w.compare()
	copy(a.Predictions[at*w.elements:], w.probabilities[:w.elements])
	if target >= 0 {
		w.lose(target)
	}
}

// train makes one moment of an agent with dropout, and the gradients.
func (w *scoreWork) train(at, row, target int, agent, moment uint32) {
	a := w.a
	gradients := a.Gradients[at*w.elements:][:w.elements]
	a.Masks[at] = 0
	if target < 0 {
		clear(gradients)
		return
	}
	mask := w.mask(agent, moment)
	a.Masks[at] = mask
	units := a.States[at*w.class:][:w.class]
	for c := range w.elements {
		sum := int32(0)
		for k, h := range units {
			if mask>>k&1 == 1 {
				sum += w.product(int32(h), row+c, k)
			}
		}
		w.logits[c] = fmath.FMA(float32(sum), a.Keep, float32(w.readout.bias[row+c]))
	}
	w.compare()
	w.lose(target)
	for c := range w.elements {
		e := w.probabilities[c]
		if a.Candidates == 0 && target == 1 || a.Candidates > 0 && target == c {
			e--
		}
		number := round(e, 1<<trainset.GradientBits)
		gradients[c] = int16(number)
		for k, h := range units {
			if mask>>k&1 == 1 {
				w.add((row+c)*w.class+k, int64(number)*int64(h))
			}
		}
		w.add(int(a.ReadoutRows)*w.class+row+c, int64(number))
	}
}

func (w *scoreWork) add(at int, v int64) {
	if w.sums != nil {
		w.sums[at] += uint64(v)
		return
	}
	atomic.AddUint64(&w.a.Sums[at], uint64(v))
}

// product is the product of unit k with its weight in a row, without the product of low bytes.
func (w *scoreWork) product(h int32, row, k int) int32 {
	high, low := parts(h)
	number := int32(w.readout.numbers[row*w.class+k])
	top, _ := parts(number)
	return int32(high)*number + int32(low)*int32(top)
}

// mask has a bit for each unit that counts.
func (w *scoreWork) mask(agent, moment uint32) (mask uint32) {
	a := w.a
	if a.Drop == 0 {
		return math.MaxUint32
	}
	for k := range w.class {
		words := kernels.Philox([2]uint32{uint32(a.Seed), uint32(a.Seed >> 32)},
			[4]uint32{a.First + agent, moment, uint32(k) / 8, a.Step})
		if words[k%8/2]>>(16*(k%2))&0xffff >= a.Drop {
			mask |= 1 << k
		}
	}
	return mask
}

// compare makes probabilities of logits.
func (w *scoreWork) compare() {
	if w.a.Candidates == 0 {
		w.probabilities[0] = w.readout.logistic.At(w.logits[0])
		return
	}
	most := w.logits[0]
	for _, x := range w.logits[1:w.elements] {
		most = fmath.Max(most, x)
	}
	w.total = 0
	for c, x := range w.logits[:w.elements] {
		w.below[c] = fmath.Min(float32((most-x)*w.unit), 80)
		w.probabilities[c] = 1 / fmath.Exp(w.below[c])
		w.total += w.probabilities[c]
	}
	for c := range w.elements {
		w.probabilities[c] /= w.total
	}
}

// lose adds the loss of a target.
func (w *scoreWork) lose(target int) {
	var loss float32
	if w.a.Candidates == 0 {
		p := w.probabilities[0]
		if target == 0 {
			p = 1 - p
		}
		loss = -fmath.Log(fmath.Max(p, 1.0/(1<<24)))
	} else {
		loss = fmath.Log(w.total) + w.below[target]
	}
	w.loss += uint64(int64(math.RoundToEven(float64(float32(loss * (1 << trainset.LossBits))))))
}
