package traintwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	for _, class := range trainset.Classes() {
		twins.Register(trainset.Name(trainset.Forward, class), func(b *twins.Block, a *trainset.ForwardBound) {
			forward(b, a, class)
		})
		twins.Register(trainset.Name(trainset.Back, class), func(b *twins.Block, a *trainset.BackBound) {
			back(b, a, class)
		})
	}
}

// unitScale is the scale of units as numbers.
const unitScale = 1 << kernels.AgentUnitBits

// pairs calls f with two agents of the block's share at a time, the longer of their lengths and the
// number of the agents, which is 2 but for the last one.
func pairs(b *twins.Block, agents uint32, lengths []uint32, f func(first, count, moments int)) {
	from, to := b.Part((uint64(agents) + 1) / 2)
	for ; from < to; from++ {
		first := int(2 * from)
		count := min(2, int(agents)-first)
		moments := uint32(0)
		for _, n := range lengths[first:][:count] {
			moments = max(moments, n)
		}
		f(first, count, int(moments))
	}
}

// forward is the twin of forward.cu.
func forward(b *twins.Block, a *trainset.ForwardBound, class int) {
	net := newNet(a.Table, class)
	defer net.release()
	x := inputs{class, a.Rows, a.Numbers, a.Embedded != 0}
	values := newBytes(2 * class)
	var next [2][kernels.AgentMostHidden]float32
	pairs(b, a.Agents, a.Lengths, func(first, count, moments int) {
		units := a.Carry[first*class:][:count*class]
		for t := range moments {
			at := t*int(a.Agents) + first
			for i := range count {
				for k, v := range units[i*class:][:class] {
					values.put(i, k, round(v, unitScale))
				}
				if t < int(a.Lengths[first+i]) {
					values.set(i, class, x.at(at+i))
				} else {
					values.set(i, class, nothing[:class])
				}
			}
			for j := range class {
				for i, g := range net.step(j, values) {
					if i < count {
						next[i][j] = fmath.FMA(g.z, units[i*class+j]-g.n, g.n)
					}
				}
			}
			for i := range count {
				if t >= int(a.Lengths[first+i]) {
					continue
				}
				copy(units[i*class:], next[i][:class])
				for k, v := range next[i][:class] {
					a.States[(at+i)*class+k] = int16(round(v, unitScale))
				}
			}
		}
	})
}

var nothing [4 * kernels.AgentMostHidden]int16

// backWork is what a block needs of a launch of Back.
type backWork struct {
	a       *trainset.BackBound
	class   int
	net     *net
	inputs  inputs
	readout readout
	unit    float32 // of the units' part of n
	w       int
	values  bytes // units before and inputs
	grads   bytes // of r, z and m, by gate and unit
	dh      [2][kernels.AgentMostHidden]float32
	sums    [kernels.AgentMostHidden]two
	maxima  []uint32 // of the block, by run
	cut     uint64
}

// back is the twin of back.cu.
func back(b *twins.Block, a *trainset.BackBound, class int) {
	w := &backWork{
		a: a, class: class, net: newNet(a.Table, class), inputs: inputs{class, a.Rows, a.Numbers, a.Embedded != 0},
		readout: newReadout(a.Readout, a.ReadoutRows, a.Control), w: int(int32(a.Control[trainset.ControlGateScale])),
		values: newBytes(2 * class), grads: newBytes(3 * class),
		maxima: make([]uint32, (a.Moments+trainset.Run-1)/trainset.Run),
	}
	defer w.net.release()
	w.unit = power(-w.w - 6)
	pairs(b, a.Agents, a.Lengths, func(first, count, moments int) {
		for i := range count {
			clear(w.dh[i][:])
			for t := int(a.Lengths[first+i]); t < int(a.Moments); t++ {
				clear(a.Gates[(t*int(a.Agents)+first+i)*4*class:][:4*class])
			}
		}
		for t := moments - 1; t >= 0; t-- {
			w.moment(t, first, count)
		}
	})
	for run, v := range w.maxima {
		for {
			old := atomic.LoadUint32(&a.Maxima[run])
			if v <= old || atomic.CompareAndSwapUint32(&a.Maxima[run], old, v) {
				break
			}
		}
	}
	atomic.AddUint64(&a.Totals[trainset.TotalCut], w.cut)
}

