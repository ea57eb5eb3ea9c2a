package quality

// existence is the weight of finding a window at all in the recall of ranges; the rest is the share
// of its rows. Tatbul et al. leave the choice; studies use 0.2.
const existence = 0.2

// Range is precision and recall of ranges (Tatbul et al., NeurIPS 2018), with flat bias and the
// reciprocal of the number of overlapping ranges as the cardinality factor.
type Range struct{ Precision, Recall float64 }

// F1 is the harmonic mean.
func (r Range) F1() float64 {
	if r.Precision+r.Recall == 0 {
		return 0
	}
	return 2 * r.Precision * r.Recall / (r.Precision + r.Recall)
}

// Ranges compares predicted ranges with windows; both are in order and apart from each other. No
// predicted range has precision 0, and no window recall 0.
func Ranges(predicted, windows []Window) Range {
	return Range{mean(predicted, windows, 0), mean(windows, predicted, existence)}
}

// mean is the mean reward of ranges by other ranges: weight for an overlap, and the rest for its
// share.
func mean(ranges, others []Window, weight float64) float64 {
	if len(ranges) == 0 {
		return 0
	}
	sum, at := 0.0, 0
	for _, r := range ranges {
		for at < len(others) && others[at].Last < r.First {
			at++
		}
		rows, overlaps := 0, 0
		for k := at; k < len(others) && others[k].First <= r.Last; k++ {
			rows += min(r.Last, others[k].Last) - max(r.First, others[k].First) + 1
			overlaps++
		}
		if overlaps > 0 {
			share := float64(rows) / float64(r.Last-r.First+1)
			sum += weight + (1-weight)*share/float64(overlaps)
		}
	}
	return sum / float64(len(ranges))
}
