// Package traintwin has the Go twins of the kernels that train (cuda/kernels/trainset). RFC 0073
// says what each rounds and in which order it adds.
package traintwin

import (
	"math"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// parts returns the high and the low byte of a number, which is 256 high + low.
func parts(number int32) (high, low int64) {
	h := (number + 128) >> 8
	return int64(h), int64(number - 256*h)
}

// round returns the number of v, which is less than 2^15 - 128 of either sign: the last bits of a
// float32 of 1.5 * 2^23 and more are an integer.
func round(v, scale float32) int32 {
	return int32(int16(math.Float32bits(fmath.FMA(v, scale, 3<<22))))
}

// power returns 2^e; e is the exponent of a normal float32.
func power(e int) float32 { return math.Float32frombits(uint32(e+127) << 23) }

// two are values of two agents in one word: sums of products of both take one multiplication. The
// value of the second agent is above bit 32; sums of either agent are less than 2^31 of either
// sign.
type two = int64

func join(first, second int64) two { return first + second<<32 }

func split(v two) [2]int32 {
	first := int32(v)
	return [2]int32{first, int32((v - int64(first)) >> 32)}
}

// bytes are numbers of two agents, by byte.
type bytes struct{ high, low []two }

func newBytes(n int) bytes { return bytes{make([]two, n), make([]two, n)} }

// set sets numbers from at on, of agent 0 or 1. Agent 0 is set first.
func (b *bytes) set(agent, at int, numbers []int16) {
	for k, v := range numbers {
		b.put(agent, at+k, int32(v))
	}
}

func (b *bytes) put(agent, at int, number int32) {
	high, low := parts(number)
	if agent == 0 {
		b.high[at], b.low[at] = high, low
		return
	}
	b.high[at] += high << 32
	b.low[at] += low << 32
}

// spare has memory of blocks that have ended. New memory for each block would have the collector run
// several times a second, and stop all goroutines twice each time.
var spare sync.Pool

// words are numbers in memory of spare; release returns them.
type words struct{ of []int64 }

// borrow returns n words of any value.
func borrow(n int) *words {
	w, ok := spare.Get().(*words)
	if !ok {
		w = &words{}
	}
	w.of = slices.Grow(w.of[:0], n)[:n]
	return w
}

func (w *words) release() { spare.Put(w) }

// weights are the numbers of rows of weights, whole and their high bytes.
type weights struct{ number, high []int64 }

// newWeights makes weights in twice as many words.
func newWeights(numbers []int16, words []int64) weights {
	w := weights{words[:len(numbers)], words[len(numbers):]}
	for i, v := range numbers {
		w.number[i] = int64(v)
		w.high[i], _ = parts(int32(v))
	}
	return w
}

func (w *weights) part(from, n int) weights {
	return weights{w.number[from:][:n], w.high[from:][:n]}
}

// dot adds products to sums, without the products of low bytes.
func dot(sum two, a bytes, w weights) two {
	high, low, number, top := a.high, a.low, w.number, w.high
	low, number, top = low[:len(high)], number[:len(high)], top[:len(high)]
	for k, h := range high {
		sum += h*number[k] + low[k]*top[k]
	}
	return sum
}

// net is a table of gates.
type net struct {
	class    int
	logistic fmath.Logistic
	bias     []int32
	gates    weights // [3][P][2P]: of a unit the weights of units, then of inputs
	words    *words  // memory of gates
}

// newNet returns a net, which the caller releases.
func newNet(table []uint32, class int) *net {
	c := &net{class: class}
	for i := range c.logistic {
		c.logistic[i] = math.Float32frombits(table[kernels.AgentTableLogistic+i])
	}
	c.bias = device.Of[int32](device.Bytes(table[kernels.AgentTableBias:][:4*class]))
	numbers := device.Of[int16](
		device.Bytes(table[kernels.AgentTableWeights(class):kernels.AgentTableReadout(class)]),
	)
	c.words = borrow(2 * len(numbers))
	c.gates = newWeights(numbers, c.words.of)
	return c
}

func (c *net) release() { c.words.release() }

// gate are the gates of a unit of an agent; m is the units' part of n before the logistic function.
type gate struct{ r, z, n, m float32 }

// step returns the gates of unit j of two agents. a has their units, then their inputs.
func (c *net) step(j int, a bytes) (of [2]gate) {
	P := c.class
	bias := func(i int) two { return join(int64(c.bias[4*j+i]), int64(c.bias[4*j+i])) }
	row := func(g int) weights { return c.gates.part((g*P+j)*2*P, 2*P) }
	n := row(2)
	sums := [4][2]int32{
		split(dot(bias(0), a, row(0))), split(dot(bias(1), a, row(1))),
		split(dot(bias(2), bytes{a.high[P:], a.low[P:]}, n.part(P, P))),
		split(dot(bias(3), bytes{a.high[:P], a.low[:P]}, n.part(0, P))),
	}
	for i := range of {
		r, z := c.logistic.At(float32(sums[0][i])), c.logistic.At(float32(sums[1][i]))
		m := float32(sums[3][i])
		v := fmath.FMA(2, c.logistic.At(fmath.FMA(r, m, float32(sums[2][i]))), -1)
		of[i] = gate{r, z, v, m}
	}
	return of
}

// inputs are the numbers of inputs by agent and moment.
type inputs struct {
	class    int
	rows     []int16
	numbers  []int32
	embedded bool
}

func (x *inputs) at(i int) []int16 {
	if x.embedded {
		i = int(x.numbers[i])
	}
	return x.rows[i*x.class:][:x.class]
}
