// Package cluster simulates a cluster: writers append entries to logs of brokers, GPU agents apply
// them and append answers, and the writers read these. A Config describes the cluster; the times of
// the stages are measurements.
package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"

	protocol "github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/tools/simulate/station"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

type model struct {
	config  *Config
	clock   *station.Clock
	stages  *stages
	rand    *rand.Rand
	writers []*host
	brokers []*host
	agents  []*host
	gpus    [][]*station.Queue // by host of agents
	buses   [][]*station.Sharing
	uplink  wire
	local   wire
	way     wire             // of the gateway
	gateway *station.Sharing // nil: there is none
	lanes   []*lane

	entryBytes, answerBytes float64
	from, to                int64 // of the measured time
	written                 float64
	failed                  error
}

// Simulate runs a configuration with the measured times of its stages.
func Simulate(c *Config, files []*times.File) (*Report, error) {
	s, err := newStages(files, c)
	if err != nil {
		return nil, err
	}
	m := &model{
		config: c, clock: &station.Clock{}, stages: s, rand: rand.New(rand.NewPCG(c.Seed, 1)),
		from: int64(c.Warmup), to: int64(c.Warmup) + int64(c.Length),
	}
	rows := float64(c.Load.Rows)
	m.entryBytes, m.answerBytes = c.Load.Row*rows, c.Load.AnswerRow*rows
	if c.Load.Row == 0 {
		m.entryBytes = s.encode.Key("bytes", 0, rows)
	}
	if c.Load.AnswerRow == 0 {
		m.answerBytes = s.answer.Key("bytes", rows)
	}
	m.hosts()
	for k := range c.Shards {
		m.lanes = append(m.lanes, newLane(m, k))
	}
	for _, f := range c.Faults {
		m.schedule(f)
	}
	for _, l := range m.lanes {
		l.writer.start()
	}
	events := m.clock.Run(m.to)
	if m.failed != nil {
		return nil, m.failed
	}
	if err := m.audit(); err != nil {
		return nil, err
	}
	return m.report(events), nil
}

func (m *model) hosts() {
	c := m.config
	hosts := func(of Hosts) (all []*host) {
		for range of.Count {
			all = append(all, newHost(m.clock, of, m.stages.slower(of.Cores)))
		}
		return all
	}
	m.brokers = hosts(c.Brokers.hosts())
	m.writers, m.agents = m.brokers, m.brokers
	if c.Place != placeOne {
		m.writers = hosts(c.Writers)
	}
	if c.Place == placeApart {
		m.agents = hosts(c.Agents.hosts())
	}
	m.uplink = wire{m.clock, c.Uplink, rand.New(rand.NewPCG(c.Seed, 2))}
	m.local = wire{m.clock, c.Local, rand.New(rand.NewPCG(c.Seed, 3))}
	if g := c.Gateway; g.Flows > 0 {
		m.way = wire{m.clock, g, rand.New(rand.NewPCG(c.Seed, 4))}
		m.gateway = station.NewSharing(m.clock, station.Link{Bandwidth: min(1e9, g.cap()*float64(g.Flows))})
	}
	for range m.agents {
		var queues []*station.Queue
		var buses []*station.Sharing
		for range c.Agents.GPUs {
			queues = append(queues, station.NewQueue(m.clock, 1))
			buses = append(buses, station.NewSharing(m.clock, station.Link{Bandwidth: float64(c.Agents.Bus) / 8e9}))
		}
		m.gpus, m.buses = append(m.gpus, queues), append(m.buses, buses)
	}
}

func (m *model) cross(bytes float64, done func()) {
	if m.gateway == nil {
		done()
		return
	}
	m.gateway.Do(bytes, station.Job{Limit: m.way.of.cap()}, func() { m.way.travel(bytes, done) })
}

// work runs a stage whose time was measured alone, with the processor time it had meanwhile. The
// processor time runs on the cores, on as many threads as it had; a stage that had less than one
// waits for the rest, as for a disk.
func (m *model) work(h *host, process int, ns, parallel float64, done func()) {
	m.run(h, station.Job{Limit: max(1, parallel), Group: process}, ns, min(1, parallel), done)
}

// run is work with a job; running is the share of the time in which the stage has the processor.
func (m *model) run(h *host, job station.Job, ns, running float64, done func()) {
	if ns <= 0 {
		done()
		return
	}
	h.cores.Do(ns*running*job.Limit, job, func() {
		m.clock.After(int64(ns*(1-running)), done)
	})
}

