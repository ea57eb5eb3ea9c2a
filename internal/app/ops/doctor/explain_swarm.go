package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// SwarmFacts are what is known about one swarm and the cluster around it.
type SwarmFacts struct {
	Name   string
	Now    time.Time
	Found  bool
	Ending bool
	Error  string // why its record cannot be read
	Owner  string // the job that feeds it; empty: anybody does
	Shards []ShardFacts
	Agents []jobs.Agent
	// Rejected is the message of the last answer where it was an error.
	Rejected string
	Servers  ServerFacts
}

// ShardFacts are what is known about one shard of a swarm.
type ShardFacts struct {
	Shard      int
	Holder     string // empty: none
	Entries    uint64 // the last entry of its log
	Answered   uint64 // the last one with an answer
	Rate       float64
	Recovering *jobs.Recovery
	LostHolder string
	LostSince  time.Time
	// Leaderless names the log of the shard that has no leader.
	Leaderless string
}

func (s ShardFacts) pending() uint64 { return s.Entries - min(s.Answered, s.Entries) }

// SwarmReason returns why a swarm does not progress: the cause of the first shard that is held up,
// and of the swarm where none is.
func SwarmReason(f SwarmFacts) Reason {
	if r, ok := f.Servers.trouble("KV_EXO_LEASES", "KV_EXO_SWARMS"); ok {
		return r
	}
	switch {
	case !f.Found:
		return Reason{
			Cause: NoSwarm, Stuck: true, Sentence: fmt.Sprintf("there is no swarm %s", f.Name),
			Cure: "exoswarm swarm list, or exoswarm swarm create -f SPEC",
		}
	case f.Error != "":
		return Reason{
			Cause: BadRecord, Stuck: true, Sentence: fmt.Sprintf("the record of swarm %s cannot be read", f.Name),
			Evidence: []string{f.Error}, Cure: "use the version that wrote it, or delete the swarm",
		}
	case f.Ending:
		return Reason{
			Cause: Ending, Sentence: fmt.Sprintf("swarm %s is being removed", f.Name),
			Cure: "none needed; exoswarm swarm delete finishes an interrupted removal",
		}
	}
	for _, check := range []func(SwarmFacts, ShardFacts) (Reason, bool){
		leaderless, unserved, replaying, device,
		stalled,
	} {
		for _, s := range f.Shards {
			if r, ok := check(f, s); ok {
				if len(f.Shards) > 1 {
					r.Sentence = fmt.Sprintf("shard %d of %d: %s", s.Shard, len(f.Shards), r.Sentence)
				}
				return r
			}
		}
	}
	return idle(f)
}

func leaderless(_ SwarmFacts, s ShardFacts) (Reason, bool) {
	if s.Leaderless == "" {
		return Reason{}, false
	}
	return Reason{
		Cause: NoLeader, Stuck: true, Sentence: fmt.Sprintf("its log %s has no leader", s.Leaderless),
		Evidence: []string{"a majority of the replicas of the stream is gone"},
		Cure:     "start the NATS servers that are missing",
	}, true
}

func unserved(f SwarmFacts, s ShardFacts) (Reason, bool) {
	if s.Holder != "" {
		return Reason{}, false
	}
	gpu, full, draining := 0, 0, 0
	var evidence []string
	for _, a := range f.Agents {
		if a.Pool != jobs.PoolGPU || a.Lost != nil {
			continue
		}
		gpu++
		switch {
		case a.State == "draining":
			draining++
		case a.State == "full" || a.MaxShards > 0 && a.Running-a.Parked >= a.MaxShards:
			full++
		}
		if len(evidence) < 5 {
			evidence = append(evidence, fmt.Sprintf("%s: %s, holds %s", a.Name, a.State,
				several(a.Running, "shard", "shards")))
		}
	}
	lost := ""
	if s.LostHolder != "" {
		lost = fmt.Sprintf("%s held it until %s", s.LostHolder, s.LostSince.UTC().Format(time.RFC3339))
		evidence = append(evidence, lost)
	}
	switch {
	case gpu == 0 && lost != "":
		return Reason{
			Cause: HolderLost, Stuck: true,
			Sentence: fmt.Sprintf("GPU agent %s was lost, and no other GPU agent is connected", s.LostHolder),
			Evidence: evidence, Cure: "start a GPU agent: it takes the shard over and replays its log",
		}, true
	case gpu == 0:
		return Reason{
			Cause: NoGPUAgent, Stuck: true, Sentence: "no GPU agent is connected",
			Evidence: evidence, Cure: "start one: gpuagent --nats URL --data-dir DIR",
		}, true
	case full+draining == gpu:
		return Reason{
			Cause: GPUFull, Stuck: true, Sentence: "no GPU agent has room for the shard", Evidence: evidence,
			Cure: "start another GPU agent, delete a swarm, or raise --max-shards or --page-memory",
		}, true
	case lost != "":
		return Reason{
			Cause: HolderLost, Sentence: fmt.Sprintf("GPU agent %s was lost, and its lease has not ended",
				s.LostHolder),
			Evidence: evidence, Cure: "none needed: another agent takes the shard over when the lease ends",
		}, true
	}
	return Reason{
		Cause: Unserved, Sentence: "no GPU agent holds the shard yet", Evidence: evidence,
		Cure: "if this lasts for more than some seconds, see the log of the GPU agents",
	}, true
}

