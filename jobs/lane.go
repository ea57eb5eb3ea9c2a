package jobs

// Lane is the priority of a job in its pool.
type Lane string

// The lanes, the most urgent first. A worker serves them in this order, except that every eighth
// turn begins at a lower one, so that no lane starves.
const (
	High   Lane = "high"
	Normal Lane = "normal"
	Low    Lane = "low"
)

// Lanes lists the lanes, the most urgent first.
func Lanes() []Lane { return []Lane{High, Normal, Low} }

func (l Lane) valid() bool { return l == High || l == Normal || l == Low }

// DefaultTenant is the tenant of a job that names none.
const DefaultTenant = "default"
