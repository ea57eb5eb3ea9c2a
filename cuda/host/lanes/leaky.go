package lanes

import (
	"math"
	"unsafe"
)

// Leaky are the parameters of leaky integrators. Several goroutines may use it.
type Leaky struct{ decay, threshold, rate, one vector }

// NewLeaky returns integrators with these parameters.
func NewLeaky(decay, threshold, rate float32) *Leaky {
	all := func(v float32) (to vector) {
		for k := range to {
			to[k] = math.Float32bits(v)
		}
		return to
	}
	return &Leaky{all(decay), all(threshold), all(rate), all(1)}
}

// leakyCall has the arguments of stepLeaky.
type leakyCall struct {
	leaky     unsafe.Pointer // 0
	input     unsafe.Pointer // 8
	potential unsafe.Pointer // 16
	trace     unsafe.Pointer // 24
	steps     int            // 32
	eights    int            // 40
	spikes    unsafe.Pointer // 48, a byte for each eight agents
}

// Step steps agents a number of times, 1 or more: input has the current and the gain of each,
// potential and trace one number of each. It sets spikes to 1 for those whose last step was a
// spike, else to 0, and returns how many of them it has stepped: a multiple of 8, 0 where the
// processor has not the instructions.
func (l *Leaky) Step(input, potential, trace []float32, steps int, spikes []byte) int {
	n := len(spikes) &^ 7
	if n == 0 || !Available() {
		return 0
	}
	_, _, _ = input[2*n-1], potential[n-1], trace[n-1]
	const most = 128 // of eight agents in a call
	var masks [most]byte
	for from := 0; from < n; from += 8 * most {
		eights := min(n-from, 8*most) / 8
		stepLeaky(&leakyCall{
			leaky: unsafe.Pointer(l), input: unsafe.Pointer(&input[2*from]),
			potential: unsafe.Pointer(&potential[from]), trace: unsafe.Pointer(&trace[from]), steps: steps,
			eights: eights, spikes: unsafe.Pointer(&masks),
		})
		for i, mask := range masks[:eights] {
			to := spikes[from+8*i:][:8]
			for k := range to {
				to[k] = mask >> k & 1
			}
		}
	}
	return n
}
