package rows

import (
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Layout describes the columns of the decisions of a job. The encoders share its slices and do not
// change them. They must not change while an encoder uses them.
type Layout struct {
	Series     []string // names; a decision refers to one by its index
	Candidates []string // a decision refers to one by its index
	Features   []string
	Drops      bool // formats with columns have one for the reason of a dropped observation
	// Keys are the columns that name the entity of a decision, in place of the column of the
	// series; empty for decisions of series. Entities has their values then, and Series is empty.
	Keys     []string
	Entities Entities
	// Explain: decisions have the columns of an explanation. Their batches have Explained.
	Explain bool
	// Learning is the last round in which an entity is learning; see cpuagents.StreamSpec. NDJSON has
	// a member for it, and the other formats the round.
	Learning uint64
}

// Entities are the entities of a job with a key. Their number grows while the job runs, and an
// entity never changes. Its methods may be called concurrently.
type Entities interface {
	// Key returns the key of the entity of a group, as in rows.Row, and whether there is one.
	Key(group int) (key string, ok bool)
}

// Has reports whether a group has a series or an entity.
func (l Layout) Has(group int) bool {
	if len(l.Keys) == 0 {
		return group < len(l.Series)
	}
	_, ok := l.Entities.Key(group)
	return ok
}

// Names returns the values of the first columns: the name of the series of a group, or the values
// of its key. The group has one, see Has.
func (l Layout) Names(group int) []string {
	if len(l.Keys) == 0 {
		return l.Series[group : group+1]
	}
	key, _ := l.Entities.Key(group)
	return KeyValues(key)
}

// NameColumns returns the names of the first columns: series, or the columns of the key. A key
// column has its own name, unless another column has that name in upper or lower case: then "keys."
// precedes it.
func (l Layout) NameColumns() []string {
	if len(l.Keys) == 0 {
		return []string{"series"}
	}
	names := make([]string, len(l.Keys))
	for i, name := range l.Keys {
		if names[i] = name; l.reserved(name) && !strings.EqualFold(name, "series") {
			names[i] = "keys." + name
		}
	}
	return names
}

// reservedColumns are the columns of an output other than features and counts. A feature with one
// of these names gets a prefix.
var reservedColumns = []string{
	"job", "series", "row", "timestamp", "score", "decision", "round", "counts", "leader", "learning",
	DroppedColumn,
}

// The columns of an explanation. Each feature has the columns with numbers: "expected." and its
// name.
const (
	ExpectedColumn  = "expected"
	LowColumn       = "low"
	HighColumn      = "high"
	FaultColumn     = "feature"
	DirectionColumn = "direction"
	KindColumn      = "kind"
	BeforeColumn    = "before"
)

var explainedColumns = []string{
	ExpectedColumn, LowColumn, HighColumn, FaultColumn, DirectionColumn, KindColumn, BeforeColumn,
}

// BandColumns returns the names of the columns with the numbers of an explanation, feature by
// feature: the expected value, and the low and the high end of its band.
func (l Layout) BandColumns() (names []string) {
	for _, f := range l.FeatureColumns() {
		names = append(names, ExpectedColumn+"."+f, LowColumn+"."+f, HighColumn+"."+f)
	}
	return names
}

// Band returns the numbers of an explanation of row i in the order of BandColumns, for one feature.
func Band(d *batch.Decisions, i, f int) [3]float64 {
	why := d.Explained
	at := i*why.Features + f
	return [3]float64{why.Expected[at], why.Low[at], why.High[at]}
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

// reserved reports whether a column that is no feature has a name, whatever the case of its
// letters.
func (l Layout) reserved(name string) bool {
	for _, r := range reservedColumns {
		if strings.EqualFold(name, r) {
			return true
		}
	}
	if l.Explain {
		for _, r := range explainedColumns {
			if strings.EqualFold(name, r) {
				return true
			}
		}
		head, _, dotted := strings.Cut(name, ".")
		if dotted && slices.Contains(explainedColumns[:3], strings.ToLower(head)) {
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
