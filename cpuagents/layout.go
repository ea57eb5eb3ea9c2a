package cpuagents

import "strings"

// layout says what the decisions of a job are made of, for whoever writes them.
type layout struct {
	series     []SeriesSource
	candidates []string
	features   []string
	drops      bool // outputs with columns have one for what was dropped
}

// layout returns that of a stream job with these series.
func (s *StreamSpec) layout(series []SeriesSource) layout {
	return layout{series: series, candidates: s.Candidates, features: s.Columns.Features, drops: s.Drops}
}

// reservedColumns are the columns of an output beside features and counts.
var reservedColumns = []string{"job", "series", "row", "timestamp", "score", "decision", "round", "counts", "leader", droppedColumn}

// featureColumns returns the columns of the features. Each has the name of its feature. One that is the name of another column,
// whatever the case of its letters, has "features." before it.
func (l layout) featureColumns() []string {
	names := make([]string, len(l.features))
	for i, name := range l.features {
		if names[i] = name; l.reserved(name) {
			names[i] = "features." + name
		}
	}
	return names
}

// FeatureColumns returns the names that the features of a stream job have in its output.
func (s *StreamSpec) FeatureColumns() []string { return s.layout(nil).featureColumns() }

func (l layout) reserved(name string) bool {
	for _, r := range reservedColumns {
		if strings.EqualFold(name, r) {
			return true
		}
	}
	for _, c := range l.candidates {
		if strings.EqualFold(name, countName(c)) {
			return true
		}
	}
	return false
}