// moment goes one moment back with count agents.
func (w *backWork) moment(t, first, count int) {
	P, a := w.class, w.a
	at := t*int(a.Agents) + first
	s := int(a.Exponents[t/trainset.Run])
	scale := power(s)
	var alive [2]bool
	for i := range 2 {
		before := nothing[:P]
		x := nothing[:P]
		if alive[i] = i < count && t < int(a.Lengths[first+i]); alive[i] {
			x = w.inputs.at(at + i)
			w.ask(i, at+i)
			if t > 0 {
				before = a.States[(at+i-int(a.Agents))*P:][:P]
			}
		}
		w.values.set(i, 0, before)
		w.values.set(i, P, x)
	}
	most := &w.maxima[t/trainset.Run]
	for j := range P {
		gates := w.net.step(j, w.values)
		units := [2]int32{}
		for i, h := range split(w.values.high[j]) {
			units[i] = 256*h + split(w.values.low[j])[i]
		}
		for i, g := range gates {
			var numbers [4]int32
			if alive[i] {
				numbers = w.gradients(g, &w.dh[i][j], float32(units[i])*(1.0/unitScale), scale, most)
				to := a.Gates[(at+i)*4*P:]
				for k, v := range numbers {
					to[k*P+j] = int16(v)
				}
			}
			w.grads.put(i, j, numbers[0])
			w.grads.put(i, P+j, numbers[1])
			w.grads.put(i, 2*P+j, numbers[3])
		}
	}
	sums := w.sums[:P]
	clear(sums)
	for row := range 3 * P {
		spread(sums, w.grads.high[row], w.grads.low[row], w.net.gates.part(row*2*P, P))
	}
	unit := power(8 - s - w.w)
	for k, v := range sums {
		for i, sum := range split(v) {
			if alive[i] {
				w.dh[i][k] += float32(float32(sum) * unit)
			}
		}
	}
}

// gradients returns the numbers of the gradients of the gates r, z, n, and of the units' part of n,
// and sets dh to its product with z.
func (w *backWork) gradients(g gate, dh *float32, before, scale float32, most *uint32) (numbers [4]int32) {
	m := float32(g.m * w.unit)
	keep := 1 - g.z
	n := float32(float32(float32(*dh*keep)*(1-float32(g.n*g.n))) * 0.5)
	u := float32(n * g.r)
	r := float32(float32(n*m) * float32(g.r*(1-g.r)))
	z := float32(float32(*dh*(before-g.n)) * float32(g.z*keep))
	for k, v := range [4]float32{r, z, n, u} {
		*most = max(*most, math.Float32bits(fmath.Abs(v)))
		v = float32(v * scale)
		if fmath.Abs(v) > trainset.MostGradient {
			w.cut++
		}
		numbers[k] = round(fmath.Clamp(v, trainset.MostGradient), 1)
	}
	*dh = float32(*dh * g.z)
	return numbers
}

// spread adds the products of two numbers with a row of weights to sums.
func spread(sums []two, high, low two, row weights) {
	if high|low == 0 {
		return
	}
	number, top := row.number[:len(sums)], row.high[:len(sums)]
	for k := range sums {
		sums[k] += high*number[k] + low*top[k]
	}
}

// ask adds the gradient of the loss to dh of agent i of the pair.
func (w *backWork) ask(i, at int) {
	a := w.a
	factor := float32(a.Keep * power(-trainset.GradientBits-w.readout.scale))
	elements, row := max(1, int(a.Candidates)), 0
	if a.Candidates == 0 {
		if row = int(a.Items[at]); row < 0 {
			return
		}
	}
	gradients := a.Gradients[at*elements:][:elements]
	for k := range w.class {
		if a.Masks[at]>>k&1 == 0 {
			continue
		}
		sum := int32(0)
		for c, e := range gradients {
			sum += int32(e) * int32(w.readout.numbers[(row+c)*w.class+k])
		}
		w.dh[i][k] += float32(float32(sum) * factor)
	}
}
