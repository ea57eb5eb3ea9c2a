package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// Report is what a simulation has measured.
type Report struct {
	Entries float64 // a second that were answered
	Rows    float64 // a second
	Bits    float64 // a second of entries
	Latency times.Histogram
	Longest time.Duration // the longest latency
	Backlog int64         // entries without an answer at the end
	Parts   []Part        // the way of an entry
	Use     []Use         // the busiest first
	Events  int64
	Cost    float64 // for an hour
}

// Part is a stretch of the way of entries with its mean time.
type Part struct {
	Name string
	Mean time.Duration
}

// Use is the share of the time in which something works: the busiest one of its kind.
type Use struct {
	Name  string
	Share float64
}

func (m *model) report(events int64) *Report {
	r := &Report{Events: events}
	var parts [len(partNames)]part
	answered := int64(0)
	for _, l := range m.lanes {
		answered += l.answered
		r.Latency.Merge(&l.latency)
		r.Backlog += l.whole.Inside()
		for p := range parts {
			parts[p].n += l.parts[p].n
			parts[p].ns += l.parts[p].ns
		}
	}
	r.Longest = time.Duration(r.Latency.Quantile(1))
	r.Entries = float64(answered) / time.Duration(m.config.Length).Seconds()
	r.Rows = r.Entries * float64(m.config.Load.Rows) * m.config.Load.Aggregate
	r.Bits = r.Entries * m.entryBytes * 8
	for p, name := range partNames {
		r.Parts = append(r.Parts, Part{name, time.Duration(parts[p].ns / float64(max(1, parts[p].n)))})
	}
	m.uses(r)
	r.Cost = m.cost()
	return r
}

func (m *model) uses(r *Report) {
	now := m.clock.Now()
	add := func(name string, share float64) {
		at := slices.IndexFunc(r.Use, func(u Use) bool { return u.Name == name })
		if at < 0 {
			r.Use = append(r.Use, Use{name, share})
			return
		}
		r.Use[at].Share = max(r.Use[at].Share, share)
	}
	hosts := func(kind string, all []*host) {
		for _, h := range all {
			add("cores of "+kind, h.cores.Use())
			add("connection of "+kind, h.clients.Use())
			if h.in != nil {
				add("card into "+kind, h.in.Use())
				add("card out of "+kind, h.out.Use())
			}
		}
	}
	switch m.config.Place {
	case placeOne:
		hosts("host", m.brokers)
	case placePair:
		hosts("writers", m.writers)
		hosts("brokers and agents", m.brokers)
	default:
		hosts("writers", m.writers)
		hosts("brokers", m.brokers)
		hosts("agents", m.agents)
	}
	if m.gateway != nil {
		add("gateway", m.gateway.Use())
	}
	for i := range m.gpus {
		for g := range m.gpus[i] {
			add("GPU", m.gpus[i][g].Use())
			add("bus of GPU", m.buses[i][g].Use())
		}
	}
	for _, l := range m.lanes {
		add("writer of a shard", l.writer.used.share(now))
		add("reader of a log", l.reads.Use())
		add("decoder of a shard", l.server.read.share(now))
		add("merger of a shard", l.server.merged.share(now))
		add("device loop of a shard", l.server.device.share(now))
		add("answers of a shard", l.server.append.share(now))
	}
	slices.SortStableFunc(r.Use, func(a, b Use) int { return cmp.Compare(b.Share, a.Share) })
}

func (m *model) cost() float64 {
	c := m.config
	of := func(h Hosts) float64 {
		return float64(h.Count) * (float64(h.Cores)*c.Prices.Core + float64(h.Card)/1e9*c.Prices.Gbps)
	}
	sum := of(c.Brokers.hosts()) + float64(c.Agents.Count*c.Agents.GPUs)*c.Prices.GPU
	if c.Place != placeOne {
		sum += of(c.Writers)
	}
	if c.Place == placeApart {
		sum += of(c.Agents.hosts())
	}
	seconds := time.Duration(m.to).Seconds()
	return sum + m.written/1e12/seconds*3600*c.Prices.Written
}
