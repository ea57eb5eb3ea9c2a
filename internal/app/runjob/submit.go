package runjob

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

type submission struct {
	conn    *natsq.Conn
	carrier carrier
	id      string
	spec    *swarm.Spec
	input   *input
	record  runRecord
	live    bool // rows are sent to this process as they are decided
	objects *objects
}

// submit hands the inputs to the carrier, stores the manifest of the series and the record of the
// run as objects, and submits the job, which it returns.
func (s *submission) submit(ctx context.Context, o *Options) (jobs.Job, error) {
	manifest := make([]source.Series, len(s.input.files))
	for i, in := range s.input.files {
		uri, err := s.carrier.source(ctx, i, in)
		if err != nil {
			return jobs.Job{}, err
		}
		manifest[i] = source.Series{Name: in.Name, URI: uri, Format: in.Format}
	}
	manifest = append(manifest, s.input.others...)
	slices.SortStableFunc(manifest, func(a, b source.Series) int { return cmp.Compare(a.Name, b.Name) })
	if err := putJSON(ctx, s.conn, "manifest-"+s.id, s.id, manifest); err != nil {
		return jobs.Job{}, err
	}
	if err := putJSON(ctx, s.conn, "run-"+s.id, s.id, s.record); err != nil {
		return jobs.Job{}, err
	}
	specJSON, err := json.Marshal(s.spec)
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the spec: %w", err)
	}
	// The agent sorts no rows: it must know whether the swarm takes late ones.
	columns := rows.ColumnSpec{
		Timestamp: s.spec.Timestamp, Features: s.spec.Features,
		AnyOrder: s.spec.Observations.Late != swarm.Reject,
		Key:      s.spec.Key, MaxEntities: s.spec.MaxEntities,
	}
	if !s.spec.CSV.IsZero() {
		columns.CSV = &s.spec.CSV
	}
	output, rejects, incidents := s.carrier.sinks()
	if s.record.NoOutput {
		output = ""
	}
	if s.record.Incidents == "" {
		incidents = ""
	}
	evict, err := evictionOf(s.spec)
	if err != nil {
		return jobs.Job{}, err
	}
	limits, err := s.spec.FleetLimits()
	if err != nil {
		return jobs.Job{}, err
	}
	streamJSON, err := json.Marshal(cpuagents.StreamSpec{
		Name: s.spec.Name, Spec: specJSON, Candidates: s.spec.Vote.Candidates,
		Columns: columns,
		Drops:   s.spec.Observations.Drops(), Learning: s.spec.Learning(),
		Explain: s.spec.Explain, Fleet: (*explain.FleetLimits)(limits),
		Anomalies: incidents, AnomaliesFormat: s.record.Incidents,
		Manifest: "object:manifest-" + s.id, Output: output, Rejects: rejects, Summary: "object:summary-" + s.id,
		BatchRows: o.BatchRows, Strict: o.Strict, OutputFormat: s.record.Format, Webhook: o.Webhook, Sinks: o.Sinks,
		Live: s.live, Evict: evict,
	})
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the job: %w", err)
	}
	job := jobs.Job{
		Version: jobs.Version, ID: s.id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: streamJSON,
		Submitted: time.Now().UTC(), Waited: !o.Detach,
	}
	s.objects.at = submitting
	return job, s.conn.Queue.Submit(ctx, job)
}

// evictionOf returns the eviction of a run; nil if its entities keep their groups.
func evictionOf(spec *swarm.Spec) (*cpuagents.EvictSpec, error) {
	if spec.EvictAfter == 0 {
		return nil, nil
	}
	bound, err := spec.Bind()
	if err != nil {
		return nil, fmt.Errorf("the state of a group: %w", err)
	}
	agent, group := bound.StateBytes()
	return &cpuagents.EvictSpec{
		AfterSeconds: time.Duration(spec.EvictAfter).Seconds(), StateBytes: agent*spec.AgentsPerGroup + group,
	}, nil
}
