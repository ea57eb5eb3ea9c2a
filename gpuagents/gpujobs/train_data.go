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

// evaluated is how many sequences are evaluated at a time.
const evaluated = 4096

// span is a part of a sequence in the arrays: its moments from first on.
type span struct{ first, moments int }

// trainData are the arrays of a job of kind train. Nothing changes them.
type trainData struct {
	spec           *gpujob.TrainSpec
	features       []float32 // nil with an embedding
	numbers        []int32   // nil without one
	asked, targets []int32   // asked is nil without items
	// The sequences that are trained with, those of validation, and those that are held out.
	train, validation, heldOut []span
	digest                     string // of the settings and the arrays
}

// readData checks the arrays of a job, and divides the sequences. The trainer checks their elements.
func (r *trainRun) readData() (*trainData, error) {
	s := r.spec
	d := &trainData{spec: s, targets: gpujob.Decode[int32](r.targets.data)}
	if s.Rows == 0 {
		d.features = gpujob.Decode[float32](r.inputs.data)
	} else {
		d.numbers = gpujob.Decode[int32](r.inputs.data) // more than the rows are negative, or refused
	}
	if s.Items > 0 {
		d.asked = gpujob.Decode[int32](r.asked.data)
	}
	var all []span
	first := 0
	for i, n := range gpujob.Decode[uint32](r.lengths.data) {
		if n < 1 || int64(n) > int64(len(d.targets)-first) {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.lengths[%d]: %d moments, of %d that are left: use 1 and "+
				"more, and as many together as spec.targets has", i, n, len(d.targets)-first)
		}
		all = append(all, span{first, int(n)})
		first += int(n)
	}
	if first != len(d.targets) {
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec.lengths: %d moments together, and %d targets: use as many", first,
			len(d.targets))
	}
	d.heldOut = all[len(all)-s.HeldOut:]
	d.divide(all[:len(all)-s.HeldOut])
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

// divide chooses the sequences of validation by the seed: one at least, and not all.
func (d *trainData) divide(all []span) {
	n := min(max(int(math.Round(d.spec.Validate*float64(len(all)))), 1), len(all)-1)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(draw(d.spec.Seed, a), draw(d.spec.Seed, b)), a-b)
	})
	chosen := make([]bool, len(all))
	for _, i := range order[:n] {
		chosen[i] = true
	}
	for i, s := range all {
		if chosen[i] {
			d.validation = append(d.validation, s)
		} else {
			d.train = append(d.train, s)
		}
	}
}

// draw returns a random number of sequence i: a step of splitmix64.
func draw(seed uint64, i int) uint64 {
	z := seed + uint64(i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// check returns an error unless training and validation have a target, without which they say nothing.
func (d *trainData) check() error {
	for what, part := range map[string][]span{"training": d.train, "validation": d.validation} {
		if !slices.ContainsFunc(part, func(s span) bool {
			return slices.ContainsFunc(d.targets[s.first:][:s.moments], func(t int32) bool { return t >= 0 })
		}) {
			return jobs.Errorf(jobs.CodeInput, "spec.targets: no target of the %d sequences of %s is known: give more "+
				"sequences, or their targets", len(part), what)
		}
	}
	return nil
}

// moments returns the moments of sequences together.
func (d *trainData) moments(all []span) (n int) {
	for _, s := range all {
		n += s.moments
	}
	return n
}

// batch returns spans side by side, moment by moment. What is behind the end of a span asks nothing.
func (d *trainData) batch(spans []span) training.Batch {
	b := training.Batch{Sequences: len(spans)}
	for _, s := range spans {
		b.Moments = max(b.Moments, s.moments)
		b.Lengths = append(b.Lengths, int32(s.moments))
	}
	n := b.Sequences * b.Moments
	width := d.spec.Width
	b.Targets = slices.Repeat([]int32{-1}, n)
	if d.asked != nil {
		b.Items = slices.Repeat([]int32{-1}, n)
	}
	if d.numbers != nil {
		b.Numbers = make([]int32, n)
	} else {
		b.Inputs = make([]float32, n*width)
	}
	for k, s := range spans {
		for t := range s.moments {
			from, to := s.first+t, t*b.Sequences+k
			b.Targets[to] = d.targets[from]
			if d.asked != nil {
				b.Items[to] = d.asked[from]
			}
			if d.numbers != nil {
				b.Numbers[to] = d.numbers[from]
			} else {
				copy(b.Inputs[to*width:][:width], d.features[from*width:])
			}
		}
	}
	return b
}

// evaluate measures a trainer on whole sequences. Predictions get the probabilities of each moment,
// sequence after sequence; nil: nobody asks for them. The longest sequences come first, so that those
// that have ended are behind the others.
func (r *trainRun) evaluate(
	ctx context.Context, of *training.Trainer, all []span, predictions []float32,
) (sum training.Loss, err error) {
	order, place := make([]int, len(all)), make([]int, len(all)) // place is where predictions of a sequence begin
	for i := range all {
		order[i] = i
		if i > 0 {
			place[i] = place[i-1] + all[i-1].moments
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[b].moments - all[a].moments })
	for some := range slices.Chunk(order, evaluated) {
		states := make([]float32, len(some)*r.spec.Hidden)
		for from := 0; from < all[some[0]].moments; from += r.spec.Window {
			if cause := context.Cause(r.ctx); cause != nil {
				return sum, cause
			}
			var spans []span
			for _, i := range some {
				if left := all[i].moments - from; left > 0 {
					spans = append(spans, span{all[i].first + from, min(left, r.spec.Window)})
				}
			}
			b := r.data.batch(spans)
			width := r.spec.Predictions()
			var found []float32
			if predictions != nil {
				found = make([]float32, b.Sequences*b.Moments*width)
			}
			loss, err := of.Evaluate(ctx, b, states[:len(spans)*r.spec.Hidden], found)
			if err != nil {
				return sum, err
			}
			sum.Sum, sum.Count = sum.Sum+loss.Sum, sum.Count+loss.Count
			for k, s := range spans {
				for t := range s.moments {
					if predictions != nil {
						copy(predictions[(place[some[k]]+from+t)*width:][:width], found[(t*b.Sequences+k)*width:])
					}
				}
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
