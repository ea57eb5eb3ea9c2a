// Package training is a trainer of the addressed gru on a device: truncated back-propagation
// through windows of moments, and Adam. Weights have the same bits on the host and on every GPU,
// for every number of threads, and for every cut of a batch into launches. RFC 0073 has each
// operation; the kernels are in cuda/kernels/trainset.
//
// The forward step is the step of a swarm, bit for bit: predictions of Evaluate are the scores that
// a swarm with these weights answers. The package does no input or output.
package training

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Errors of this package. Errors of the device are wrapped.
var (
	// ErrInvalid: options, weights or a batch are wrong. The trainer is as before.
	ErrInvalid = errors.New("invalid")
	// ErrNotFinite: the gradient or a weight is infinite or NaN. The trainer cannot go on; a
	// checkpoint before that step can.
	ErrNotFinite = errors.New("not finite")
	// ErrCheckpoint: the bytes are no checkpoint of a trainer of these options.
	ErrCheckpoint = errors.New("not a checkpoint of this training")
)

// Weights are the weights of a gru in the layout of PyTorch.
type Weights = cells.GRUWeights

// Shape is the shape of a network.
type Shape struct {
	Hidden int // units: 1 to 32
	Inputs int // of a step: 1 to Hidden rounded up to 8, 16 or 32
	// Rows is the number of rows of the embedding whose elements are the inputs; 0: inputs are
	// features.
	Rows int
	// Items is the number of items that targets ask, each with a probability; 0: a target is one of
	// Candidates, 2 to 16.
	Items, Candidates int
}

// class is the number of units and of inputs that kernels compute with.
func (s Shape) class() int { return kernels.AgentHidden(s.Hidden) }

// readoutRows is the number of rows of the readout.
func (s Shape) readoutRows() int { return s.Items + s.Candidates }

// elements is the number of predictions of a moment.
func (s Shape) elements() int { return max(1, s.Candidates) }

// Limits of a Shape and of Options.
const (
	MaxRows    = 1 << 20
	MaxItems   = 1 << 16
	MaxWindow  = 4096
	MaxDropout = 0.9
)

// Options configure New and Restore.
type Options struct {
	Shape
	Adam Adam
	// Clip is the largest norm of a gradient; 0: any.
	Clip float32
	// Dropout is the share of units that the readout does not see in training: 0 to MaxDropout.
	Dropout float32
	// Window is the most moments of a batch of TrainStep: 1 to MaxWindow.
	Window int
	// Seed draws weights and dropout.
	Seed uint64
	// BatchBytes is the most device memory for moments: batches of more are cut, as are batches with
	// launches of more than about 5 ms; 0: 1 GiB. At least the moments of two sequences are there at a
	// time.
	BatchBytes int64
	// Collective adds the sums of gradients of several devices up, each with a share of the sequences of
	// a batch. New and Restore are called with its first device. nil: there is one device.
	Collective device.Collective
}

// Adam has the arguments of torch.optim.Adam. Each is computed with as the shortest decimal number
// that is this float32: 0.9, not 0.89999998. Fields of 0 have PyTorch's defaults, but for Decay.
type Adam struct {
	Rate         float32 // 0: 0.001
	Beta1, Beta2 float32 // 0: 0.9 and 0.999
	Epsilon      float32 // 0: 1e-8
	Decay        float32 // weight_decay
}

// decimal is the shortest decimal number that is v as a float32.
func decimal(v float32) float64 {
	d, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		return float64(v)
	}
	return d
}

// check returns the options with defaults in place of zeros.
func (o Options) check() (Options, error) {
	for _, d := range []struct {
		of    *float32
		value float32
	}{{&o.Adam.Rate, 1e-3}, {&o.Adam.Beta1, 0.9}, {&o.Adam.Beta2, 0.999}, {&o.Adam.Epsilon, 1e-8}} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 1 << 30
	}
	candidates := [2]int64{2, kernels.AgentMostCandidates}
	if o.Items > 0 {
		candidates = [2]int64{}
	}
	for _, n := range []struct {
		name            string
		value, min, max int64
	}{
		{"hidden", int64(o.Hidden), 1, kernels.AgentMostHidden},
		{"inputs", int64(o.Inputs), 1, int64(o.class())},
		{"rows", int64(o.Rows), 0, MaxRows},
		{"items", int64(o.Items), 0, MaxItems},
		{"candidates", int64(o.Candidates), candidates[0], candidates[1]},
		{"window", int64(o.Window), 1, MaxWindow},
		{"bytes of a batch", o.BatchBytes, 1, math.MaxInt64},
	} {
		if n.value < n.min || n.value > n.max {
			return o, fmt.Errorf("%w: %s %d: use %d to %d", ErrInvalid, n.name, n.value, n.min, n.max)
		}
	}
	for _, n := range []struct {
		name            string
		value, min, max float32
	}{
		{"rate", o.Adam.Rate, math.SmallestNonzeroFloat32, 1},
		{"beta1", o.Adam.Beta1, math.SmallestNonzeroFloat32, 0.9999},
		{"beta2", o.Adam.Beta2, math.SmallestNonzeroFloat32, 0.999999},
		{"epsilon", o.Adam.Epsilon, 1e-20, 1},
		{"decay", o.Adam.Decay, 0, 1},
		{"clip", o.Clip, 0, math.MaxFloat32},
		{"dropout", o.Dropout, 0, MaxDropout},
	} {
		if !(n.value >= n.min && n.value <= n.max) {
			return o, fmt.Errorf("%w: %s %v: use %v to %v", ErrInvalid, n.name, n.value, n.min, n.max)
		}
	}
	return o, nil
}

