package gpujobs

import (
	"context"
	"math/big"
	"slices"
	"strconv"

	"github.com/exoswarm/exoswarm/cuda/arrays"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// reduceAll returns the outputs of jobs of kind reduce over the arrays of a set. Either all jobs
// want sums of floats, or none does.
func reduceAll(ctx context.Context, set *arrays.Set, works []*arrayWork) ([]any, error) {
	outs := make([]any, len(works))
	if works[0].group().sums {
		sums, err := set.Sums(ctx)
		if err != nil {
			return nil, err
		}
		for i, w := range works {
			s := w.spec.(*gpujob.ReduceSpec)
			if s.Op == gpujob.OpMean {
				n, _ := s.In.Shape.Count()
				sums[i] /= float64(n)
			}
			outs[i] = reduced(strconv.FormatFloat(sums[i], 'g', -1, 64))
		}
		return outs, nil
	}
	stats, err := set.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i, w := range works {
		outs[i] = reduced(statText(w.spec.(*gpujob.ReduceSpec), &stats[i]))
	}
	return outs, nil
}

func statText(s *gpujob.ReduceSpec, stats *arrays.Stats) string {
	switch {
	case stats.NaN > 0:
		return "NaN"
	case s.Op == gpujob.OpMin:
		return stats.Least.String()
	case s.Op == gpujob.OpMax:
		return stats.Most.String()
	case s.Op == gpujob.OpMean:
		n, _ := s.In.Shape.Count()
		v, _ := new(big.Rat).SetFrac(stats.Sum, big.NewInt(n)).Float64()
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return stats.Sum.String()
}

// reduced returns the output for a number. JSON has no number for NaN and the infinities.
func reduced(text string) *gpujob.ReduceOutput {
	out := &gpujob.ReduceOutput{Text: text, Value: []byte(text)}
	if slices.Contains([]string{"NaN", "+Inf", "-Inf"}, text) {
		out.Value = []byte("null")
	}
	return out
}

func countAll(ctx context.Context, set *arrays.Set, works []*arrayWork) ([]any, error) {
	bins := make([]arrays.Bins, len(works))
	for i, w := range works {
		s := w.spec.(*gpujob.HistogramSpec)
		bins[i] = arrays.Bins{Min: s.Min, Max: s.Max, Count: s.Bins}
	}
	all, err := set.Histograms(ctx, bins)
	if err != nil {
		return nil, err
	}
	outs := make([]any, len(works))
	for i, h := range all {
		outs[i] = &gpujob.HistogramOutput{Counts: gpujob.From(h.Counts), Below: h.Below, Above: h.Above, NaN: h.NaN}
	}
	return outs, nil
}

// sortAll returns the outputs of jobs of kind sort over the arrays of a set. Either all jobs want
// indices, or none does.
func sortAll(ctx context.Context, set *arrays.Set, works []*arrayWork) ([]any, error) {
	descending := make([]bool, len(works))
	for i, w := range works {
		descending[i] = w.spec.(*gpujob.SortSpec).Descending
	}
	all, err := set.Sort(ctx, descending, works[0].group().indices)
	if err != nil {
		return nil, err
	}
	outs := make([]any, len(works))
	for i, sorted := range all {
		s := works[i].spec.(*gpujob.SortSpec)
		out := &gpujob.SortOutput{Sorted: gpujob.Array{Type: s.In.Type, Shape: s.In.Shape, Data: sorted.Data}}
		if s.Indices {
			indices := gpujob.From(sorted.Order)
			out.Indices = &indices
		}
		outs[i] = out
	}
	return outs, nil
}
