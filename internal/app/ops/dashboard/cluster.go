package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Cluster answers what the pages ask. Observe makes one. All methods are safe for
// concurrent use.
//
// State, Wait and History read memory. The other methods ask the cluster: the server calls them at
// most once per question and lifetime of an answer, however many browsers ask (see answers).
type Cluster interface {
	// State returns the newest state. It is never nil and must not be changed.
	State() *cluster.State
	// Wait returns the newest state as soon as its Frame is above after.
	Wait(ctx context.Context, after uint64) (*cluster.State, error)
	// Watched reports that somebody watches, until the caller calls done. Agents report telemetry
	// every second meanwhile.
	Watched() (done func())
	// History returns the named series from a time on.
	History(names []string, from time.Time) cluster.History

	// Jobs lists at most limit jobs of a pool that are not over, oldest first. With over it lists
	// jobs of all pools that are over, newest first.
	Jobs(ctx context.Context, pool string, over bool, limit int) ([]cluster.JobView, error)
	// Job returns one job. It fails with jobs.ErrNotFound.
	Job(ctx context.Context, id string) (cluster.JobView, error)
	// JobLogs returns the lines that a job has logged, oldest first.
	JobLogs(ctx context.Context, id string) ([]jobs.LogLines, error)
	// ExplainJob returns why a job does not progress.
	ExplainJob(ctx context.Context, id string) (doctor.Reason, error)
	// Dead lists dead letters of a pool (empty: of all), oldest first.
	Dead(ctx context.Context, pool string, limit int) ([]jobs.DeadLetter, error)

	// Detectors lists the detectors that last, by name.
	Detectors(ctx context.Context) ([]detectors.View, error)
	// Detector returns a detector. It fails with jobs.ErrNotFound.
	Detector(ctx context.Context, name string) (detectors.View, error)
	// ExplainDetector returns why a detector does not progress.
	ExplainDetector(ctx context.Context, name string) (doctor.Reason, error)

	// Decisions returns answers of a shard of a swarm before a number, or with 0 the newest, newest
	// first.
	Decisions(ctx context.Context, swarmID string, shard int, before uint64, limit int) ([]cluster.Decision, error)
	// GroupDecisions returns answers for a group, with the rows of the group alone.
	GroupDecisions(ctx context.Context, swarmID string, shard, group int, before uint64, limit int) (
		cluster.GroupDecisions, error)
	// Entities returns up to limit entities of a swarm whose names have a text, or the nearest
	// ones.
	Entities(ctx context.Context, swarmID, text string, limit int) (entities.Page, error)
	// Entity returns the last rows of a group of a swarm, with what was expected.
	Entity(ctx context.Context, swarmID string, group int) (cluster.EntityView, error)
	// Observed returns the last observations of an agent of a swarm whose agents are addressed.
	Observed(ctx context.Context, swarmID string, agent uint32, limit int) (cluster.ObservedAgent, error)
	// Heat returns a variable of the agents of a swarm as at most size times size cells.
	Heat(ctx context.Context, swarmID, variable, value string, size int) (cluster.Heat, error)
	// PageMaps returns where the pages of a swarm are, as at most size times size cells.
	PageMaps(ctx context.Context, swarmID string, size int) (cluster.PageMaps, error)
	// Timeline returns the stages of the last batches of a GPU agent.
	Timeline(ctx context.Context, agent string, seconds int) (cluster.Timeline, error)
	// ExplainSwarm returns why a swarm does not progress.
	ExplainSwarm(ctx context.Context, name string) (doctor.Reason, error)
}

// Observe returns the cluster that a connection reaches. Both stay the caller's.
func Observe(w *cluster.Watcher, c *natsq.Conn) Cluster {
	return &observed{Watcher: w, conn: c, detectors: detectors.New(c), entities: entities.NewCache(c.Swarms)}
}

// observed implements Cluster: the watcher polls the cluster, and other packages answer questions
// about one job, swarm or detector.
type observed struct {
	*cluster.Watcher
	conn      *natsq.Conn
	detectors *detectors.Detectors
	entities  *entities.Cache // of the swarms that were searched last
}

func (o *observed) ExplainJob(ctx context.Context, id string) (doctor.Reason, error) {
	return doctor.ExplainJob(ctx, o.conn, id)
}

func (o *observed) ExplainSwarm(ctx context.Context, id string) (doctor.Reason, error) {
	return doctor.ExplainSwarm(ctx, o.conn, id)
}

func (o *observed) ExplainDetector(ctx context.Context, name string) (doctor.Reason, error) {
	return detectors.Explain(ctx, o.conn, name)
}

func (o *observed) Detectors(ctx context.Context) ([]detectors.View, error) {
	return o.detectors.Views(ctx)
}

func (o *observed) Detector(ctx context.Context, name string) (detectors.View, error) {
	return o.detectors.View(ctx, name)
}

// Entity names the entity too: as the dictionary of its swarm does, or as an incident does.
func (o *observed) Entity(ctx context.Context, swarm string, group int) (cluster.EntityView, error) {
	v, err := o.Watcher.Entity(ctx, swarm, group)
	if err != nil {
		return v, err
	}
	record, err := o.conn.Swarms.Swarm(ctx, v.Swarm)
	if err != nil {
		return v, fmt.Errorf("swarm %s: %w", v.Swarm, err)
	}
	if d, err := o.entities.Directory(ctx, record); err == nil {
		v.Entity = d.Name(group)
	}
	for _, in := range o.State().Incidents {
		if v.Entity == "" && in.Swarm == v.Swarm && int(in.Group) == group {
			v.Entity = in.Entity
		}
	}
	v.Entity = cmp.Or(v.Entity, fmt.Sprintf("group %d", group))
	return v, nil
}

func (o *observed) Entities(ctx context.Context, swarm, text string, limit int) (entities.Page, error) {
	record, err := o.conn.Swarms.Swarm(ctx, swarm)
	if err != nil {
		return entities.Page{}, fmt.Errorf("swarm %s: %w", swarm, err)
	}
	d, err := o.entities.Directory(ctx, record)
	if err != nil { // its specification has no key
		return entities.Page{}, fmt.Errorf("%w: %w", jobs.ErrNotFound, err)
	}
	return d.Search(text, limit), nil
}
