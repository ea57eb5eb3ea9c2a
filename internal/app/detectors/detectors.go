// Package detectors creates, lists, pauses and deletes the detectors that last on a cluster.
//
// A detector is a schedule that is jobs.Always: the CPU agents keep one job of kind
// cpuagents.KindDetector, and a swarm with the name of the detector has its state.
package detectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// Detectors manages the detectors of a cluster. Its methods may be called from several goroutines.
type Detectors struct{ conn *natsq.Conn }

// New returns the detectors that a connection reaches. The connection stays the caller's.
func New(c *natsq.Conn) *Detectors { return &Detectors{c} }

// The states of a detector.
const (
	StateRunning = "running" // an agent reads its sources
	StateWaiting = "waiting" // for a CPU agent, or for the next attempt after a failure
	StatePaused  = "paused"
	StatePausing = "pausing" // the agent finishes what it has read
	StateFailed  = "failed"  // until it is resumed
)

// Detector is a detector with its state.
type Detector struct {
	Name    string                      `json:"name"`
	State   string                      `json:"state"`
	Job     string                      `json:"job,omitempty"` // the last one; empty if there is none yet
	Worker  string                      `json:"worker,omitempty"`
	Since   time.Time                   `json:"since,omitzero"` // of the attempt, or the end of the last job
	Created time.Time                   `json:"created,omitzero"`
	Error   string                      `json:"error,omitempty"` // of the last job, or why it waits
	Counts  *cpuagents.DetectorProgress `json:"counts,omitempty"`
	Spec    cpuagents.DetectorSpec      `json:"-"`
}

// Spec makes the specification of a detector from the specification of its swarm, which it changes:
// late rows are dropped where they would be rejected, since a source cannot be sorted.
func Spec(of *swarm.Spec, sources []source.Series, sinks []sink.Spec, hook *sink.WebhookSpec,
) (s cpuagents.DetectorSpec, err error) {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "detector %s: %s", of.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case of.Topology().ByAgent:
		return s, bad("its swarm addresses agents, and rows are for groups: make it with exoswarm swarm create")
	case of.GroupCount != 0:
		return s, bad("groups: %d: a detector has max_entities of them, or one for each source: leave groups out",
			of.GroupCount)
	}
	if of.Observations.Late == swarm.Reject {
		of.Observations.Late = swarm.Drop
	}
	limits, err := of.FleetLimits()
	if err != nil {
		return s, fmt.Errorf("detector %s: %w", of.Name, err)
	}
	s = cpuagents.DetectorSpec{
		Name: of.Name, Explain: of.Explain, Fleet: (*explain.FleetLimits)(limits), Candidates: of.Vote.Candidates,
		Sources: sources, Sinks: sinks, Webhook: hook,
		Columns: rows.ColumnSpec{
			Timestamp: of.Timestamp, Features: of.Features, AnyOrder: true, Key: of.Key, MaxEntities: of.MaxEntities,
		},
	}
	if !of.CSV.IsZero() {
		s.Columns.CSV = &of.CSV
	}
	if of.EvictAfter > 0 {
		bound, err := of.Bind()
		if err != nil {
			return s, fmt.Errorf("detector %s: %w", of.Name, err)
		}
		agent, group := bound.StateBytes()
		s.Evict = &cpuagents.EvictSpec{
			AfterSeconds: time.Duration(of.EvictAfter).Seconds(), StateBytes: agent*of.AgentsPerGroup + group,
		}
	}
	if err := s.Check(); err != nil {
		return s, err
	}
	if n := s.Groups(); of.Shards > n {
		return s, bad("shards: %d, and its swarm has %d groups, one for each source or entity: use at most as many "+
			"shards", of.Shards, n)
	}
	of.GroupCount = s.Groups()
	if s.Spec, err = json.Marshal(of); err != nil {
		return s, fmt.Errorf("encode the spec: %w", err)
	}
	return s, nil
}

// jobAttempts is the number of attempts of a job of a detector. Each end of an agent uses up an
// attempt, so it is large.
const jobAttempts = 100

// jobResultTTL is how long the result of a job of a detector is kept, in seconds. While it is kept,
// a detector whose job failed for good does not start another job.
const jobResultTTL = 7 * 24 * 3600

// Create stores a detector. The CPU agents start its job within seconds. It fails with
// jobs.ErrExists if there is a detector or a schedule of that name, and with jobs.CodeInvalid if
// there is a swarm of that name.
func (d *Detectors) Create(ctx context.Context, spec cpuagents.DetectorSpec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	switch _, err := d.conn.Swarms.Swarm(ctx, spec.Name); {
	case err == nil:
		return jobs.Errorf(jobs.CodeInvalid, "detector %s: there is a swarm of that name: choose another one",
			spec.Name)
	case !errors.Is(err, jobs.ErrNotFound):
		return err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the detector: %w", err)
	}
	return d.conn.Schedules.AddSchedule(ctx, jobs.Schedule{
		Version: jobs.Version, Name: spec.Name, Cron: jobs.Always,
		Job: jobs.Job{
			Pool: jobs.PoolCPU, Kind: cpuagents.KindDetector, Spec: data, MaxAttempts: jobAttempts,
			ResultTTL: jobResultTTL,
		},
	})
}

