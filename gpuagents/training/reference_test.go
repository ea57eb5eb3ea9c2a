package training

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// reference is the network in float64: torch.nn.GRUCell, a readout, and their derivatives, one
// agent after the other. It has the weights of Weights behind one another, in the order of
// Shape.tensors.
type reference struct {
	Shape
	w, g map[string][]float64 // weights and gradients by name
	keep float64
	drop uint32
	seed uint64
	now  uint32 // steps that are done
}

func newReference(s Shape, weights *Weights) *reference {
	r := &reference{Shape: s, w: map[string][]float64{}, g: map[string][]float64{}, keep: 1}
	for _, part := range s.tensors(weights) {
		v := make([]float64, len(*part.values))
		for i, x := range *part.values {
			v[i] = float64(x)
		}
		r.w[part.name], r.g[part.name] = v, make([]float64, len(v))
	}
	return r
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// moment is what a moment leaves for the way back.
type moment struct {
	h, x, r, z, n, m, out []float64
	in                    []bool // units that the readout sees
}

func (r *reference) input(b *Batch, i int) []float64 {
	x := make([]float64, r.Inputs)
	for k := range x {
		if r.Rows > 0 {
			x[k] = r.w["embed.weight"][int(b.Numbers[i])*r.Inputs+k]
		} else {
			x[k] = float64(b.Inputs[i*r.Inputs+k])
		}
	}
	return x
}

func (r *reference) forward(h, x []float64) *moment {
	H := r.Hidden
	zeros := func() []float64 { return make([]float64, H) }
	m := &moment{h: h, x: x, r: zeros(), z: zeros(), n: zeros(), m: zeros(), out: zeros()}
	sum := func(tensor, bias string, row int, v []float64) float64 {
		s := r.w[bias][row]
		for k, x := range v {
			s += r.w[tensor][row*len(v)+k] * x
		}
		return s
	}
	for j := range H {
		part := func(gate int) (in, units float64) {
			row := gate*H + j
			return sum("weight_ih", "bias_ih", row, x), sum("weight_hh", "bias_hh", row, h)
		}
		a, b := part(0)
		m.r[j] = sigmoid(a + b)
		a, b = part(1)
		m.z[j] = sigmoid(a + b)
		a, m.m[j] = part(2)
		m.n[j] = math.Tanh(a + m.r[j]*m.m[j])
		m.out[j] = m.n[j] + m.z[j]*(h[j]-m.n[j])
	}
	return m
}

// rows are the rows of the readout that a target asks, and the probabilities of them.
func (r *reference) score(b *Batch, i int, h []float64) (first int, p []float64) {
	if r.Items > 0 {
		first = int(b.Items[i])
	}
	for c := range r.elements() {
		s := r.w["readout.bias"][first+c]
		for k, x := range h {
			s += r.w["readout.weight"][(first+c)*r.Hidden+k] * x
		}
		p = append(p, s)
	}
	if r.Items > 0 {
		return first, []float64{sigmoid(p[0])}
	}
	most, sum := p[0], 0.0
	for _, v := range p {
		most = max(most, v)
	}
	for c := range p {
		p[c] = math.Exp(p[c] - most)
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	return first, p
}

func (r *reference) lose(target int, p []float64) float64 {
	switch {
	case r.Items == 0:
		return -math.Log(p[target])
	case target == 1:
		return -math.Log(p[0])
	}
	return -math.Log(1 - p[0])
}

// seen returns the units that the readout sees.
func (r *reference) seen(agent, t int) []bool {
	in := make([]bool, r.Hidden)
	for k := range in {
		words := kernels.Philox([2]uint32{uint32(r.seed), uint32(r.seed >> 32)},
			[4]uint32{uint32(agent), uint32(t), uint32(k / 8), r.now})
		in[k] = words[k%8/2]>>(16*(k%2))&0xffff >= r.drop
	}
	return in
}

// loss returns the sum of the losses and the number of targets, and adds the gradient of the sum to
// g.
func (r *reference) loss(b *Batch, train bool) (sum float64, count int) {
	for n := range b.Sequences {
		h := make([]float64, r.Hidden)
		var moments []*moment
		for t := range int(b.Lengths[n]) {
			i := t*b.Sequences + n
			m := r.forward(h, r.input(b, i))
			moments = append(moments, m)
			h = m.out
			if b.Targets[i] < 0 {
				continue
			}
			seen := h
			if train {
				m.in = r.seen(n, t)
				seen = make([]float64, len(h))
				for k := range seen {
					if m.in[k] {
						seen[k] = h[k] * r.keep
					}
				}
			}
			_, p := r.score(b, i, seen)
			sum, count = sum+r.lose(int(b.Targets[i]), p), count+1
		}
		if train {
			r.back(b, n, moments)
		}
	}
	return sum, count
}

func (r *reference) back(b *Batch, n int, moments []*moment) {
	H, I := r.Hidden, r.Inputs
	dh := make([]float64, H)
	for t := len(moments) - 1; t >= 0; t-- {
		m, i := moments[t], t*b.Sequences+n
		if target := int(b.Targets[i]); target >= 0 {
			seen := make([]float64, H)
			for k := range seen {
				if m.in[k] {
					seen[k] = m.out[k] * r.keep
				}
			}
			first, p := r.score(b, i, seen)
			for c, e := range p {
				if r.Items > 0 && target == 1 || r.Items == 0 && target == c {
					e--
				}
				r.g["readout.bias"][first+c] += e
				for k := range H {
					r.g["readout.weight"][(first+c)*H+k] += e * seen[k]
					if m.in[k] {
						dh[k] += e * r.keep * r.w["readout.weight"][(first+c)*H+k]
					}
				}
			}
		}
		next, dx := make([]float64, H), make([]float64, I)
		for j := range H {
			dn := dh[j] * (1 - m.z[j]) * (1 - m.n[j]*m.n[j])
			dr := dn * m.m[j] * m.r[j] * (1 - m.r[j])
			dz := dh[j] * (m.h[j] - m.n[j]) * m.z[j] * (1 - m.z[j])
			next[j] += dh[j] * m.z[j]
			for gate, g := range [3][2]float64{{dr, dr}, {dz, dz}, {dn, dn * m.r[j]}} {
				row := gate*H + j
				r.g["bias_ih"][row] += g[0]
				r.g["bias_hh"][row] += g[1]
				for k := range I {
					r.g["weight_ih"][row*I+k] += g[0] * m.x[k]
					dx[k] += g[0] * r.w["weight_ih"][row*I+k]
				}
				for k := range H {
					r.g["weight_hh"][row*H+k] += g[1] * m.h[k]
					next[k] += g[1] * r.w["weight_hh"][row*H+k]
				}
			}
		}
		if r.Rows > 0 {
			for k := range I {
				r.g["embed.weight"][int(b.Numbers[i])*I+k] += dx[k]
			}
		}
		dh = next
	}
}

// step makes a step of Adam in float64 with the gradient of the mean of count losses, and clears
// it. m and v are by name.
func (r *reference) step(a Adam, clip float32, count, n int, m, v map[string][]float64) {
	norm := 0.0
	for _, g := range r.g {
		for _, x := range g {
			norm += x * x
		}
	}
	by := 1 / float64(count)
	if norm = math.Sqrt(norm) * by; norm > float64(clip) && clip > 0 {
		by *= float64(clip) / norm
	}
	beta1, beta2 := decimal(a.Beta1), decimal(a.Beta2)
	for name, w := range r.w {
		if m[name] == nil {
			m[name], v[name] = make([]float64, len(w)), make([]float64, len(w))
		}
		for i := range w {
			g := r.g[name][i]*by + float64(a.Decay)*w[i]
			mean, square := &m[name][i], &v[name][i]
			*mean += (1 - beta1) * (g - *mean)
			*square = *square*beta2 + (1-beta2)*g*g
			root := math.Sqrt(*square / (1 - math.Pow(beta2, float64(n))))
			w[i] -= decimal(a.Rate) / (1 - math.Pow(beta1, float64(n))) * *mean / (root + decimal(a.Epsilon))
		}
		clear(r.g[name])
	}
	r.now++
}
