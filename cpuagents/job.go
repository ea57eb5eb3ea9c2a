package cpuagents

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// swarmJob is the common part of an attempt at a stream job and an attempt at a detector job.
type swarmJob struct {
	agent    *Streamer // the view for this job
	id       string
	spec     StreamSpec // of a detector: what a stream job would have
	series   []source.Series
	record   swarms.Swarm  // without an id until the swarm is claimed
	names    rows.Entities // of the groups in the outputs; nil without a key
	progress func(any)
	resumes  bool // a later job sends what the sinks hold at the end of this one
	sinks    []sink.Sink
	// explainer belongs to the goroutine that collects; nil if nobody asks for explanations, incidents
	// or a limit of the fleet.
	explainer *explain.Explainer
}

// shardingOf is the part of the specification of a swarm that a job with several shards needs.
type shardingOf struct {
	Shards         int `json:"shards"`
	AgentsPerGroup int `json:"agents_per_group"`
}

func (s *swarmJob) sharding() (of shardingOf, err error) {
	if len(s.spec.Spec) > 0 {
		if err := json.Unmarshal(s.spec.Spec, &of); err != nil {
			return of, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: spec: %v", s.id, err)
		}
	}
	return of, nil
}

// shardCount returns the shards of a new swarm with some groups for its record. what names the job
// in the error.
func (s *swarmJob) shardCount(what string, groups int) (int, error) {
	of, err := s.sharding()
	if err != nil || of.Shards <= 1 {
		return 0, err
	}
	if of.Shards > min(groups, swarms.MaxShards) {
		return 0, jobs.Errorf(
			jobs.CodeInvalid, "%s: shards: %d, and its swarm has %d groups, one for each series or entity: use at "+
				"most as many shards, and no more than %d", what, of.Shards, groups, swarms.MaxShards,
		)
	}
	return of.Shards, nil
}

func (s *swarmJob) journal(i int) swarms.Log {
	first := 1
	if s.record.ShardCount() > 1 {
		first = journalsOfShards
	}
	return s.log(first+i, swarms.In)
}

func (s *swarmJob) layout() rows.Layout {
	l := s.spec.layout(s.series)
	if s.names != nil {
		l.Entities = s.names
	}
	return l
}

// log returns a log of the job's swarm. The first logs belong to the shards, the logs of journal to
// the sources, and the logs from sinkShard on have the positions of the sinks.
func (s *swarmJob) log(shard int, d swarms.Direction) swarms.Log {
	return s.agent.Queue.Log(s.record.Key(), shard, d)
}

func (s *swarmJob) createLogs(ctx context.Context) error {
	kept, err := swarms.ConsistencyOf(s.spec.Spec)
	if err != nil {
		return err
	}
	for k := range s.record.ShardCount() {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := s.log(k, d).Create(ctx, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// openSinks makes the sinks of a job: its webhook, the sinks of its specification, and the sink of
// its submitter. Their places are the same in every attempt. The caller closes them; after an error
// they are closed.
func (s *swarmJob) openSinks(job string, spec StreamSpec) (sinks []sink.Sink, err error) {
	if len(spec.Sinks) > maxSinks {
		return nil, jobs.Errorf(
			jobs.CodeInvalid, "job %s: it has more than %d sinks: make several jobs of it", job, maxSinks,
		)
	}
	defer func() {
		if err != nil {
			for _, t := range sinks {
				t.Close()
			}
		}
	}()
	if spec.Webhook != nil {
		hook, err := sink.NewWebhook(job, *spec.Webhook, s.layout(), s.agent.Egress, s.agent.Secrets)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, hook)
	}
	resources := s.agent.sinkResources()
	resources.Name, resources.Resumes = spec.Name, s.resumes
	for i, one := range spec.Sinks {
		t, err := resources.New(job, i, one, s.layout())
		if err != nil {
			return sinks, err
		}
		sinks = append(sinks, t)
	}
	if spec.Live { // the last, so that the other sinks keep the places of their positions
		sinks = append(sinks, sink.NewLive(job, s.layout(), s.agent.Queue, s.agent.Logger))
	}
	return sinks, nil
}

func (s *swarmJob) explains() error {
	if !s.spec.Explain && s.spec.Anomalies == "" && s.spec.Fleet == nil {
		return nil
	}
	if f := s.spec.Fleet; f != nil {
		if err := f.Check(); err != nil {
			return jobs.Errorf(jobs.CodeInvalid, "fleet: %v", err)
		}
	}
	s.explainer = explain.New(s.layout(), s.spec.Fleet)
	s.explainer.Late = s.spec.Anomalies != ""
	return nil
}
