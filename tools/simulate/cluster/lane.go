package cluster

import (
	"fmt"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/tools/simulate/station"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// lane is a shard: its writer, its logs at a broker, and its server at a GPU agent.
type lane struct {
	m      *model
	broker *host
	agent  *host
	home   *host // of the writer
	gpu    int
	at     int // number of the host of the agent
	writer *writer
	server *server

	reads   *station.Queue // of the log by the agent
	answers *station.Queue // of the log of answers by the writer

	whole    station.Audit // entries from their arrival to their answer
	latency  times.Histogram
	answered int64
	parts    [6]part
}

// part is a stretch of the way of entries: the mean time tells where they wait.
type part struct {
	n  int64
	ns float64
}

// The parts of the way.
const (
	partWriter = iota // arrival until the append begins: wait for the writer, packing
	partAppend        // until it is stored
	partRead          // until the agent has it
	partWait          // until the device begins: decoding, merging, and the wait for the device
	partDevice        // until the device has applied it
	partAnswer        // until the writer has the answer
)

var partNames = [...]string{"writer", "append", "read", "wait", "device", "answer"}

type entry struct {
	number int64
	began  int64
	at     int64 // the start of the present part
	done   bool  // answered
}

func newLane(m *model, k int) *lane {
	l := &lane{
		m: m, broker: m.brokers[k%len(m.brokers)], home: m.writers[k%len(m.writers)], at: k % len(m.agents),
		reads: station.NewQueue(m.clock, 1), answers: station.NewQueue(m.clock, 1),
	}
	l.agent = m.agents[l.at]
	if n := m.config.Agents.GPUs; n > 0 {
		l.gpu = k / len(m.agents) % n
	}
	// The numbers of a writer in a measured run, so that both have the same arrivals.
	l.writer = &writer{lane: l, arrivals: rand.New(rand.NewPCG(uint64(k+1), 7))}
	l.server = newServer(l)
	return l
}

func (l *lane) pass(e *entry, p int) {
	now := l.m.clock.Now()
	if now >= l.m.from {
		l.parts[p].n++
		l.parts[p].ns += float64(now - e.at)
	}
	e.at = now
}

// deliver brings an entry that is stored to a reader: after a time, over the network, and through
// the reader of the log, which takes one entry at a time, for a part of that time through the
// connection of the process, which all its readers share.
func (l *lane) deliver(reader *station.Queue, to *host, process int, over *wire, bytes float64, done func()) {
	m := l.m
	one := 1e9 / max(1e-9, m.stages.fetch.Key("rate", 1, bytes))
	all := min(one, 1e9/max(1e-9, m.stages.fetch.Key("rate", 4, bytes)))
	late := m.stages.deliver.Draw(m.rand.Float64(), bytes) - one + float64(max(0, l.broker.down-m.clock.Now()))
	m.clock.After(int64(late), func() {
		over.pass(l.broker, to, bytes, func() {
			reader.Enter(func(next func()) {
				to.clients.Enter(func(leave func()) {
					m.work(to, process, all, 1, func() {
						leave()
						m.clock.After(int64(one-all), func() {
							next()
							done()
						})
					})
				})
			})
		})
	})
}

func (l *lane) stored(e *entry) {
	m := l.m
	l.pass(e, partAppend)
	there := func() { l.pass(e, partRead); l.server.fetch(e) }
	l.deliver(l.reads, l.agent, agentProcess, &m.local, m.entryBytes, func() { m.cross(m.entryBytes, there) })
}

func (l *lane) finish(e *entry) {
	if e.done {
		l.m.failed = fmt.Errorf("%w: entry %d has two answers", ErrLost, e.number)
		return
	}
	e.done = true
	l.pass(e, partAnswer)
	now := l.m.clock.Now()
	l.whole.Leave(now, e.began)
	if now >= l.m.from && now < l.m.to {
		l.answered++
		l.latency.Add(now - e.began)
	}
	l.writer.answered()
}

func (l *lane) audit() error {
	now := l.m.clock.Now()
	if err := l.whole.Check("entries of a shard", now); err != nil {
		return err
	}
	if inside, open := l.whole.Inside(), l.writer.made-l.writer.done; inside != open {
		return fmt.Errorf("%w: a shard has %d entries, its writer waits for %d", ErrLost, inside, open)
	}
	if err := l.server.audit(); err != nil {
		return err
	}
	if err := l.reads.CheckAll("reader of a log"); err != nil {
		return err
	}
	return l.answers.CheckAll("reader of answers")
}
