package celltwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// The latest time is a variable after the variables of the cell.
func init() {
	twins.Register("region_observe", func(b *twins.Block, a *kernels.ObserveBound) {
		observeByRatio(b, a, kernels.RegionVarLatest, regionStep)
	})
}

const (
	// roughFloor keeps the logarithm of steps above the logarithm of a resting value, in squared
	// spreads.
	roughFloor = 1e-4
	// inputRidge is the part of its variance that is added to each input, so that inputs that depend on
	// one another have a distance; pivotFloor does it for inputs that are constant.
	inputRidge = 1e-3
	pivotFloor = 1e-6
	// usualFloor is the least usual distance, a logarithm.
	usualFloor = 0.05
)

// regionStep is the Go twin of Region::step. Every agent has some inputs: values, running means or
// the logarithms of the sizes of steps of features. It learns their mean and covariance while the
// group is new, and afterwards from observations that it does not find suspicious. Its ratio is its
// squared distance from normal (Hotelling, 1947), as a smoothed logarithm, over the usual one.
func regionStep(o *observation, g *ratioGroup, inverse, _ float32) {
	A := o.agents
	front := float32(o.words[kernels.LeakyFrontRows])
	from, learn := o.float(kernels.RegionFrom), o.float(kernels.RegionLearn)
	seen := float32(o.u64[o.group64(kernels.RegionVarRound)])
	learned := seen - front
	traces, usually := o.each(kernels.RegionVarTrace, 0), o.each(kernels.RegionVarUsual, 0)
	for a := range A {
		var inputs [kernels.RegionPicks]float32
		x := inputs[:int(o.weights[kernels.RegionSize*A+a])]
		o.regionInputs(a, x, g.front.now, inverse)
		g.bins[a] = surpriseBin(0)
		if seen < front {
			continue
		}
		away, rate := float32(0), float32(0)
		if learned >= kernels.RegionSettling {
			away = fmath.Log(1 + o.regionDistance(a, x)/float32(len(x)))
			traces[a] += float32(o.float(kernels.RegionSmooth) * (away - traces[a]))
		}
		if seen < learn {
			if seen >= from {
				usually[a] += (away - usually[a]) / (seen - from + 1)
			}
			rate = 1 / (learned + 1)
		} else {
			ratio := traces[a] / (usually[a] + usualFloor)
			g.bins[a] = surpriseBin(ratio)
			if ratio < o.float(kernels.LeakySuspicious) {
				rate = o.float(kernels.RegionMemory)
			}
		}
		if rate > 0 {
			o.regionLearn(a, x, rate)
		}
	}
}

// regionInputs moves the running means of an agent by the observation now and sets x to its inputs.
func (o *observation) regionInputs(a int, x, now []float32, inverse float32) {
	A := o.agents
	rough := o.weights[kernels.RegionRough*A+a] != 0
	for k := range x {
		in := now[int(o.weights[(kernels.RegionFeature+k)*A+a])]
		if rough {
			last := &o.f32[o.agent(kernels.RegionVarLast, k)+a]
			by := in - *last
			*last = in
			in = float32(by * by)
		}
		filter := &o.f32[o.agent(kernels.RegionVarFilter, k)+a]
		rate := fmath.Max(inverse, o.weights[(kernels.RegionRate+k)*A+a])
		*filter += float32(rate * (in - *filter))
		x[k] = *filter
		if rough {
			x[k] = fmath.Log(x[k] + roughFloor)
		}
	}
}

// regionDistance returns the squared distance of x from the mean under the covariance, by its
// factors L D L'.
func (o *observation) regionDistance(a int, x []float32) float32 {
	var lower [kernels.RegionPicks][kernels.RegionPicks]float32
	var pivot, y [kernels.RegionPicks]float32
	means := o.f32[o.agent(kernels.RegionVarMean, 0)+a:]
	covariances := o.f32[o.agent(kernels.RegionVarCovariance, 0)+a:]
	sum, stride := float32(0), o.slots*o.agents
	for i := range x {
		row, first := &lower[i], i*(i+1)/2
		v := x[i] - means[i*stride]
		variance := covariances[(first+i)*stride]
		rest := variance
		for j := range i {
			s := covariances[(first+j)*stride]
			for k := range j {
				s -= float32(float32(row[k]*lower[j][k]) * pivot[k])
			}
			row[j] = s / pivot[j]
			rest -= float32(float32(row[j]*row[j]) * pivot[j])
			v -= float32(row[j] * y[j])
		}
		pivot[i] = fmath.Max(rest, 0) + float32(inputRidge*variance) + pivotFloor
		y[i] = v
		sum += float32(v*v) / pivot[i]
	}
	return sum
}

// regionLearn moves mean and covariance towards x.
func (o *observation) regionLearn(a int, x []float32, rate float32) {
	var d [kernels.RegionPicks]float32
	means := o.f32[o.agent(kernels.RegionVarMean, 0)+a:]
	covariances := o.f32[o.agent(kernels.RegionVarCovariance, 0)+a:]
	stride := o.slots * o.agents
	for i := range x {
		mean := &means[i*stride]
		d[i] = x[i] - *mean
		*mean += float32(rate * d[i])
		for j := range i + 1 {
			c := &covariances[(i*(i+1)/2+j)*stride]
			*c += float32(rate * (float32((1-rate)*float32(d[i]*d[j])) - *c))
		}
	}
}
