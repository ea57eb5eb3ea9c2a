package gpujobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/training"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// Limits of a batch of evaluation.
const (
	evaluated        = 4096    // sequences
	evaluatedMoments = 1 << 24 // of all sequences together, with what is behind the end of the short ones
)

// trainData are the arrays of a job of kind train. Nothing changes them.
type trainData struct {
	all     *training.Sequences
	batcher *training.Batcher
	// The sequences of training, the sequences of validation, and the sequences that are held out.
	train, validation, heldOut []int
	digest                     string // of the settings and the arrays
}

// readData checks the arrays of a job, and divides the sequences. The trainer checks their
// elements.
func (r *trainRun) readData() (_ *trainData, err error) {
	s := r.spec
	all := &training.Sequences{
		Lengths: gpujob.Decode[int32](r.lengths.data), Targets: gpujob.Decode[int32](r.targets.data),
	}
	// A length or a row beyond an int32 is negative, which is refused.
	if s.Rows == 0 {
		all.Inputs = gpujob.Decode[float32](r.inputs.data)
	} else {
		all.Numbers = gpujob.Decode[int32](r.inputs.data)
	}
	if s.Items > 0 {
		all.Items = gpujob.Decode[int32](r.asked.data)
	}
	for i, n := range all.Lengths {
		if n < 1 {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.lengths[%d]: %d moments: use 1 to %d", i, uint32(n),
				math.MaxInt32)
		}
	}
	d := &trainData{all: all}
	if d.batcher, err = training.NewBatcher(r.options().Shape, all); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec.lengths: %v: use as many moments together as spec.targets has",
			err)
	}
	trained := len(all.Lengths) - s.HeldOut
	for i := trained; i < len(all.Lengths); i++ {
		d.heldOut = append(d.heldOut, i)
	}
	d.divide(trained, s)
	h := sha256.New()
	h.Write(s.Settings())
	for _, in := range []*input{r.lengths, r.inputs, r.targets, r.asked} {
		if in != nil {
			h.Write(in.data) // the settings have the shapes
		}
	}
	d.digest = hex.EncodeToString(h.Sum(nil))
	return d, d.check()
}

// divide chooses the sequences of validation among the first n by the seed: one at least, and not
// all.
func (d *trainData) divide(n int, s *gpujob.TrainSpec) {
	chosen := min(max(int(math.Round(s.Validate*float64(n))), 1), n-1)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(draw(s.Seed, a), draw(s.Seed, b)), a-b)
	})
	d.validation, d.train = order[:chosen], order[chosen:]
	slices.Sort(d.validation)
	slices.Sort(d.train)
}

// draw returns a random number of sequence i: a step of splitmix64.
func draw(seed uint64, i int) uint64 {
	z := seed + uint64(i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// check returns an error unless training and validation have a target, without which they say
// nothing.
func (d *trainData) check() error {
	asks := make([]bool, len(d.all.Lengths))
	at := 0
	for i, n := range d.all.Lengths {
		asks[i] = slices.ContainsFunc(d.all.Targets[at:][:n], func(t int32) bool { return t >= 0 })
		at += int(n)
	}
	for _, part := range []struct {
		what string
		of   []int
	}{{"training", d.train}, {"validation", d.validation}} {
		if !slices.ContainsFunc(part.of, func(i int) bool { return asks[i] }) {
			return jobs.Errorf(jobs.CodeInput, "spec.targets: no target of the %d sequences of %s is known: give more "+
				"sequences, or their targets", len(part.of), part.what)
		}
	}
	return nil
}

// evaluate measures a trainer on whole sequences. predictions get the probabilities of each moment,
// sequence after sequence, and keep what they have where a moment asks nothing; nil: nobody asks.
func (r *trainRun) evaluate(ctx context.Context, of *training.Trainer, sequences []int, predictions []float32) (
	sum training.Loss, err error,
) {
	width := r.spec.Predictions()
	place := make(map[int]int, len(sequences)) // where the predictions of a sequence begin
	at := 0
	for _, i := range sequences {
		place[i] = at
		at += width * int(r.data.all.Lengths[i])
	}
	for _, windows := range r.data.all.Whole(sequences, evaluated, evaluatedMoments) {
		if cause := context.Cause(r.ctx); cause != nil {
			return sum, cause
		}
		b := r.data.batcher.Batch(windows)
		var found []float32
		if predictions != nil {
			found = slices.Repeat([]float32{float32(math.NaN())}, b.Sequences*b.Moments*width)
		}
		loss, err := of.Evaluate(ctx, b, nil, found)
		if err != nil {
			return sum, err
		}
		sum.Sum, sum.Count = sum.Sum+loss.Sum, sum.Count+loss.Count
		for k, w := range windows {
			if predictions == nil {
				break
			}
			for t := range w.Moments {
				copy(predictions[place[w.Sequence]+t*width:][:width], found[(t*b.Sequences+k)*width:])
			}
		}
	}
	return sum, nil
}

// tensors returns weights as the tensors of a model.
func (r *trainRun) tensors(w training.Weights) []safetensors.Values {
	hidden, width := int64(r.spec.Hidden), int64(r.spec.Width)
	readout := int64(max(r.spec.Items, r.spec.Candidates))
	all := []safetensors.Values{
		{Name: "weight_ih", Shape: []int64{3 * hidden, width}, Of: w.InputHidden},
		{Name: "weight_hh", Shape: []int64{3 * hidden, hidden}, Of: w.HiddenHidden},
		{Name: "bias_ih", Shape: []int64{3 * hidden}, Of: w.InputBias},
		{Name: "bias_hh", Shape: []int64{3 * hidden}, Of: w.HiddenBias},
		{Name: "readout.weight", Shape: []int64{readout, hidden}, Of: w.Readout},
		{Name: "readout.bias", Shape: []int64{readout}, Of: w.ReadoutBias},
	}
	if r.spec.Rows > 0 {
		all = append(all, safetensors.Values{
			Name: "embed.weight", Shape: []int64{int64(r.spec.Rows), width}, Of: w.Embed,
		})
	}
	return all
}