func replaying(_ SwarmFacts, s ShardFacts) (Reason, bool) {
	r := s.Recovering
	if r == nil {
		return Reason{}, false
	}
	percent, left := 100.0, "soon"
	if r.Of > 0 {
		percent = 100 * float64(min(r.Entry, r.Of)) / float64(r.Of)
	}
	if r.Rate > 0 {
		rest := time.Duration(float64(r.Of-min(r.Entry, r.Of)) / r.Rate * float64(time.Second))
		left = "in about " + max(rest, time.Second).Round(time.Second).String()
	}
	return Reason{
		Cause:    Replaying,
		Sentence: fmt.Sprintf("%s replays the log: %.0f %%, done %s", s.Holder, percent, left),
		Evidence: []string{fmt.Sprintf("entry %d of %d, %.0f entries/s", r.Entry, r.Of, r.Rate)},
		Cure:     "none needed; checkpoints make the next replay shorter (gpuagent --data-dir)",
	}, true
}

func device(f SwarmFacts, s ShardFacts) (Reason, bool) {
	for _, a := range f.Agents {
		if a.Name != s.Holder || a.Lost != nil {
			continue
		}
		switch {
		case strings.Contains(a.State, "emergency"):
			return Reason{
				Cause: DeviceFail, Stuck: true, Sentence: fmt.Sprintf("the device of %s has failed", a.Name),
				Evidence: []string{"its state is " + a.State},
				Cure: "see its /readyz and log; replace the device, or stop " +
					"the agent so that another one takes the shard over",
			}, true
		case s.pending() > 0 && (strings.Contains(a.State, "reduced") || strings.Contains(a.State, "host")):
			return Reason{
				Cause: Degraded, Sentence: fmt.Sprintf("the device of %s is degraded, so entries take longer", a.Name),
				Evidence: []string{"its state is " + a.State, fmt.Sprintf("%d entries wait", s.pending())},
				Cure:     "see the agent's log for the errors of its device",
			}, true
		}
	}
	return Reason{}, false
}

func stalled(_ SwarmFacts, s ShardFacts) (Reason, bool) {
	if s.pending() == 0 || s.Rate > 0 {
		return Reason{}, false
	}
	return Reason{
		Cause: Stalled, Sentence: fmt.Sprintf("%s has not answered %s in the last second", s.Holder,
			several(int(s.pending()), "entry", "entries")),
		Evidence: []string{fmt.Sprintf("entry %d of %d is answered", s.Answered, s.Entries)},
		Cure:     "a long tick may take that long; if it stays so, see the log of " + s.Holder,
	}, true
}

// idle is for a swarm whose shards are all served.
func idle(f SwarmFacts) Reason {
	var entries, pending uint64
	rate := 0.0
	for _, s := range f.Shards {
		entries, pending, rate = entries+s.Entries, pending+s.pending(), rate+s.Rate
	}
	switch {
	case f.Rejected != "":
		return Reason{
			Cause: Rejected, Stuck: true, Sentence: "its last entry was rejected: " + f.Rejected,
			Evidence: []string{fmt.Sprintf("%d entries are answered", entries)}, Cure: "repair the sender",
		}
	case pending > 0 || rate > 0:
		return Reason{
			Cause: Serving, Sentence: fmt.Sprintf("it is served: %.0f entries/s, %s", rate,
				several(int(pending), "entry waits", "entries wait")),
		}
	case f.Owner != "":
		return Reason{
			Cause: OwnerWaits, Sentence: fmt.Sprintf("all %d entries are answered: job %s has not sent more", entries,
				f.Owner),
			Cure: "exoswarm job explain " + f.Owner,
		}
	}
	return Reason{
		Cause: Idle, Sentence: fmt.Sprintf("all %d entries are answered: nobody sends more", entries),
		Cure: fmt.Sprintf("exoswarm swarm observe %s, or exoswarm swarm tick %[1]s", f.Name),
	}
}
