package doctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
)

// queueChecks read the statistics of the pools.
var queueChecks = []check{
	{"queue-paused", "queues", ofState(paused)},
	{"queue-unserved", "queues", ofState(unservedKinds)},
	{"queue-oldest", "queues", ofState(oldest)},
	{"queue-dead", "queues", ofState(dead)},
}

// swarmChecks read the records of swarms, the leases of their shards and the tiers of GPU agents.
var swarmChecks = []check{
	{"swarm-served", "swarms", ofState(served)},
	{"swarm-records", "swarms", ofState(records)},
	{"swarm-tiers", "swarms", ofState(tiersFull)},
	{"swarm-disks", "swarms", ofState(tierFailures)},
}

// detectorChecks read what runs and detectors report.
var detectorChecks = []check{
	{"detectors-work", "detectors", ofState(working)},
}

// working reports runs and detectors that wait for somebody or have failed. One that waits has rows
// without a decision or without a receiver, so it is an error.
func working(f *Facts) Result {
	var all []string
	for _, w := range f.State.Watches {
		if w.State == cluster.WatchWaits && w.Why != "" || w.State == cluster.WatchFailed && w.Detector {
			all = append(all, w.Name+": "+w.Why)
		}
	}
	return finding(Failed, all, "without progress: "+several(len(all), "detector or run", "detectors and runs"),
		"exoswarm detect explain NAME, or exoswarm job explain ID", "each detector progresses")
}

// paused warns of pools and kinds that an operator has paused. The cure resumes the last of them.
func paused(f *Facts) Result {
	var all []string
	cure := ""
	for _, p := range f.State.Pools {
		if p.Paused {
			all, cure = append(all, fmt.Sprintf("pool %s, %d jobs", p.Pool, p.Jobs)),
				fmt.Sprintf("exoswarm queue resume %s", p.Pool)
		}
		for _, s := range p.Sources {
			// A paused pool is one finding, whatever kinds of it are paused too.
			if s.Paused && !p.Paused {
				all = append(all, fmt.Sprintf("kind %s of pool %s, %d jobs wait", s.Kind, p.Pool, s.Waiting))
				cure = fmt.Sprintf("exoswarm queue resume %s --kind %s", p.Pool, s.Kind)
			}
		}
	}
	if len(all) > 0 {
		return Result{Level: Warn, Summary: strconv.Itoa(len(all)) + " queues are paused", Details: all, Cure: cure}
	}
	return ok("no queue is paused")
}

// unservedKinds reports kinds with queued jobs that no agent handles. Such jobs wait until their
// deadline, or for ever without one.
func unservedKinds(f *Facts) Result {
	var all []string
	for _, p := range f.State.Pools {
		for _, k := range p.Unserved {
			all = append(all, fmt.Sprintf("kind %s of pool %s", k, p.Pool))
		}
	}
	return finding(
		Failed,
		all,
		"no agent handles "+several(len(all), "kind", "kinds")+" of waiting jobs",
		"start an agent that handles the kind, or cancel its jobs (exoswarm job list)",
		"each kind with jobs has an agent",
	)
}

// oldJob is the age from which the oldest job is reported. Jobs over live sources run for days, so
// an age alone is not a warning.
const oldJob = time.Hour

// oldest reports the oldest job that is not over if it is older than oldJob. With several such
// pools it reports the last one.
func oldest(f *Facts) Result {
	r := ok("no job is older than %v", oldJob)
	for _, p := range f.State.Pools {
		// An empty pool has no oldest job.
		if age := f.State.At.Sub(p.Oldest); !p.Oldest.IsZero() && age > oldJob {
			r.Level, r.Summary = Info, fmt.Sprintf("the oldest job of pool %s is %v old", p.Pool,
				age.Round(time.Minute))
			r.Cure = "exoswarm job list shows it first; exoswarm job explain ID names the cause if it does not progress"
			hours := age.Hours()
			r.Value, r.Unit = &hours, "h"
		}
	}
	return r
}

