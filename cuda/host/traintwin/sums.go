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

// outerAgents is the number of agents whose gradients of a run are added up at once: sums of as many in
// int32 do not overflow.
const outerAgents = 32

// outerWork is what a block needs of a launch of Outer. Sums of pairs of columns are in one word.
type outerWork struct {
	a             *trainset.OuterBound
	class         int
	inputs        inputs
	hidden, input []two // [3][P][P/2]
	biases        []int64
	before, x     columns
}

// columns are numbers of pairs of columns, whole and their high bytes.
type columns struct{ number, high []two }

func newColumns(class int) columns { return columns{make([]two, class/2), make([]two, class/2)} }

func (c *columns) set(numbers []int16) {
	for k := range c.number {
		first, second := int32(numbers[2*k]), int32(numbers[2*k+1])
		high0, _ := parts(first)
		high1, _ := parts(second)
		c.number[k], c.high[k] = join(int64(first), int64(second)), join(high0, high1)
	}
}

// outer is the twin of outer.cu.
func outer(b *twins.Block, a *trainset.OuterBound, class int) {
	chunks := (uint64(a.Agents) + outerAgents - 1) / outerAgents
	from, to := b.Part(chunks * uint64((a.Moments+trainset.Run-1)/trainset.Run))
	if from == to {
		return
	}
	half := 3 * class * class / 2
	w := &outerWork{
		a: a, class: class, inputs: inputs{class, a.Rows, a.Numbers, a.Embedded != 0},
		hidden: make([]two, half), input: make([]two, half), biases: make([]int64, 6*class),
		before: newColumns(class), x: newColumns(class),
	}
	for i := from; i < to; i++ {
		run, first := uint32(i/chunks), uint32(i%chunks)*outerAgents
		clear(w.hidden)
		clear(w.input)
		clear(w.biases)
		for n := first; n < min(first+outerAgents, a.Agents); n++ {
			for t := run * trainset.Run; t < min((run+1)*trainset.Run, a.Moments, a.Lengths[n]); t++ {
				w.add(int(t), int(n))
			}
		}
		w.flush(a.Sums[int(run)*trainset.GateWeights(class):])
	}
}

// add adds the products of one moment of an agent.
func (w *outerWork) add(t, n int) {
	P := w.class
	at := t*int(w.a.Agents) + n
	before := nothing[:P]
	if t > 0 {
		before = w.a.States[(at-int(w.a.Agents))*P:][:P]
	}
	w.before.set(before)
	w.x.set(w.inputs.at(at))
	gates := w.a.Gates[at*4*P:][:4*P]
	for row := range 3 * P {
		units := row
		if row >= 2*P {
			units += P
		}
		w.biases[row] += int64(gates[row])
		w.biases[3*P+row] += int64(gates[units])
		w.x.times(w.input[row*P/2:], int32(gates[row]))
		w.before.times(w.hidden[row*P/2:], int32(gates[units]))
	}
}

// times adds the products with a number to sums.
func (c *columns) times(sums []two, v int32) {
	if v == 0 {
		return
	}
	high, low := parts(v)
	sums, top := sums[:len(c.number)], c.high[:len(c.number)]
	for k, number := range c.number {
		sums[k] += high*number + low*top[k]
	}
}

// flush adds the sums of a run to the sums of all.
func (w *outerWork) flush(to []uint64) {
	half := len(w.hidden)
	for i, v := range w.hidden {
		for k, sum := range split(v) {
			addTo(&to[2*i+k], int64(sum))
		}
	}
	for i, v := range w.input {
		for k, sum := range split(v) {
			addTo(&to[2*(half+i)+k], int64(sum))
		}
	}
	for i, v := range w.biases {
		addTo(&to[4*half+i], v)
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
