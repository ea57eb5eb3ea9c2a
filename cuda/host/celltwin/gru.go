package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// Groups with their own weights have one more variable, so the latest time is one further.
func init() {
	twins.Register("gru_observe", func(b *twins.Block, a *kernels.ObserveBound) {
		observeByRatio(b, a, kernels.GruVarWeights+int(a.Params[kernels.GruOwn]), gruStep)
	})
}

// sigmoid32 returns the logistic function of x, by fmath.Tanh.
func sigmoid32(x float32) float32 { return 0.5 + float32(0.5*fmath.Tanh(float32(0.5*x))) }

// gruRow is one gate of one unit: the weights of the units and of the input, and the bias.
type gruRow []float32

func (r gruRow) units(h []float32) float32 {
	sum := float32(0)
	for k, v := range h {
		sum += float32(r[k] * v)
	}
	return sum
}

func (r gruRow) input(H int, x float32) float32 { return r[H+1] + float32(r[H]*x) }

// gruStep is the Go twin of Gru::step: every agent is a gated recurrent unit (Cho et al. 2014, in
// the form in which the reset gate acts on the units' part of the sum) with weights that all agents
// of a group share, and reads its next view out of it by its own readout, which learns by
// normalised least mean squares. Its ratio is its error over its usual one.
func gruStep(o *observation, g *ratioGroup, inverse, rate float32) {
	A, H := o.agents, int(o.words[kernels.GruHidden])
	learn := o.float(kernels.GruLearn)
	own, shared := o.weights, o.weights
	if o.words[kernels.GruOwn] == 0 {
		own = own[kernels.GruShared(H):]
	} else {
		n := kernels.GruShared(H)
		own, shared = own[kernels.SeedWords:], o.f32[int(o.offsets[kernels.GruVarWeights])/4+int(o.run.Slot)*n:][:n]
		if inverse == 1 { // the first observation
			drawGru(o, shared, H)
		}
	}
	row := func(gate, j int) gruRow { return shared[(gate*H+j)*(H+2):][:H+2] }
	if len(g.scratch) < H {
		g.scratch = make([]float32, kernels.GruMostHidden)
	}
	h := g.scratch[:H]
	first, readout := o.agent(kernels.GruVarHidden, 0), o.agent(kernels.GruVarReadout, 0)
	apart := o.slots * A // from one component of an agent to the next
	lasts, usually := o.each(kernels.GruVarLast, 0), o.each(kernels.GruVarUsual, 0)
	for i := range lasts {
		c, hidden, weights := own[i:], o.f32[first+i:], o.f32[readout+i:]
		predicted, norm, square := float32(0), float32(ridge), float32(0)
		for j := range H + 1 {
			x, w := lasts[i], weights[j*apart]
			if j < H {
				x = hidden[j*apart]
				h[j] = x
			}
			predicted += float32(w * x)
			norm += float32(x * x)
			square += float32(w * w)
		}
		view := project(c[kernels.GruProject*A:], A, g.front.now)
		e := view - predicted
		usual := usually[i] + errorFloor
		g.bins[i] = surpriseBin(fmath.Abs(e) / usual)

		gain := float32(learn*fmath.Clamp(e, float32(gradientClip*usual))) / norm
		for j := range H + 1 {
			x := lasts[i]
			if j < H {
				x = h[j]
			}
			if square > largestReadout {
				weights[j*apart] = 0
			} else {
				weights[j*apart] += float32(gain * x)
			}
		}
		usually[i] += float32(rate * (fmath.Min(fmath.Abs(e), float32(usualClip*usual)) - usually[i]))
		lasts[i] = fmath.Clamp(view, reach3)
		x := c[kernels.GruOffset*A] + float32(c[kernels.GruGain*A]*lasts[i])
		for j := range H {
			update, reset, fresh := row(kernels.GruUpdate, j), row(kernels.GruReset, j), row(kernels.GruNew, j)
			z := sigmoid32(update.input(H, x) + update.units(h))
			r := sigmoid32(reset.input(H, x) + reset.units(h))
			n := fmath.Tanh(fresh.input(H, x) + float32(r*fresh.units(h)))
			hidden[j*apart] = n + float32(z*(h[j]-n))
		}
	}
}

func drawGru(o *observation, to []float32, H int) {
	part := func(i int) uint32 { return uint32(o.weights[i]) | uint32(o.weights[i+1])<<16 }
	key := [2]uint32{part(0), part(2)}
	var block [4]uint32
	for i := range to {
		if i%4 == 0 {
			block = kernels.Philox(key, kernels.GruOwnWeight(uint32(i), o.run.Group))
		}
		reach := o.float(kernels.GruBiasReach)
		switch place, gate := i%(H+2), i/(H+2)/H; {
		case place < H:
			reach = o.float(kernels.GruUnitsReach)
		case place == H:
			reach = o.float(kernels.GruInputReach)
		case gate == kernels.GruUpdate:
			reach = o.float(kernels.GruUpdateReach)
		}
		u := float32(block[i%4]>>8) / (1 << 24)
		to[i] = float32((float32(2*u) - 1) * reach)
	}
}
