package dashboard

import (
	"context"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
	"github.com/exoswarm/exoswarm/jobs"
)

// Cluster answers what the pages ask. *cluster.Watcher implements it. All methods are safe for
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

	// Jobs lists at most limit jobs of a pool that are not over, oldest first, or with over those
	// of all pools that are, newest first.
	Jobs(ctx context.Context, pool string, over bool, limit int) ([]cluster.JobView, error)
	// Job returns one job. It fails with jobs.ErrNotFound.
	Job(ctx context.Context, id string) (cluster.JobView, error)
	// JobLogs returns the lines that a job has logged, oldest first.
	JobLogs(ctx context.Context, id string) ([]jobs.LogLines, error)
	// ExplainJob tells why a job does not progress.
	ExplainJob(ctx context.Context, id string) (explain.Reason, error)
	// Dead lists dead letters of a pool (empty: of all), oldest first.
	Dead(ctx context.Context, pool string, limit int) ([]jobs.DeadLetter, error)

	// Detectors lists the detectors that last, by name.
	Detectors(ctx context.Context) ([]cluster.DetectorView, error)
	// Detector returns one of them. It fails with jobs.ErrNotFound.
	Detector(ctx context.Context, name string) (cluster.DetectorView, error)
	// ExplainDetector tells why a detector does not progress.
	ExplainDetector(ctx context.Context, name string) (explain.Reason, error)

	// Decisions returns answers of a shard of a swarm before a number, or with 0 the newest, newest
	// first.
	Decisions(ctx context.Context, swarmID string, shard int, before uint64, limit int) ([]cluster.Decision, error)
	// GroupDecisions returns those of a group, with their rows for it alone.
	GroupDecisions(ctx context.Context, swarmID string, shard, group int, before uint64, limit int) (
		cluster.GroupDecisions, error)
	// Entities returns up to limit entities of a swarm whose names have a text, or the nearest
	// ones.
	Entities(ctx context.Context, swarmID, text string, limit int) (entities.Page, error)
	// Heat returns a variable of the agents of a swarm as at most size times size cells.
	Heat(ctx context.Context, swarmID, variable, value string, size int) (cluster.Heat, error)
	// PageMaps returns where the pages of a swarm are, as at most size times size cells.
	PageMaps(ctx context.Context, swarmID string, size int) (cluster.PageMaps, error)
	// Timeline returns the stages of the last batches of a GPU agent.
	Timeline(ctx context.Context, agent string, seconds int) (cluster.Timeline, error)
	// ExplainSwarm tells why a swarm does not progress.
	ExplainSwarm(ctx context.Context, name string) (explain.Reason, error)
}
