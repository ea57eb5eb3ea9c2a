package graph

import "github.com/exoswarm/exoswarm/gpuagents/field"

// spikesAtFirst is the assumed number of neurons per spike before the first tick. It
// decides which devices make the tick, and changes no bit.
const spikesAtFirst = 200

// speed is the throughput of a device per second: neurons stepped, and links that carry a spike
// without and with delays. Numbers are rounded against sharing.
type speed struct{ neurons, links, delayed float64 }

// Measured on an H200, and on the host device with two cores (RFC 0053, RFC 0059).
var (
	speedOnGPU  = speed{1e11, 6e10, 2e10}
	speedOnHost = speed{1e8, 1e8, 5e7}
)

type load struct {
	neurons, links float64 // links that carry a spike
	delayed        bool
	bytes          float64 // of the state of all neurons, and of their sums to come
}

func (r *regions) gains(count int) bool {
	s, at := r.s, speedOnGPU
	if s.Device().Properties().ComputeMajor == 0 {
		at = speedOnHost
	}
	n := float64(s.Len())
	l := load{
		neurons: n, links: float64(s.spikes) / n * float64(s.o.Links.Count(s.Len())), delayed: s.delayed != nil,
		bytes: float64(s.Pages()) * float64(s.Layout().PageBytes),
	}
	if l.delayed {
		l.bytes += 4 * n * float64(s.slots)
	}
	return l.gains(r.Link(), at, len(r.All), count)
}

// gains reports whether several devices make count ticks faster than one.
func (l load) gains(link field.Link, at speed, devices, count int) bool {
	links := at.links
	if l.delayed {
		links = at.delayed
	}
	took := func(parts int) float64 {
		return max((l.neurons/at.neurons+l.links/links)/float64(parts), launchTime.Seconds())
	}
	others := float64(devices-1) / float64(devices) // the share that one device does not have
	exchange := link.Barrier.Seconds() + launchTime.Seconds() + l.neurons/8*others/link.Bytes
	return float64(count)*(took(devices)+exchange)+link.Fixed(2*l.bytes*others) < float64(count)*took(1)
}
