package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	// askPatience bounds a question to agents: a busy agent answers within it. It is a part of the
	// poll interval of a second.
	askPatience = 700 * time.Millisecond
	// mostGets bounds how many logs are read for their offset at one poll. Any further log has
	// Answered 0 until a later poll. Each log is read once, because the offset is kept.
	mostGets = 256
)

// asked are the metrics of agents in a state. An agent returns the metrics that it knows. A
// dashboard that shows another metric must add it here.
var asked = []string{
	"exoswarm_swarm_shards", "exoswarm_swarm_lag_entries", "exoswarm_swarm_observations_total",
	"exoswarm_swarm_rejected_entries_total", "exoswarm_swarm_apply_seconds", "exoswarm_swarm_checkpoint_seconds",
	"exoswarm_swarm_batch_limit", "exoswarm_swarm_pages", "exoswarm_swarm_page_hits_total",
	"exoswarm_swarm_page_misses_total", "exoswarm_swarm_page_moves_total", "exoswarm_swarm_stored_pages",
	"exoswarm_swarm_stored_bytes", "exoswarm_swarm_tier_fill_ratio", "exoswarm_swarm_tier_failures_total",
	"exoswarm_swarm_residency_violations_total", "exoswarm_model_residency_violations_total", "exoswarm_model_bytes",
	"exoswarm_gpuagent_level",
	"exoswarm_gpuagent_device_busy_seconds_total", "exoswarm_gpuagent_device_errors_total", "exoswarm_device_state",
	"exoswarm_device_memory_in_use_bytes", "exoswarm_device_temperature_celsius", "exoswarm_device_power_watts",
	"exoswarm_device_busy_ratio", "exoswarm_device_memory_errors_total", "exoswarm_jobs_completed_total",
	"exoswarm_jobs_failed_total",
	"exoswarm_jobs_running", "exoswarm_nats_reconnects_total", "exoswarm_build_info", "process_resident_memory_bytes",
	"process_cpu_seconds_total", "process_open_fds", "go_goroutines",
}

// NewPoller returns a poller that asks over a connection, which stays the caller's.
func NewPoller(c *natsq.Conn) *Poller { return &Poller{conn: c} }

// Poller reads a cluster and remembers what the next poll compares with. One goroutine uses it. It
// caches the results of slow questions: the records of swarms and the limits of tenants are read
// again only when their bucket has grown.
type Poller struct {
	conn *natsq.Conn

	at      time.Time
	streams map[string]uint64 // the last message of each, at the last successful poll
	records []swarms.Change
	limits  []jobs.TenantLimits
	// offsets have, by log of answers, the entry that its first message answers, minus one. Each
	// entry has one answer, in the order of the entries, so the last message has the last answered
	// entry.
	offsets  map[string]int64
	entries  map[string]uint64
	results  uint64
	counters map[string]float64 // sums of counters by agent
	asked    time.Time          // when the replies to the last question were there
	numbers  map[string]float64 // the series that come from agents, as of the last question
	replies  map[string]*jobs.Telemetry
	silence  silence
	watching watching
}