type group struct {
	broker  *host
	entries int
	bytes   float64 // of an entry
	idle    float64 // how long the caller has waited before, in terms of its work; an idle process is slower
	stored  func(i int)
	done    func()
}

// append stores entries. It calls stored for each that can be read, in their order, and then done.
// A broker that is down stores nothing.
func (m *model) append(g group) {
	if wait := g.broker.down - m.clock.Now(); wait > 0 {
		m.clock.After(wait, func() { m.append(g) })
		return
	}
	if m.config.Brokers.Replicas > 1 && len(m.brokers) > 1 {
		m.replicate(g.broker, float64(g.entries)*g.bytes, func() { m.store(g) })
		return
	}
	m.store(g)
}

// replicate sends bytes to the other two servers of a log.
func (m *model) replicate(broker *host, bytes float64, done func()) {
	at := 0
	for i, h := range m.brokers {
		if h == broker {
			at = i
		}
	}
	n := min(m.config.Brokers.Replicas, len(m.brokers)) - 1
	sent := join(n, done)
	for k := range n {
		m.local.pass(broker, m.brokers[(at+k+1)%len(m.brokers)], bytes, sent)
	}
}

// store is append at a broker that is up and has told its replicas. A lone server stores several
// entries one by one, or as an atomic batch if that is faster, as package publishmode finds out; a
// cluster keeps a batch in memory until it is complete, and agrees once.
func (m *model) store(g group) {
	k, n := float64(g.broker.busy+1), float64(g.entries)
	curve, at, still := m.stages.raft, []float64{g.bytes * n, k}, []float64{g.bytes * n, k}
	if m.config.Brokers.Replicas == 1 {
		curve = m.stages.appends
		single := curve.Mean(0, 0, 1, g.bytes, k)
		if n > 1 && (n < protocol.MinGroup || n*single <= curve.Mean(0, 0, max(n, leastAtomic), g.bytes, k)) {
			m.chain(g, 0)
			return
		}
		if n > 1 {
			n = max(n, leastAtomic)
		}
		at = []float64{float64(g.broker.batches), min(1, g.idle), n, g.bytes, k}
		still = []float64{0, 0, n, g.bytes, k}
	}
	m.written += float64(g.entries) * g.bytes * float64(m.config.Brokers.Replicas)
	g.broker.busy++
	cpu := (curve.Key("cpu.server", still...) + curve.Key("cpu.client", still...)) / max(1, curve.Mean(still...))
	job := station.Job{Limit: 1, Group: brokerProcess, Beside: true}
	m.run(g.broker, job, curve.Draw(m.rand.Float64(), at...), min(1, cpu), func() {
		g.broker.busy--
		for i := range g.entries {
			g.stored(i)
		}
		g.done()
	})
}

// leastAtomic is the smallest measured group that a lone server stores as an atomic batch.
const leastAtomic = 16

func (m *model) chain(g group, i int) {
	if i == g.entries {
		g.done()
		return
	}
	one := g
	one.entries, one.stored, one.done = 1, func(int) { g.stored(i) }, func() { m.chain(g, i+1) }
	if i > 0 {
		one.idle = 0
	}
	m.store(one)
}

func (m *model) audit() error {
	var errs []error
	now := m.clock.Now()
	hosts := func(name string, all []*host) {
		for i, h := range all {
			of := fmt.Sprint(name, i)
			errs = append(errs, h.cores.Check("cores of "+of, now), h.clients.CheckAll("connection of "+of))
			if h.in != nil {
				errs = append(errs, h.in.Check("network into "+of, now), h.out.Check("network from "+of, now))
			}
		}
	}
	hosts("broker", m.brokers)
	if m.config.Place != placeOne {
		hosts("writer", m.writers)
	}
	if m.config.Place == placeApart {
		hosts("agent", m.agents)
	}
	if m.gateway != nil {
		errs = append(errs, m.gateway.Check("gateway", now))
	}
	for i := range m.gpus {
		for g, q := range m.gpus[i] {
			errs = append(errs, q.CheckAll(fmt.Sprintf("gpu %d of agent%d", g, i)),
				m.buses[i][g].Check(fmt.Sprintf("bus %d of agent%d", g, i), now))
		}
	}
	for _, l := range m.lanes {
		errs = append(errs, l.audit())
	}
	return errors.Join(errs...)
}
