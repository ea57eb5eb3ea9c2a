package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// attempt executes the job, without the clean-up. Every mistake that can be found without a row is
// found before the swarm is announced, so that a wrong specification takes no place on a GPU.
func (s *stream) attempt(ctx context.Context, job jobs.Job) (*StreamResult, error) {
	spec := &s.spec
	if err := json.Unmarshal(job.Spec, spec); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: %v", job.ID, err)
	}
	if err := spec.complete(job.ID); err != nil {
		return nil, err
	}
	held := s.agent.Files.Hold(ctx, "manifest "+spec.Manifest)
	defer held.Release()
	series, err := s.agent.manifest(ctx, spec.Manifest, held)
	if err != nil {
		return nil, err
	}
	s.series = series
	if most := spec.Columns.Entities(); most > 0 {
		if spec.Evict != nil {
			s.evict = newRunEviction(*spec.Evict, most)
			most = swarms.MaxGroups // the memory of the job is the bound
		}
		s.entities = feed.NewEntities(most, held)
		s.names = s.entities
	} else {
		s.counts.summary = make([]SeriesSummary, len(series))
	}
	remotes := 0
	for i, src := range series { // every file must be readable before the first row goes out
		if s.entities == nil {
			s.counts.summary[i].Name = src.Name
		}
		remove, err := s.agent.sourceResources().Check(ctx, job.ID, i, src, spec.Columns)
		if err != nil {
			return nil, err
		}
		if remove != nil {
			s.remove = append(s.remove, remove)
		}
		if source.IsRemote(src.URI) {
			remotes++
		}
		if remotes > maxRemote {
			return nil, jobs.Errorf(
				jobs.CodeInvalid, "job %s: it has more than %d sources that are not files: make several jobs of it",
				job.ID, maxRemote,
			)
		}
	}
	if s.sinks, err = s.openSinks(job.ID, *spec); err != nil {
		return nil, err
	}
	for _, t := range s.sinks {
		defer t.Close()
	}
	if s.record, err = s.claim(ctx); err != nil {
		return nil, err
	}
	s.logs = s.openShards()
	if s.evict != nil {
		if s.evict.states, err = statelog.OpenStates(ctx, s.log(feed.ClusterLogs.States, swarms.In)); err != nil {
			return nil, err
		}
	}
	return s.run(ctx)
}

// claim returns the record of the job's swarm, which an earlier attempt may have made. It refuses a
// swarm of another owner.
func (s *stream) claim(ctx context.Context) (swarms.Swarm, error) {
	shards, err := s.shardCount("job "+s.id, s.groups())
	if err != nil {
		return swarms.Swarm{}, err
	}
	for { // mostly there is no record, so it is stored first: the queue is slow to say for sure that there is none
		record := swarms.Swarm{
			Version: jobs.Version, ID: s.id, Nonce: swarms.NewNonce(), Owner: s.id, Name: s.spec.Name,
			Spec:   s.spec.Spec,
			Groups: s.groups(), Shards: shards, Created: time.Now().UTC(),
		}
		if err := s.agent.Queue.CreateSwarm(ctx, record); !errors.Is(err, jobs.ErrExists) {
			return record, err
		}
		record, err := s.agent.Queue.Swarm(ctx, s.id)
		switch {
		case errors.Is(err, jobs.ErrNotFound): // it was removed meanwhile
		case err != nil:
			return swarms.Swarm{}, err
		case record.OwnerJob() != s.id:
			return swarms.Swarm{}, jobs.Errorf(
				jobs.CodeInvalid,
				"job %s: there is a swarm %s that is not its own, and is left as it is: submit the job with another id",
				s.id, s.id,
			)
		case !record.Ending:
			return record, nil
		}
	}
}

func (s *stream) groups() int {
	if s.entities != nil {
		return s.spec.Columns.Entities()
	}
	return len(s.series)
}

// gone reports whether the job's swarm was removed: by another attempt that has ended the job, or
// by a user.
func (s *stream) gone(ctx context.Context) bool {
	if s.record.ID == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	now, err := s.agent.Queue.Swarm(ctx, s.id)
	return errors.Is(err, jobs.ErrNotFound) || err == nil && (now.Ending || !now.Same(s.record))
}

// cleanPatience bounds the wait for the server at the end of an attempt. What is not removed then
// is an orphan, which is swept later.
const cleanPatience = 30 * time.Second

// clean removes the swarm of a job that has ended, and what the attempt keeps elsewhere. If the
// swarm was removed already, clean removes only what is left of it, since another attempt may have
// made the next one. It runs also after the end of ctx, for at most cleanPatience, and logs its
// failures.
func (s *stream) clean(ctx context.Context, gone bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	steps := []func(context.Context) error{func(ctx context.Context) error {
		if s.record.ID != "" {
			return s.agent.Queue.RemoveSwarm(ctx, s.record)
		}
		record, err := s.agent.Queue.Swarm(ctx, s.id) // made by an earlier attempt
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return nil
		case err != nil:
			return err
		case record.OwnerJob() == s.id:
			return s.agent.Queue.RemoveSwarm(ctx, record)
		}
		return nil
	}}
	if !gone {
		steps = append(steps, s.remove...)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.agent.Logger.Warn("cleaning up after a stream", "job", s.id, "error", err)
		}
	}
}
