package cluster

import (
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/tools/simulate/station"
)

// The processes of a host, which bound how many threads each has.
const (
	writerProcess = iota
	brokerProcess
	agentProcess
)

// host is a machine: its cores, and the cards or lines of its networks, in and out.
type host struct {
	cores   *station.Sharing
	in, out *station.Sharing // nil: there is no network
	busy    int              // appends in progress, of a broker
	batches int              // in progress on the host device, of an agent
	down    int64            // nothing happens before this time
	clients *station.Queue   // of the connection over which a process receives entries
}

func newHost(c *station.Clock, of Hosts, slower []float64) *host {
	h := &host{
		cores:   station.NewSharing(c, &station.Cores{Count: of.Cores, Slower: slower}),
		clients: station.NewQueue(c, 1),
	}
	if of.Card > 0 {
		h.in = station.NewSharing(c, station.Link{Bandwidth: float64(of.Card) / 8e9})
		h.out = station.NewSharing(c, station.Link{Bandwidth: float64(of.Card) / 8e9})
	}
	return h
}

// segment is the payload of a packet.
const segment = 1448

// cap returns the bytes for each nanosecond that one flow can have: what the network allows, a
// window for each round trip, and the rate at which TCP with lost packets settles (Mathis and
// others, 1997), which is sqrt(3/2) segments for each round trip over the root of the share of
// losses.
func (n Network) cap() float64 {
	most := math.Inf(1)
	if n.FlowRate > 0 {
		most = float64(n.FlowRate) / 8e9
	}
	if n.RTT > 0 {
		most = min(most, float64(n.Window)/float64(n.RTT))
		if n.Loss > 0 {
			most = min(most, segment*math.Sqrt(1.5/n.Loss)/float64(n.RTT))
		}
	}
	return most
}

// wire passes bytes over a network: a time of propagation, then the bytes at the rate of the card
// and the flows. A transfer that loses a packet at its end waits one more round trip.
type wire struct {
	clock *station.Clock
	of    Network
	rand  *rand.Rand
}

// pass calls done when the bytes of a host are at another one. Both cards work at the same time.
func (w *wire) pass(from, to *host, bytes float64, done func()) {
	if from == to || from.out == nil || to.in == nil {
		done()
		return
	}
	job := station.Job{Limit: min(1e9, w.of.cap()*float64(w.of.Flows))}
	arrived := join(2, func() { w.travel(bytes, done) })
	from.out.Do(bytes, job, arrived)
	to.in.Do(bytes, job, arrived)
}

func (w *wire) travel(bytes float64, done func()) {
	late := int64(w.of.RTT) / 2
	if w.of.Loss > 0 && w.rand.Float64() < w.of.Loss*min(3, math.Ceil(bytes/segment)) {
		late += int64(w.of.RTT)
	}
	w.clock.After(late, done)
}

// join returns a function that calls done when it was called n times.
func join(n int, done func()) func() {
	return func() {
		if n--; n == 0 {
			done()
		}
	}
}
