package cluster

import (
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/tools/simulate/station"
)

// The bounds of the server of a shard, as in gpuagents/shard and jobs/swarms.
const (
	leastBatch    = 65_536
	mostBatch     = 1 << 20
	batchLatency  = 100 * time.Millisecond
	maxMerged     = 256      // entries of a batch
	maxAppended   = 256      // answers of an append
	decodedAhead  = 16       // entries between reader and merger
	inFlightBytes = 64 << 20 // of entries from reading to answer
	rowBytes      = 8        // of a decoded row
	leastWeight   = inFlightBytes / 1024
)

// server is the service of a shard by its GPU agent: a reader that decodes, a merger, a loop that
// alone uses the device, and an appender of answers; each works on one thing at a time.
type server struct {
	lane  *lane
	epoch int   // of the process; what an earlier one has begun has no effect
	down  int64 // nothing happens before this time

	unanswered []*entry // that were fetched, in the order of the log
	fetched    []*entry // not decoded
	reading    bool
	blocked    *entry // decoded, for which there is no room
	decoded    []*entry
	weight     int // bytes in flight

	merging bool
	open    *batch
	held    *entry // the first of the next batch
	ready   bool   // the loop waits for a batch
	size    gpubatch.Size

	applying  int // entries on the device
	answers   []*entry
	appending bool
	sending   int // answers that are appended and not stored

	read, merged, device, append meter
}

type batch struct {
	entries []*entry
	rows    int
	full    bool
}

func newServer(l *lane) *server {
	return &server{lane: l, ready: true, size: gpubatch.NewSize(gpubatch.Limits{
		Least: leastBatch, Most: mostBatch, Bound: batchLatency,
	}, l.now())}
}

func (l *lane) now() time.Time { return time.Unix(0, l.m.clock.Now()) }

// work is model.work at the agent; done is left out when the process ends before it.
func (s *server) work(ns, parallel float64, done func()) {
	epoch := s.epoch
	s.lane.m.work(s.lane.agent, agentProcess, ns, parallel, func() {
		if epoch == s.epoch {
			done()
		}
	})
}

func (s *server) fetch(e *entry) {
	s.unanswered = append(s.unanswered, e)
	s.fetched = append(s.fetched, e)
	s.decode()
}

func (s *server) weightOf() int { return max(leastWeight, rowBytes*s.lane.m.config.Load.Rows) }

func (s *server) decode() {
	m := s.lane.m
	w := s.weightOf()
	if s.reading || len(s.fetched) == 0 || s.weight > 0 && s.weight+w > inFlightBytes || s.down > m.clock.Now() {
		return
	}
	e := s.fetched[0]
	s.fetched = s.fetched[1:]
	s.reading = true
	s.weight += w
	s.read.begin(m.clock.Now())
	ns := m.config.Load.DecodeRow * float64(m.config.Load.Rows)
	if ns == 0 {
		ns = m.stages.decode.Draw(m.rand.Float64(), float64(m.config.Load.Rows))
	}
	s.work(ns, 1, func() {
		s.read.end(m.clock.Now())
		if len(s.decoded) == decodedAhead {
			s.blocked = e
			return
		}
		s.decoded = append(s.decoded, e)
		s.reading = false
		s.decode()
		s.merge()
	})
}

func (s *server) take() *entry {
	e := s.decoded[0]
	s.decoded = s.decoded[1:]
	if s.blocked != nil {
		s.decoded, s.blocked, s.reading = append(s.decoded, s.blocked), nil, false
		s.decode()
	}
	return e
}

// merge is the merger: it hands a batch to the loop, or adds an entry to it. When both are possible
// it does either, as a select does.
func (s *server) merge() {
	m := s.lane.m
	if s.merging {
		return
	}
	if s.open == nil && s.held != nil {
		e := s.held
		s.held = nil
		s.add(&batch{}, e)
		return
	}
	in, out := len(s.decoded) > 0 && s.held == nil, s.open != nil && s.ready
	if in && out {
		in = m.rand.IntN(2) == 0
	}
	switch {
	case in:
		e := s.take()
		switch {
		case s.open == nil:
			s.add(&batch{}, e)
		case len(s.open.entries) < maxMerged && s.open.rows+m.config.Load.Rows <= s.size.Most():
			s.add(s.open, e)
		default:
			s.open.full, s.held = true, e
			s.merge()
		}
	case out:
		b := s.open
		s.open, s.ready = nil, false
		s.observe(b)
		s.merge()
	}
}

func (s *server) add(b *batch, e *entry) {
	m := s.lane.m
	s.merging = true
	s.merged.begin(m.clock.Now())
	ns := m.config.Agents.MergeRow * float64(m.config.Load.Rows)
	if m.config.Agents.Device == "host" {
		ns = m.stages.merge.Draw(m.rand.Float64(), float64(m.config.Load.Rows), 1)
	}
	s.work(ns, 1, func() {
		s.merging = false
		s.merged.end(m.clock.Now())
		b.entries = append(b.entries, e)
		b.rows += m.config.Load.Rows
		s.open = b
		s.merge()
	})
}

