package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// do does a step: a verb and its operands. One that is not possible does nothing.
func (l *lifecycle) do(step string) {
	l.t.Helper()
	l.script = append(l.script, step)
	l.counts.add(func(c *lifecycleCounts) { c.steps++ })
	words := append(strings.Fields(step), "", "")
	verb, what, s := words[0], words[1], l.swarms[words[1]]
	m, i := l.nats, strings.Index("ab", what)
	if what != lifecycleServer && i >= 0 {
		m = l.agents[i]
	}
	switch verb {
	case "create":
		if s == nil {
			l.create(what)
		}
	case "delete":
		if s != nil {
			l.remove(what)
		}
	case "remake":
		if s != nil {
			l.remove(what)
			l.create(what)
		}
	case "observe", "tick", "vote":
		if s != nil {
			for k := range s.entries {
				l.append(s, k, l.entry(s, k, verb))
			}
		}
	case "storm":
		if s != nil {
			l.storm(s, words[2])
		}
	case "start":
		switch {
		case m.state != stateDown:
		case m == l.nats:
			l.startServer()
		default:
			l.startAgent(i)
		}
	case "kill":
		if m.state != stateDown {
			l.finish(m, syscall.SIGKILL)
		}
	case "term":
		if m.state == stateUp {
			l.finish(m, syscall.SIGTERM)
		}
	case "stop":
		if m.state == stateUp {
			l.signal(m, syscall.SIGSTOP)
			// a partition of random length before the next step
			letPass(l.t.Context(), time.Duration(l.random.Int64N(int64(lifecycleLease*3/2))))
		}
	case "continue":
		if m.state == stateStopped {
			l.signal(m, syscall.SIGCONT)
		}
	case "empty":
		l.empty()
	case "keep":
		m.kept = filepath.Join(filepath.Dir(m.dir), "kept")
		if err := copyFolder(m.kept, m.dir); err != nil {
			l.fatalf("%v", err)
		}
	case "rewind":
		if err := copyFolder(m.dir, m.kept); err != nil {
			l.fatalf("%v", err)
		}
	case "swap":
		if a, b := l.agents[0], l.agents[1]; a.state == stateDown && b.state == stateDown {
			a.dir, a.kept, b.dir, b.kept = b.dir, b.kept, a.dir, a.kept
		}
	default:
		l.fatalf("no step %q", step)
	}
}

// signal stops or continues a process.
func (l *lifecycle) signal(m *lifecycleMember, s syscall.Signal) {
	l.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		l.fatalf("%s: %v: %v", m.kind, s, err)
	}
	m.state = stateUp
	if s == syscall.SIGSTOP {
		m.state = stateStopped
		l.counts.add(func(c *lifecycleCounts) { c.stops++ })
	}
}

// empty kills the server and starts it with nothing in its store, as an operator does who has lost
// a disk.
func (l *lifecycle) empty() {
	l.t.Helper()
	if l.nats.state != stateDown {
		l.finish(l.nats, syscall.SIGKILL)
	}
	if err := os.RemoveAll(l.store); err != nil {
		l.fatalf("%v", err)
	}
	for id := range l.swarms {
		l.forget(id)
	}
	l.counts.add(func(c *lifecycleCounts) { c.empty++ })
	l.begin(l.nats)
	l.mustCommand("init", "--yes")
	l.connect()
}

// create makes a swarm by the command, and its twin.
func (l *lifecycle) create(id string) {
	l.t.Helper()
	l.generation++
	// Swarms of one name follow each other with the same spec, so with equal first entries, or with
	// another number of agents and shards.
	shards, agents := 1+2*l.random.IntN(2), 4
	spec := fmt.Sprintf("name: %s\naddressed: agent\nagents: %d\nagents_per_group: 2\nshards: %d\npage_size: 64KiB\n"+
		"features: [current, gain]\nseed: 1\n"+
		"cell: {kind: leaky, params: {decay: 0.9, threshold: 1}}\nvote: {candidates: [quiet, spike], rule: "+
		"majority}\ncheckpoint: {interval: 100ms, entries: 1}\n", id, shards*agents, shards)
	file := write(l.t, filepath.Join(filepath.Dir(l.store), fmt.Sprintf("%s-%d.yaml", id, l.generation)), spec)
	if l.serving() {
		l.mustCommand("swarm", "create", "-f", file, "--timeout", l.patience().String())
	} else if code, out := l.command("swarm", "create", "-f", file, "--timeout", "100ms"); code != 0 &&
		!strings.Contains(out, "has no answer after") {
		l.fatalf("create %s, which nobody serves: exit %d: %s", id, code, out)
	}
	l.counts.add(func(c *lifecycleCounts) { c.created++ })
	ctx := l.t.Context()
	record, err := l.conn.Swarms.Swarm(ctx, id)
	if err != nil {
		l.fatalf("%v", err)
	}
	s := &lifecycleSwarm{record: record, twin: record, agents: agents, entries: make([][]swarms.Entry, shards)}
	s.twin.ID = fmt.Sprintf("%s-%d-%d", id, l.number, l.generation)
	l.swarms[id] = s
	err = l.twin.Swarms.CreateSwarm(ctx, s.twin)
	for k := range shards {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			err = errors.Join(err, l.twin.Swarms.Log(s.twin.Key(), k, d).Create(ctx))
		}
		first, readErr := l.conn.Swarms.Log(record.Key(), k, swarms.In).Last(ctx) // the command's own question
		if err = errors.Join(err, readErr); err != nil || first.Seq != 1 {
			l.fatalf("create %s: entry %d is the last: %v", id, first.Seq, err)
		}
		s.entries[k] = []swarms.Entry{first}
		if err := l.twin.Swarms.Log(s.twin.Key(), k, swarms.In).Append(ctx, 0, first); err != nil {
			l.fatalf("%v", err)
		}
	}
}

