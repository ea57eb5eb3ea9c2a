package round

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Weights is the kind of weights that the ballots of a Round have.
type Weights uint32

// The kinds of weights. The sums of a decision are in their unit.
const (
	Unweighted Weights = 0
	Weights8   Weights = kernels.WeightU8  // a byte each, 0..255
	Weights32  Weights = kernels.WeightU32 // 32 bits each
	// Fractions are float32 each, which count as consensus.Fixed makes them: sums are in units of
	// 1/65536. A ballot whose weight is NaN, negative or at least 65536 is for nobody and weighs 0;
	// Decision.BadWeights counts it.
	Fractions Weights = kernels.WeightF32
)

func (w Weights) bytes() int64 { return []int64{0, 1, 4, 4}[w] }

// checkWeights refuses a decision about ballots without the weights that they are to have. No
// ballots need none.
func (r *Round) checkWeights() error {
	if r.opts.Weights != Unweighted && !r.weighed && r.ballot.n > 0 {
		return fmt.Errorf("decide %d ballots before they are weighed: %w", r.ballot.n, device.ErrInvalidArgument)
	}
	return nil
}

// Weigh8 copies the weights of the ballots to the device, one for each, in a Round of Weights8.
// They go with the ballots: after Cast or Point, weights are given anew. Rounds of packed ballots
// take one for each ballot too.
func (r *Round) Weigh8(weights []uint8) error { return weigh(r, Weights8, weights) }

// Weigh is Weigh8 in a Round of Weights32.
func (r *Round) Weigh(weights []uint32) error { return weigh(r, Weights32, weights) }

// WeighFractions is Weigh8 in a Round of Fractions.
func (r *Round) WeighFractions(weights []float32) error { return weigh(r, Fractions, weights) }

func weigh[T uint8 | uint32 | float32](r *Round, kind Weights, weights []T) error {
	if r.opts.Weights != kind || len(weights) != r.ballot.n || r.opts.Capacity < len(weights) {
		return fmt.Errorf("%d weights of kind %d for %d ballots of a round of kind %d: %w", len(weights), kind,
			max(r.ballot.n, 0), r.opts.Weights, device.ErrInvalidArgument)
	}
	if err := r.upload(&r.weights, kind.bytes(), device.Bytes(weights)); err != nil {
		return err
	}
	return r.PointWeights(r.weights, 0)
}

// PointWeights takes the weights from device memory: one of the Round's kind for each ballot from
// the byte at off on, a multiple of 16. b must stay open, and the stream that writes it must be
// synced before the decision. A Round without weights, or ballots that were not given yet, is
// device.ErrInvalidArgument.
func (r *Round) PointWeights(b device.Buffer, off int64) error {
	if r.opts.Weights == Unweighted {
		return fmt.Errorf("point at weights in a round without weights: %w", device.ErrInvalidArgument)
	}
	weights, err := pointAt("point at weights", b, off, r.ballot.n, r.opts.Weights.bytes())
	if err != nil {
		return err
	}
	r.args.Weights, r.weighed = weights, true
	return nil
}