// List returns all detectors by name.
func (d *Detectors) List(ctx context.Context) ([]Detector, error) {
	all, err := d.conn.Schedules.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	var list []Detector
	for _, s := range all {
		if s.Cron != jobs.Always || s.Job.Kind != cpuagents.KindDetector {
			continue
		}
		one, err := d.describe(ctx, s)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Detector) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Get returns a detector; jobs.ErrNotFound if there is none of that name.
func (d *Detectors) Get(ctx context.Context, name string) (Detector, error) {
	all, err := d.conn.Schedules.Schedules(ctx)
	if err != nil {
		return Detector{}, err
	}
	for _, s := range all {
		if s.Name == name && s.Cron == jobs.Always && s.Job.Kind == cpuagents.KindDetector {
			return d.describe(ctx, s)
		}
	}
	return Detector{}, fmt.Errorf("detector %s: %w: exoswarm detect list shows those there are", name,
		jobs.ErrNotFound)
}

func (d *Detectors) describe(ctx context.Context, s jobs.ScheduleState) (one Detector, err error) {
	one = Detector{
		Name: s.Name, State: StateWaiting, Job: s.LastJob, Since: s.Last, Created: s.From, Error: s.Error,
	}
	if s.Error == "" {
		if err := json.Unmarshal(s.Job.Spec, &one.Spec); err != nil {
			one.Error = err.Error()
		}
	}
	if record, err := d.conn.Swarms.Swarm(ctx, s.Name); err == nil {
		one.Created = record.Created
	}
	if s.Paused {
		one.State = StatePaused
	}
	if one.Job == "" {
		return one, nil
	}
	r, err := d.conn.Results.Lookup(ctx, one.Job)
	switch {
	case err == nil:
		d.ended(&one, s, r)
		return one, nil
	case !errors.Is(err, jobs.ErrNotFound):
		return one, err
	}
	j, err := d.conn.Queue.Locate(ctx, one.Job)
	if errors.Is(err, jobs.ErrNotFound) { // it moves
		return one, nil
	}
	if err != nil {
		return one, err
	}
	if one.Error == "" {
		one.Error = j.Note
	}
	if j.State == queue.StateRunning {
		one.State = StateRunning
	}
	if s.Paused {
		one.State = StatePausing
	}
	if j.Running != nil {
		one.Worker, one.Since = j.Running.Worker, j.Running.Since
		one.Counts = countsOf(j.Running.Progress)
	}
	return one, nil
}

// ended describes a detector whose last job is over.
func (d *Detectors) ended(one *Detector, s jobs.ScheduleState, r jobs.Result) {
	one.Since, one.Worker = r.Finished, r.Worker
	if r.Status == jobs.Done {
		one.Counts = countsOf(r.Output)
		return
	}
	if r.Error == nil {
		return
	}
	one.Error = r.Error.Message
	if jobs.EndsSchedule(r) && !s.From.After(r.Finished) && !s.Paused {
		one.State = StateFailed
	}
}

// countsOf decodes the progress of a job; nil if there is none.
func countsOf(data json.RawMessage) *cpuagents.DetectorProgress {
	var p cpuagents.DetectorProgress
	if len(data) == 0 || json.Unmarshal(data, &p) != nil {
		return nil
	}
	return &p
}

// lookEvery is the poll interval of a call that waits.
const lookEvery = 200 * time.Millisecond

// Pause stops the reading, and returns when all rows that were read are decided and the sinks have
// the decisions. Offsets and state stay. If ctx ends first, the detector still stops, as soon as
// its agent can.
func (d *Detectors) Pause(ctx context.Context, name string) error {
	one, err := d.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := d.conn.Schedules.PauseSchedule(ctx, name, true); err != nil {
		return err
	}
	asked := ""
	for {
		if one, err = d.Get(ctx, name); err != nil || one.Job == "" {
			return err
		}
		over, err := d.over(ctx, one.Job)
		if err != nil || over {
			return err
		}
		if asked != one.Job { // an agent would do so within seconds
			if err := d.conn.Queue.Cancel(ctx, jobs.Job{ID: one.Job}, true); err != nil {
				return err
			}
			asked = one.Job
		}
		if one.Worker == "" && one.State == StatePausing {
			// No agent has the job: the one that gets it ends it at once.
			return nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *Detectors) over(ctx context.Context, job string) (bool, error) {
	_, err := d.conn.Results.Lookup(ctx, job)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Resume lets a detector continue that is paused or has failed.
func (d *Detectors) Resume(ctx context.Context, name string) error {
	one, err := d.Get(ctx, name)
	if err != nil {
		return err
	}
	if one.State == StateFailed {
		if err := d.conn.Schedules.PauseSchedule(ctx, name, true); err != nil {
			return err
		}
	}
	return d.conn.Schedules.PauseSchedule(ctx, name, false)
}

// Delete removes a detector with its swarm, its positions and its consumers on streams. It pauses
// the detector first, and waits for its job until ctx ends.
func (d *Detectors) Delete(ctx context.Context, name string) error {
	one, err := d.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := d.Pause(ctx, name); err != nil {
		return err
	}
	record, err := d.conn.Swarms.Swarm(ctx, name)
	if err == nil {
		err = d.conn.Swarms.RemoveSwarm(ctx, record)
	}
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	for i, src := range one.Spec.Sources {
		stream, _, ok := strings.Cut(strings.TrimPrefix(src.URI, "nats:"), "/")
		if !ok || !strings.HasPrefix(src.URI, "nats:") || src.NATS != nil && src.NATS.Consumer != "" {
			continue
		}
		err := d.conn.Streams.Unsubscribe(ctx, stream, source.ConsumerName(name, i))
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return fmt.Errorf("detector %s: its consumer: %w", name, err)
		}
	}
	return d.conn.Schedules.RemoveSchedule(ctx, name)
}
