package traintwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	for _, class := range trainset.Classes() {
		twins.Register(trainset.Name(trainset.Outer, class), func(b *twins.Block, a *trainset.OuterBound) {
			outer(b, a, class)
		})
		twins.Register(trainset.Name(trainset.Embed, class), func(b *twins.Block, a *trainset.EmbedBound) {
			embed(b, a, class)
		})
	}
}

// outerAgents is the number of agents whose gradients of a run are added up at once.
const outerAgents = 32

// outerWork is what a block needs of a launch of Outer.
type outerWork struct {
	a         *trainset.OuterBound
	class     int
	inputs    inputs
	sums      []int64 // of a run, as a.Sums
	before, x []int64
}

// outer is the twin of outer.cu.
func outer(b *twins.Block, a *trainset.OuterBound, class int) {
	chunks := (uint64(a.Agents) + outerAgents - 1) / outerAgents
	from, to := b.Part(chunks * uint64((a.Moments+trainset.Run-1)/trainset.Run))
	if from == to {
		return
	}
	sums := borrow(trainset.GateWeights(class))
	defer sums.release()
	w := &outerWork{
		a: a, class: class, inputs: inputs{class, a.Rows, a.Numbers, a.Embedded != 0},
		sums: sums.of, before: make([]int64, class), x: make([]int64, class),
	}
	for i := from; i < to; i++ {
		run, first := uint32(i/chunks), uint32(i%chunks)*outerAgents
		clear(w.sums)
		for n := first; n < min(first+outerAgents, a.Agents); n++ {
			for t := run * trainset.Run; t < min((run+1)*trainset.Run, a.Moments, a.Lengths[n]); t++ {
				w.add(int(t), int(n))
			}
		}
		for k, v := range w.sums {
			addTo(&a.Sums[int(run)*len(w.sums)+k], v)
		}
	}
}

// add adds the products of one moment of an agent.
func (w *outerWork) add(t, n int) {
	P := w.class
	at := t*int(w.a.Agents) + n
	clear(w.before)
	if t > 0 {
		widen(w.before, w.a.States[(at-int(w.a.Agents))*P:])
	}
	widen(w.x, w.inputs.at(at))
	gates := w.a.Gates[at*4*P:][:4*P]
	hidden, input, biases := w.sums[:3*P*P], w.sums[3*P*P:6*P*P], w.sums[6*P*P:]
	for row := range 3 * P {
		units := row
		if row >= 2*P {
			units += P
		}
		biases[row] += int64(gates[row])
		biases[3*P+row] += int64(gates[units])
		addProducts(input[row*P:], w.x, int64(gates[row]))
		addProducts(hidden[row*P:], w.before, int64(gates[units]))
	}
}

func widen(to []int64, from []int16) {
	for k := range to {
		to[k] = int64(from[k])
	}
}

// addProducts adds the products of a number with others to sums.
func addProducts(sums, numbers []int64, by int64) {
	if by == 0 {
		return
	}
	sums = sums[:len(numbers)]
	for k, v := range numbers {
		sums[k] += by * v
	}
}

func addTo(to *uint64, v int64) {
	if v != 0 {
		atomic.AddUint64(to, uint64(v))
	}
}

// embed is the twin of embed.cu.
func embed(b *twins.Block, a *trainset.EmbedBound, class int) {
	from, to := b.Part(uint64(a.Agents) * uint64(a.Moments))
	if from == to {
		return
	}
	net, w := newNet(a.Table, class), int(int32(a.Control[trainset.ControlGateScale]))
	defer net.release()
	cut := uint64(0)
	sums := make([]two, class)
	for i := from; i < to; i++ {
		t, n := uint32(i/uint64(a.Agents)), uint32(i%uint64(a.Agents))
		if t >= a.Lengths[n] {
			continue
		}
		clear(sums)
		for row, v := range a.Gates[int(i)*4*class:][:3*class] {
			high, low := parts(int32(v))
			spread(sums, high, low, net.gates.part(row*2*class+class, class))
		}
		unit := power(5 - int(a.Exponents[t/trainset.Run]) - w)
		for k, sum := range sums {
			v := float32(float32(int32(sum)) * unit)
			if fmath.Abs(v) > trainset.MostInput {
				cut++
			}
			v = float32(fmath.Clamp(v, trainset.MostInput) * (1 << trainset.EmbedBits))
			addTo(&a.Sums[int(a.Numbers[i])*class+k], int64(math.RoundToEven(float64(v))))
		}
	}
	atomic.AddUint64(&a.Totals[trainset.TotalCut], cut)
}