// dead warns of dead letters. They stay until somebody retries or purges them.
func dead(f *Facts) Result {
	n := f.State.Numbers[cluster.DeadLetters]
	r := ok("there is no dead letter")
	if n > 0 {
		r = Result{
			Level: Warn, Summary: several(int(n), "job", "jobs") + " failed for good",
			Cure: "exoswarm dlq list shows why; exoswarm job retry ID, or exoswarm dlq purge",
		}
	}
	r.Value, r.Unit = &n, "jobs"
	return r
}

// served reports shards that no GPU agent holds, an error, and those whose log is still replayed, a
// warning. Swarms that are being removed do not count.
func served(f *Facts) Result {
	r := Result{Level: OK}
	for _, sw := range f.State.Swarms {
		for _, sh := range sw.Shards {
			switch {
			// Its shards are given up by their agents one after the other.
			case sw.Ending:
			case sh.State == cluster.StateWaiting:
				r.Level = Failed
				r.Details = append(r.Details, fmt.Sprintf("swarm %s, shard %d: no GPU agent holds it", sw.Name,
					sh.Shard))
			case sh.State == cluster.StateReplaying:
				if r.Level == OK {
					r.Level = Warn
				}
				r.Details = append(r.Details, fmt.Sprintf("swarm %s, shard %d: %v on %s", sw.Name, sh.Shard,
					sh.Recovering, sh.Holder))
			}
		}
	}
	if r.Level == OK {
		return ok("all shards of %d swarms are served", len(f.State.Swarms))
	}
	r.Summary, r.Cure = "not served: "+several(len(r.Details), "shard", "shards"), "exoswarm swarm explain NAME"
	return r
}

// records reports swarms whose record this version cannot read. No agent of this version serves
// them.
func records(f *Facts) Result {
	var bad []string
	for _, sw := range f.State.Swarms {
		// The name of such a swarm is its id if the record does not tell it.
		if sw.Error != "" {
			bad = append(bad, sw.Name+": "+sw.Error)
		}
	}
	return finding(Failed, bad, strconv.Itoa(len(bad))+" records of swarms cannot be read",
		"use the version that wrote them, or delete these swarms", "all records of swarms can be read")
}

// tiersFull returns the fullest tier of all agents, judged by level. A full tier moves pages down;
// the last tier has nowhere to move them.
func tiersFull(f *Facts) Result {
	worst := Result{Level: OK, Summary: "no tier is near its capacity"}
	n := samples(f, "exoswarm_swarm_tier_fill_ratio", func(agent string, s jobs.Sample) {
		r := level(s.Value, fmt.Sprintf("tier %s of %s is %.0f %% full", s.Labels["tier"], agent, 100*s.Value),
			"add a tier or capacity (--tier), or delete swarms")
		if r.Level.rank() < worst.Level.rank() {
			worst = r
		}
	})
	if n == 0 {
		return Result{Level: Skip, Summary: "no GPU agent told of its tiers"}
	}
	return worst
}

// tierFailures warns of tiers with failed operations since the start of their agent. A tier that
// fails is not used until a probe succeeds, so swarms may still be served.
func tierFailures(f *Facts) Result {
	var bad []string
	n := samples(f, "exoswarm_swarm_tier_failures_total", func(agent string, s jobs.Sample) {
		if s.Value > 0 {
			bad = append(bad, fmt.Sprintf("%s, tier %s: %.0f", agent, s.Labels["tier"], s.Value))
		}
	})
	switch {
	case len(bad) > 0:
		return Result{
			Level: Warn, Summary: "reads, writes or moves of a tier have failed", Details: bad,
			Cure: "check the disk of the tier (dmesg, smartctl) and the agent's log",
		}
	case n == 0:
		return Result{Level: Skip, Summary: "no GPU agent told of its tiers"}
	}
	return ok("no disk of a tier has failed")
}