// Poll reads everything once and returns a new State without Frame and At. With ask the agents are
// asked for their metrics too; otherwise the State has the metrics of the last question. After an
// error the poller stays as it was or remembers more, so the next poll is correct either way.
func (o *Poller) Poll(ctx context.Context, ask bool) (*State, error) {
	s := &State{Numbers: map[string]float64{}}
	report, err := o.conn.Servers.Report(ctx)
	if err != nil {
		return nil, err
	}
	s.NATS = *report
	now := time.Now()
	for _, p := range wire.Pools() {
		st, err := o.conn.Queue.Stats(ctx, p)
		if err != nil {
			return nil, err
		}
		s.Pools = append(s.Pools, pool(st))
	}
	census, err := o.conn.Swarms.Census(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range census.Agents {
		s.Agents = append(s.Agents, Agent{Agent: a})
	}
	if o.changed(s, "KV_"+wire.SwarmBucket) {
		if o.records, err = o.conn.Swarms.Swarms(ctx); err != nil {
			return nil, err
		}
	}
	if o.changed(s, "KV_"+wire.TenantBucket) {
		if o.limits, err = o.conn.Control.Tenants(ctx); err != nil {
			return nil, err
		}
	}
	s.Tenants = tenants(s.Pools, o.limits)
	if err := o.swarms(ctx, s, census, now); err != nil {
		return nil, err
	}
	if err := o.watches(ctx, s, now); err != nil {
		return nil, err
	}
	for i := range s.Swarms {
		s.Swarms[i].Title = s.Title(s.Swarms[i])
	}
	if ask {
		o.ask(ctx, s.Agents)
	}
	for i := range s.Agents {
		if t := o.replies[s.Agents[i].Name]; t != nil {
			s.Agents[i].Telemetry, s.Agents[i].Heard = t, o.asked
		}
	}
	// Between two questions the replies are old, so connections are looked at in a cluster that is not
	// large.
	fresh := o.replies
	if !ask && len(s.Agents) <= maxSilent {
		fresh = nil
	}
	o.silence.follow(s, fresh, now, func(agent string) bool {
		ctx, cancel := context.WithTimeout(ctx, askPatience/2)
		defer cancel()
		return o.conn.Telemetry.Listens(ctx, agent)
	})
	o.count(s, now)
	o.at = now
	// Only now: a failed poll must not hide a change from the next one.
	o.streams = map[string]uint64{}
	for _, st := range s.NATS.Streams {
		o.streams[st.Name] = st.Last
	}
	return s, nil
}

// changed reports whether a stream has grown since the previous poll. A stream that the report
// lacks counts as changed, which costs one more read and never shows an old value.
func (o *Poller) changed(s *State, stream string) bool {
	for _, st := range s.NATS.Streams {
		if st.Name == stream {
			before, ok := o.streams[stream]
			return !ok || before != st.Last
		}
	}
	return true
}

// pool adds the kinds that no agent of the pool handles although jobs of them are queued or
// running.
func pool(st jobs.QueueStats) Pool {
	p := Pool{QueueStats: st}
	for _, s := range st.Sources {
		if s.Agents == 0 && s.Waiting+uint64(s.Running) > 0 && !slices.Contains(p.Unserved, s.Kind) {
			p.Unserved = append(p.Unserved, s.Kind)
		}
	}
	return p
}

// tenants returns the tenants with jobs in any pool or with limits, by name. The sum covers the
// sources that the statistics list. Limits points into limits, which must not change.
func tenants(pools []Pool, limits []jobs.TenantLimits) []Tenant {
	by := map[string]*Tenant{}
	of := func(name string) *Tenant {
		if by[name] == nil {
			by[name] = &Tenant{Tenant: name}
		}
		return by[name]
	}
	for _, p := range pools {
		for _, s := range p.Sources {
			t := of(s.Tenant)
			t.Waiting += s.Waiting
			t.Running += s.Running
		}
	}
	for i, l := range limits {
		of(l.Tenant).Limits = &limits[i]
	}
	all := []Tenant{}
	for _, t := range by {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Tenant) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}

// swarms fills in the swarms of a state. Entries and answers come from the report of the servers,
// which has the last sequence of every log; only the offset between a sequence and the answered
// entry needs a request for each log, once. The two logs are read at different moments, so answers
// may be ahead of entries.
func (o *Poller) swarms(ctx context.Context, s *State, census *swarmlog.Census, now time.Time) error {
	logs := map[string]telemetry.SwarmLogs{}
	for _, g := range s.NATS.Logs {
		logs[logKey(g.Swarm, g.Shard, g.In)] = g
	}
	offsets, entries, gets := map[string]int64{}, map[string]uint64{}, 0
	for _, r := range o.records {
		if r.Gone {
			continue
		}
		sw := record(r)
		for k := range sw.Shards {
			sh := &sw.Shards[k]
			in, out := logs[logKey(sw.Key, k, true)], logs[logKey(sw.Key, k, false)]
			sh.Entries = in.Last
			if in.Leaderless {
				sh.Leaderless = in.Name
			} else if out.Leaderless {
				sh.Leaderless = out.Name
			}
			key := logKey(sw.Key, k, false)
			off, known := o.offsets[key]
			if !known && out.Last > 0 && gets < mostGets && !out.Leaderless {
				gets++
				e, err := o.conn.Swarms.Log(sw.Key, k, swarms.Out).Last(ctx)
				// Any other error is taken for the removal of the swarm, and the shard is tried
				// again at the next poll.
				if ctx.Err() != nil {
					return err
				}
				if err != nil || e.Seq == 0 {
					continue // the swarm was removed meanwhile
				}
				off, known = int64(e.Ref)-int64(e.Seq), true
			}
			if known {
				offsets[key] = off
				sh.Answered = uint64(max(int64(out.Last)+off, 0))
			}
			sh.Entries = max(sh.Entries, sh.Answered) // the two logs are not read at one moment
			entries[key] = sh.Answered
			if before, ok := o.entries[key]; ok && !o.at.IsZero() {
				sh.EntriesPerSecond = float64(sh.Answered-min(before, sh.Answered)) / now.Sub(o.at).Seconds()
			}
			serve(sh, census, swarms.LeaseKey(sw.Key, k))
		}
		sw.State = stateOf(sw)
		s.Swarms = append(s.Swarms, sw)
	}
	o.offsets, o.entries = offsets, entries
	slices.SortFunc(s.Swarms,
		func(a, b Swarm) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return nil
}

func logKey(swarm string, shard int, in bool) string {
	dir := swarms.Out
	if in {
		dir = swarms.In
	}
	return swarms.LeaseKey(swarm, shard) + "." + string(dir)
}

// record returns a swarm from its record. An unreadable record gives an Error and no shards. A
// specification that cannot be decoded leaves Cell, Addressed and Agents empty: records of newer
// versions are listed too.
func record(r swarms.Change) Swarm {
	rec := r.Swarm
	sw := Swarm{
		ID: r.ID, Name: rec.Name, Key: rec.Key(), Groups: rec.Groups, Owner: rec.OwnerJob(), Created: rec.Created,
		Ending: rec.Ending, Spec: rec.Spec, Shards: []Shard{},
	}
	if r.Err != nil {
		sw.Error, sw.Name = r.Err.Error(), cmp.Or(sw.Name, r.ID)
		return sw
	}
	var spec swarm.Spec
	if json.Unmarshal(rec.Spec, &spec) == nil {
		sw.Cell, sw.Addressed = spec.Cell.Kind, cmp.Or(spec.Addressed, "group")
		sw.Agents = int64(rec.Groups) * int64(spec.AgentsPerGroup)
		sw.Candidates = spec.Vote.Candidates
	}
	for k := range rec.ShardCount() {
		first, end := rec.ShardGroups(k)
		sw.Shards = append(sw.Shards, Shard{Shard: k, First: first, End: end})
	}
	return sw
}

// serve fills in who serves a shard. The census reads leases and agents one after the other, so a
// shard may have a holder that has just been lost.
func serve(sh *Shard, c *swarmlog.Census, lease string) {
	sh.Holder, sh.State = c.Holders[lease], StateServed
	if sh.Holder == "" {
		sh.State = StateWaiting
		if a := c.LostHolder(lease); a != nil {
			sh.LostHolder, sh.LostSince = a.Name, a.Lost.Since
		}
		return
	}
	sh.Devices = c.Team(lease)
	if sh.Recovering = c.Recovery(lease); sh.Recovering != nil {
		sh.State = StateReplaying
	}
}

// stateOf returns the state of a swarm: ending if it is removed, otherwise the state of the shard
// that is farthest from being served. A swarm without shards counts as served.
func stateOf(sw Swarm) string {
	state := StateServed
	for _, s := range sw.Shards {
		switch {
		case sw.Ending:
			return StateEnding
		case s.State == StateWaiting:
			state = StateWaiting
		case s.State == StateReplaying && state == StateServed:
			state = StateReplaying
		}
	}
	return state
}

// ask asks the agents for their metrics within askPatience, and derives the series that come from
// them. A rate is the growth of a counter between two questions, divided by the time between them.
// DeviceBusy is a mean over agents that report a device, and at most 1: an agent with several
// devices counts once.
func (o *Poller) ask(ctx context.Context, agents []Agent) {
	var names []string
	for _, a := range agents {
		if a.Lost == nil {
			names = append(names, a.Name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	found, err := o.conn.Telemetry.Ask(ctx, asked, names)
	if err != nil {
		found = nil // agents without an answer are shown without numbers
	}
	o.replies = map[string]*jobs.Telemetry{}
	now, counters := time.Now(), map[string]float64{}
	gpu := 0
	for name, t := range found {
		o.replies[name] = &t
		busy := false
		for _, s := range t.Samples {
			switch s.Name {
			case "exoswarm_swarm_observations_total", "exoswarm_gpuagent_device_busy_seconds_total",
				"exoswarm_swarm_page_moves_total":
				counters[name+" "+s.Name] += s.Value
				busy = busy || strings.HasPrefix(s.Name, "exoswarm_gpuagent_device_busy")
			}
		}
		if busy {
			gpu++
		}
	}
	rates := map[string]float64{}
	for key, v := range counters {
		before, ok := o.counters[key]
		if !ok || v < before { // the first answer, or a new process of this name
			continue
		}
		_, metric, _ := strings.Cut(key, " ")
		rates[metric] += (v - before) / now.Sub(o.asked).Seconds()
	}
	o.numbers = map[string]float64{}
	if o.counters != nil {
		o.numbers[ObservationRate] = rates["exoswarm_swarm_observations_total"]
		o.numbers[PageMoveRate] = rates["exoswarm_swarm_page_moves_total"]
		if gpu > 0 {
			o.numbers[DeviceBusy] = min(rates["exoswarm_gpuagent_device_busy_seconds_total"]/float64(gpu), 1)
		}
	}
	o.counters, o.asked = counters, now
}

// count fills in the numbers of a state. A missing name is unknown: rates of jobs need two polls. A
// number that is known to be 0 is set to 0, so that a series has no gap.
func (o *Poller) count(s *State, now time.Time) {
	n := s.Numbers
	for name, v := range o.numbers {
		n[name] = v
	}
	for _, p := range s.Pools {
		for _, c := range p.Sources {
			n[JobsWaiting] += float64(c.Waiting)
			n[JobsRunning] += float64(c.Running)
		}
	}
	n[JobsWaiting] += 0
	n[JobsRunning] += 0
	for _, st := range s.NATS.Streams {
		switch st.Name {
		case wire.DeadStream:
			n[DeadLetters] = float64(st.Messages)
		case wire.ResultStream:
			if !o.at.IsZero() {
				n[JobsEnded] = float64(st.Last-min(o.results, st.Last)) / now.Sub(o.at).Seconds()
			}
			o.results = st.Last
		}
	}
	for _, a := range s.Agents {
		if a.Lost == nil {
			n[AgentCount]++
		}
	}
	n[ShardCount], n[ShardsUnserved], n[EntryRate], n[EntriesWaiting] = 0, 0, 0, 0
	for _, sw := range s.Swarms {
		for _, sh := range sw.Shards {
			n[ShardCount]++
			n[EntryRate] += sh.EntriesPerSecond
			n[EntriesWaiting] += float64(sh.Entries - sh.Answered)
			if sh.Holder == "" {
				n[ShardsUnserved]++
			}
		}
	}
	n[StoreBytes] = float64(s.NATS.Store)
}