// Batch has sequences, each with moments from 0 on. Elements of moment t of sequence n are at index
// t*Sequences+n. The trainer keeps no slice of it.
type Batch struct {
	Sequences, Moments int
	// Lengths are the moments of each sequence, at most Moments; nothing behind them counts.
	Lengths []int32
	// Inputs are the features, [Moments][Sequences][Shape.Inputs]; with an embedding Numbers are,
	// rows.
	Inputs  []float32
	Numbers []int32
	// Items are what a moment asks, -1 for nothing; nil without items. Targets are 0 or 1 with items,
	// otherwise a candidate, and -1 where none is known. They are asked of the units behind the
	// moment.
	Items, Targets []int32
}

// span is sequences of a batch, without the one at to.
type span struct{ from, to int }

// shares divides the sequences of a batch over n devices: consecutive ones, of about as many moments
// on each device.
func (b *Batch) shares(n int) []span {
	all, moments := make([]span, n), 0
	for _, length := range b.Lengths {
		moments += int(length)
	}
	at, sequence := 0, 0
	for rank := range all {
		all[rank].from = sequence
		for sequence < b.Sequences && (rank == n-1 || at*n < moments*(rank+1)) {
			at += int(b.Lengths[sequence])
			sequence++
		}
		all[rank].to = sequence
	}
	return all
}

// Loss is the loss of a batch.
type Loss struct {
	Sum       float64 // of cross entropies in nats, of Count targets
	Count     int64
	Saturated int64   // gradients that were cut off because they were too large for 16 bits
	Norm      float32 // of the gradient of the mean loss, before it was clipped
}

// arrays returns an ErrInvalid unless the arrays have the elements of some moments.
func (s Shape) arrays(moments int, inputs []float32, numbers, items, targets []int32) error {
	features, rows, asked := moments*s.Inputs, 0, 0
	if s.Rows > 0 {
		features, rows = 0, moments
	}
	if s.Items > 0 {
		asked = moments
	}
	for _, part := range []struct {
		name       string
		have, want int
	}{
		{"inputs", len(inputs), features},
		{"numbers", len(numbers), rows},
		{"items", len(items), asked},
		{"targets", len(targets), moments},
	} {
		if part.have != part.want {
			return fmt.Errorf("%w: data of %d moments has %d %s, want %d", ErrInvalid, moments, part.have,
				part.name, part.want)
		}
	}
	return nil
}

// check returns an ErrInvalid that names the first wrong element, and the number of targets.
func (s Shape) check(b *Batch, window int) (targets int64, err error) {
	N, T := b.Sequences, b.Moments
	if N < 1 || T < 1 || N > math.MaxInt32 || T > window {
		return 0, fmt.Errorf("%w: a batch of %d sequences and %d moments: use 1 sequence and more, and 1 to %d moments",
			ErrInvalid, N, T, window)
	}
	if len(b.Lengths) != N {
		return 0, fmt.Errorf("%w: a batch of %d sequences has %d lengths, want %d", ErrInvalid, N, len(b.Lengths), N)
	}
	if err := s.arrays(N*T, b.Inputs, b.Numbers, b.Items, b.Targets); err != nil {
		return 0, err
	}
	largest := int32(1) // of targets
	if s.Items == 0 {
		largest = int32(s.Candidates - 1)
	}
	for n, length := range b.Lengths {
		if length < 0 || int(length) > T {
			return 0, fmt.Errorf("%w: sequence %d has %d moments: use 0 to %d", ErrInvalid, n, length, T)
		}
		for t := range int(length) {
			i := t*N + n
			target := b.Targets[i]
			wrong := func(what string, value any, use string) error {
				return fmt.Errorf("%w: %s of moment %d of sequence %d is %v: use %s", ErrInvalid, what, t, n, value,
					use)
			}
			if target >= 0 {
				targets++
			}
			switch {
			case target > largest:
				return 0, wrong("the target", target, fmt.Sprintf("0 to %d, or -1 for none", largest))
			case s.Rows > 0 && (b.Numbers[i] < 0 || int(b.Numbers[i]) >= s.Rows):
				return 0, wrong("the row", b.Numbers[i], fmt.Sprintf("0 to %d", s.Rows-1))
			case s.Items > 0 && int(b.Items[i]) >= s.Items:
				return 0, wrong("the item", b.Items[i], fmt.Sprintf("0 to %d, or -1 for none", s.Items-1))
			case s.Items > 0 && b.Items[i] < 0 && target >= 0:
				return 0, wrong("the item", b.Items[i], "an item, because there is a target")
			}
			if s.Rows == 0 {
				for k, v := range b.Inputs[i*s.Inputs:][:s.Inputs] {
					if !(math.Abs(float64(v)) <= math.MaxFloat32) {
						return 0, wrong(fmt.Sprintf("feature %d", k), v, "finite numbers")
					}
				}
			}
		}
	}
	return targets, nil
}
