package encode

import "strings"

// Layout describes the columns of the decisions of a job. The encoders share its slices and do not
// change them. They must not change while an encoder uses them.
type Layout struct {
	Series     []string // names; a decision refers to one by its index
	Candidates []string // a decision refers to one by its index
	Features   []string
	Drops      bool // formats with columns have one for the reason of a dropped observation
}

// reservedColumns are the columns of an output other than features and counts. A feature with one
// of these names gets a prefix.
var reservedColumns = []string{
	"job", "series", "row", "timestamp", "score", "decision", "round", "counts", "leader", DroppedColumn,
}

// FeatureColumns returns the names of the columns of the features. A column has the name of its
// feature, unless another column has that name in upper or lower case: then "features." precedes
// it.
func (l Layout) FeatureColumns() []string {
	names := make([]string, len(l.Features))
	for i, name := range l.Features {
		if names[i] = name; l.reserved(name) {
			names[i] = "features." + name
		}
	}
	return names
}

// reserved reports whether a column other than those of features has a name, whatever the case of
// its letters.
func (l Layout) reserved(name string) bool {
	for _, r := range reservedColumns {
		if strings.EqualFold(name, r) {
			return true
		}
	}
	for _, c := range l.Candidates {
		if strings.EqualFold(name, CountColumn(c)) {
			return true
		}
	}
	return false
}
