package transformer

import (
	"math"

	"github.com/exoswarm/exoswarm/internal/base/architecture"
)

// plain computes a model in float64, in the plainest way: it is the twin of a machine.
type plain struct {
	*model
	frequencies  []float64
	keys, values [][][]float64 // [layer][position]
}

func newPlain(m *model) *plain {
	return &plain{
		model: m, frequencies: frequencies(&m.p, m.tensors[architecture.RopeFreqs].values),
		keys: make([][][]float64, m.p.Layers), values: make([][][]float64, m.p.Layers),
	}
}

func (c *plain) times(name string, x []float64) []float64 {
	w := c.tensors[name]
	y := make([]float64, w.shape[0])
	for o := range y {
		for i, v := range x {
			y[o] += float64(w.values[o*len(x)+i]) * v
		}
	}
	return y
}

func (c *plain) norm(name string, x []float64) []float64 {
	sum, y := 0.0, make([]float64, len(x))
	for _, v := range x {
		sum += v * v
	}
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+c.p.Epsilon) * float64(c.tensors[name].values[i])
	}
	return y
}

func (c *plain) addTo(y []float64, name string) {
	for i, v := range c.tensors[name].values {
		y[i] += float64(v)
	}
}

// heads norms and turns the heads of queries or keys at a position.
func (c *plain) heads(x []float64, norm string, at int) {
	n := c.p.HeadWidth
	for h := 0; h < len(x); h += n {
		of := x[h:][:n]
		if c.p.HeadNorms {
			copy(of, c.norm(norm, of))
		}
		for i, f := range c.frequencies {
			a, b := i, i+n/2
			if c.p.Rope.Pairs {
				a, b = 2*i, 2*i+1
			}
			sin, cos := math.Sincos(float64(at) * f)
			of[a], of[b] = of[a]*cos-of[b]*sin, of[b]*cos+of[a]*sin
		}
	}
}

// next reads a token, and returns the last normalised state and the logits.
func (c *plain) next(token int32) (state, logits []float64) {
	p := &c.p
	at := len(c.keys[0])
	x := make([]float64, p.Width)
	for i := range x {
		x[i] = float64(c.tensors[architecture.Embedding].values[int(token)*p.Width+i])
	}
	for l := range p.Layers {
		name := func(end string) string { return architecture.Layered(l, end) }
		h := c.norm(name("attn_norm.weight"), x)
		q, k := c.times(name("attn_q.weight"), h), c.times(name("attn_k.weight"), h)
		v := c.times(name("attn_v.weight"), h)
		if p.Bias {
			c.addTo(q, name("attn_q.bias"))
			c.addTo(k, name("attn_k.bias"))
			c.addTo(v, name("attn_v.bias"))
		}
		c.heads(q, name("attn_q_norm.weight"), at)
		c.heads(k, name("attn_k_norm.weight"), at)
		c.keys[l], c.values[l] = append(c.keys[l], k), append(c.values[l], v)
		seen := make([]float64, len(q))
		for head := range p.Heads {
			c.attend(l, at, q[head*p.HeadWidth:][:p.HeadWidth], head/(p.Heads/p.KVHeads)*p.HeadWidth,
				seen[head*p.HeadWidth:][:p.HeadWidth])
		}
		for i, v := range c.times(name("attn_output.weight"), seen) {
			x[i] += v
		}
		h = c.norm(name("ffn_norm.weight"), x)
		gate, up := c.times(name("ffn_gate.weight"), h), c.times(name("ffn_up.weight"), h)
		for i, g := range gate {
			gate[i] = g / (1 + math.Exp(-g)) * up[i]
		}
		for i, v := range c.times(name("ffn_down.weight"), gate) {
			x[i] += v
		}
	}
	state = c.norm(architecture.LastNorm, x)
	if p.Tied {
		return state, c.times(architecture.Embedding, state)
	}
	return state, c.times(architecture.Head, state)
}

// attend adds up values of a head, from a column on.
func (c *plain) attend(layer, at int, q []float64, column int, to []float64) {
	first := 0
	if c.p.Window > 0 {
		first = max(0, at-c.p.Window+1)
	}
	scores, most, sum := make([]float64, at+1), math.Inf(-1), 0.0
	for j := first; j <= at; j++ {
		for i, v := range q {
			scores[j] += v * c.keys[layer][j][column+i]
		}
		scores[j] /= math.Sqrt(float64(len(q)))
		most = max(most, scores[j])
	}
	for j := first; j <= at; j++ {
		scores[j] = math.Exp(scores[j] - most)
		sum += scores[j]
	}
	for j := first; j <= at; j++ {
		for i := range to {
			to[i] += scores[j] / sum * c.values[layer][j][column+i]
		}
	}
}
