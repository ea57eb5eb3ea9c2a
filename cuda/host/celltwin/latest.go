package celltwin

import "github.com/exoswarm/exoswarm/cuda/kernels"

// latest is the time of the latest observation that a group has applied, while its run is stepped,
// as in latest.cuh.
type latest struct {
	drop kernels.Drop
	word *uint64 // in the page; nil: nothing is dropped
	time int64
}

// latest returns the latest time of the run's group. variable is the number of kernels.VarLatest,
// and drop the word of the parameter block that says which observations are dropped.
func (o *observation) latest(variable, drop int) latest {
	l := latest{drop: kernels.Drop(o.words[drop])}
	if l.drop != 0 {
		l.word = &o.u64[o.group64(variable)]
		l.time = int64(*l.word)
	}
	return l
}

// take reports whether observation n is dropped, and writes its outputs if so: why it is dropped,
// as the decision, and the round as it was. A later time becomes the latest. seen is the number of
// observations that were applied before.
func (l *latest) take(o *observation, n uint32, seen uint64) (dropped bool) {
	if l.drop == 0 {
		return false
	}
	decision := uint32(0)
	switch t := o.times[n]; {
	case seen == 0 || t > l.time:
		l.time = t
		*l.word = uint64(t)
	case t < l.time && l.drop&kernels.DropLate != 0:
		decision = kernels.DroppedLate
	case t == l.time && l.drop&kernels.DropDuplicate != 0:
		decision = kernels.DroppedDuplicate
	}
	if decision == 0 {
		return false
	}
	o.out.scores[n], o.out.decisions[n], o.out.leaders[n], o.out.rounds[n] = 0, decision, 0, seen
	clear(o.out.counts[int(n)*kernels.VoteCandidates:][:kernels.VoteCandidates])
	return true
}
