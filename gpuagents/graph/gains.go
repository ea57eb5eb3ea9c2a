package graph

import "github.com/exoswarm/exoswarm/gpuagents/team"

// spikesAtFirst is of how many neurons one is taken to spike in a tick before the first one. It
// decides which devices make it, and changes no bit.
const spikesAtFirst = 200

// speed is what a device makes of a network of neurons in a second: neurons that are stepped, and
// links that carry a spike without and with delays. Numbers are rounded against sharing.
type speed struct{ neurons, links, delayed float64 }

// Speeds are those of an H200 and of the host device on two cores (RFC 0053, RFC 0059).
var (
	speedOnGPU  = speed{1e11, 6e10, 2e10}
	speedOnHost = speed{1e8, 1e8, 5e7}
)

// load is a tick of a network of neurons.
type load struct {
	neurons, links float64 // links that carry a spike
	delayed        bool
	bytes          float64 // of the state of all neurons, and of their sums to come
}

// gains implements sharer.
func (r *regions) gains(count int) bool {
	s, at := r.s, speedOnGPU
	if s.dev.Properties().ComputeMajor == 0 {
		at = speedOnHost
	}
	n := float64(s.Len())
	l := load{
		neurons: n, links: float64(s.spikes) / n * float64(s.o.Links.count(s.Len())), delayed: s.delayed != nil,
		bytes: float64(s.pages()) * float64(s.layout.PageBytes),
	}
	if l.delayed {
		l.bytes += 4 * n * float64(s.slots)
	}
	return l.gains(team.LinkOf(r.seats), at, len(r.seats), count)
}

// gains reports whether so many devices make ticks faster than one.
func (l load) gains(link team.Link, at speed, devices, count int) bool {
	links := at.links
	if l.delayed {
		links = at.delayed
	}
	took := func(parts int) float64 {
		return max((l.neurons/at.neurons+l.links/links)/float64(parts), launchTime.Seconds())
	}
	others := float64(devices-1) / float64(devices) // the share that one device does not have
	exchange := link.Meet.Seconds() + launchTime.Seconds() + l.neurons/8*others/link.Bytes
	return float64(count)*(took(devices)+exchange)+link.Begin(2*l.bytes*others) < float64(count)*took(1)
}