// remove deletes a swarm by the command.
func (l *lifecycle) remove(id string) {
	l.t.Helper()
	l.mustCommand("swarm", "delete", id, "--yes")
	l.forget(id)
	l.counts.add(func(c *lifecycleCounts) { c.deleted++ })
}

// forget removes a swarm's twin.
func (l *lifecycle) forget(id string) {
	l.t.Helper()
	if err := l.twin.Swarms.RemoveSwarm(l.t.Context(), l.swarms[id].twin); err != nil {
		l.fatalf("%v", err)
	}
	delete(l.swarms, id)
}

// query is an entry that asks a shard for all of its agents.
func (l *lifecycle) query(s *lifecycleSwarm, k int) swarms.Entry {
	q := swarms.Query{Version: jobs.Version}
	for i := range s.agents {
		q.Agents = append(q.Agents, uint32(k*s.agents+i))
	}
	return l.encoded(swarms.EntryQuery, q)
}

// entry is one of a verb for a shard.
func (l *lifecycle) entry(s *lifecycleSwarm, k int, verb string) swarms.Entry {
	l.t.Helper()
	switch verb {
	case "tick":
		return l.encoded(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1 + l.random.IntN(9)})
	case "vote":
		return l.encoded(swarms.EntryVote, swarms.Vote{
			Version: jobs.Version, Round: 1 + l.random.Uint64N(9),
			Rule: swarms.RuleMajority,
		})
	}
	o := &batch.AgentObservations{
		Width: 2, Agent: []uint32{uint32(k*s.agents + l.random.IntN(s.agents))},
		Features: []float32{float32(l.random.IntN(17)) / 16, 1},
	}
	data, err := o.Encode()
	if err != nil {
		l.fatalf("%v", err)
	}
	return swarms.Entry{Kind: swarms.EntryObserve, Data: data}
}

func (l *lifecycle) encoded(kind string, v any) swarms.Entry {
	l.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		l.fatalf("%v", err)
	}
	return swarms.Entry{Kind: kind, Data: data}
}

// append puts an entry into the log of a shard and of its twin.
func (l *lifecycle) append(s *lifecycleSwarm, k int, e swarms.Entry) {
	l.t.Helper()
	after := len(s.entries[k])
	e.Ref = uint64(after + 1)
	ctx := l.t.Context()
	err := l.twin.Swarms.Log(s.twin.Key(), k, swarms.In).Append(ctx, uint64(after), e)
	in := l.conn.Swarms.Log(s.record.Key(), k, swarms.In)
	if err = errors.Join(err, in.Append(ctx, uint64(after), e)); err != nil {
		l.fatalf("append a %s to %s, shard %d: %v", e.Kind, s.record.Key(), k, err)
	}
	s.entries[k] = append(s.entries[k], e)
}

// storm appends entries while a process is killed. The server is started again at once, so that the
// appends come to an end.
func (l *lifecycle) storm(s *lifecycleSwarm, what string) {
	l.t.Helper()
	type due struct {
		shard int
		entry swarms.Entry
	}
	var all []due
	for range 12 {
		for k := range s.entries {
			all = append(all, due{k, l.entry(s, k, []string{"observe", "tick"}[l.random.IntN(2)])})
		}
	}
	pause := time.Duration(l.random.Int64N(int64(100 * time.Millisecond)))
	stored := make(chan error, 1)
	go func() {
		ctx := l.t.Context()
		var err error
		for _, d := range all {
			after := uint64(len(s.entries[d.shard]))
			d.entry.Ref = after + 1
			for _, log := range []swarms.Log{
				l.twin.Swarms.Log(s.twin.Key(), d.shard, swarms.In),
				l.conn.Swarms.Log(s.record.Key(), d.shard, swarms.In),
			} {
				err = errors.Join(err, log.Append(ctx, after, d.entry))
			}
			if err != nil {
				break
			}
			s.entries[d.shard] = append(s.entries[d.shard], d.entry)
		}
		stored <- err
	}()
	letPass(l.t.Context(), pause) // the moment of the kill, not a wait for anything
	if what == lifecycleServer {
		l.finish(l.nats, syscall.SIGKILL)
		l.begin(l.nats)
	} else if m := l.agents[strings.Index("ab", what)]; m.state != stateDown {
		l.finish(m, syscall.SIGKILL)
	}
	if err := <-stored; err != nil {
		l.fatalf("storm: %v", err)
	}
}