// observe applies a batch on the device and hands on the answers.
func (s *server) observe(b *batch) {
	l, m := s.lane, s.lane.m
	began := l.now()
	for _, e := range b.entries {
		l.pass(e, partWait)
	}
	s.device.begin(m.clock.Now())
	s.applying = len(b.entries)
	done := func() {
		s.applying = 0
		s.device.end(m.clock.Now())
		s.size.Done(began, l.now(), b.rows, b.full)
		for _, e := range b.entries {
			l.pass(e, partDevice)
		}
		s.answers = append(s.answers, b.entries...)
		s.ready = true
		s.answer()
		s.merge()
	}
	if m.config.Agents.Device == "gpu" {
		s.launch(b, done)
		return
	}
	rows, n := float64(m.config.Load.Rows), float64(len(b.entries))
	threads, epoch := m.stages.threads(rows, n), s.epoch
	l.agent.batches++
	job := station.Job{Limit: threads, Group: agentProcess, Speed: m.stages.speed(rows, n)}
	l.agent.cores.Do(threads*m.stages.observe.Draw(m.rand.Float64(), 1, rows, n), job, func() {
		l.agent.batches--
		if epoch == s.epoch {
			done()
		}
	})
}

// launch is observe on a GPU: the copies over the bus, then the kernels, one batch at a time.
func (s *server) launch(b *batch, done func()) {
	l, m := s.lane, s.lane.m
	a, epoch := m.config.Agents, s.epoch
	bus, gpu := m.buses[l.at][l.gpu], m.gpus[l.at][l.gpu]
	bus.Do(a.Copy*float64(b.rows), station.Job{Limit: 1e9}, func() {
		gpu.Serve(int64(float64(a.Batch)+a.PerRow*float64(b.rows)), func() {
			if epoch == s.epoch {
				done()
			}
		})
	})
}

func (s *server) answer() {
	l, m := s.lane, s.lane.m
	if s.appending || len(s.answers) == 0 {
		return
	}
	n := min(len(s.answers), maxAppended)
	if m.answerBytes > 0 { // a call is cut at 8 MiB
		n = max(1, min(n, int(8<<20/m.answerBytes)))
	}
	all := s.answers[:n:n]
	s.answers = s.answers[n:]
	s.appending, s.sending = true, n
	idle := s.append.idle(m.clock.Now())
	s.append.begin(m.clock.Now())
	ns := 0.0
	for range all {
		ns = max(ns, m.stages.answer.Draw(m.rand.Float64(), float64(m.config.Load.Rows)))
	}
	epoch := s.epoch
	s.work(ns, float64(min(n, m.config.Agents.Cores)), func() {
		m.local.pass(l.agent, l.broker, m.answerBytes*float64(n), func() {
			m.append(group{broker: l.broker, entries: n, bytes: m.answerBytes, idle: idle, stored: func(i int) {
				if epoch == s.epoch { // otherwise the fence of the log refuses it
					s.store(all[i])
				}
			}, done: func() {
				if epoch == s.epoch {
					s.append.end(m.clock.Now())
					s.appending = false
					s.answer()
					s.decode()
				}
			}})
		})
	})
}

func (s *server) store(e *entry) {
	l, m := s.lane, s.lane.m
	s.sending--
	s.weight -= s.weightOf()
	for i, o := range s.unanswered {
		if o == e {
			s.unanswered = append(s.unanswered[:i:i], s.unanswered[i+1:]...)
			break
		}
	}
	l.deliver(l.answers, l.home, writerProcess, &m.uplink, m.answerBytes, func() { l.finish(e) })
}

// kill ends the process. Another one begins at a time: it reads the entries without an answer
// again.
func (s *server) kill(until int64) {
	m := s.lane.m
	now := m.clock.Now()
	s.epoch++
	for _, t := range []*meter{&s.read, &s.merged, &s.device, &s.append} {
		for t.n > 0 {
			t.end(now)
		}
	}
	s.fetched = append([]*entry(nil), s.unanswered...)
	s.reading, s.merging, s.appending, s.ready = false, false, false, true
	s.blocked, s.decoded, s.open, s.held, s.answers, s.weight = nil, nil, nil, nil, nil, 0
	s.applying, s.sending = 0, 0
	s.down = until
	m.clock.After(until-now, s.decode)
}

// audit returns an ErrLost unless each entry without an answer is in one place.
func (s *server) audit() error {
	places := len(s.fetched) + len(s.decoded) + s.applying + len(s.answers) + s.sending
	if s.open != nil {
		places += len(s.open.entries)
	}
	for _, one := range []bool{s.reading, s.merging, s.held != nil} {
		if one {
			places++
		}
	}
	if places != len(s.unanswered) {
		return fmt.Errorf("%w: a server has %d entries without an answer in %d places", ErrLost,
			len(s.unanswered), places)
	}
	return nil
}
