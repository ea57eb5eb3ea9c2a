package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// question computes the answer of a route. It may run for several requests at once, and after they
// have ended.
type question func(ctx context.Context, o *Options, p httpapi.Params) (any, error)

// state answers with the newest state, from the bytes that the streams send too.
func (s *Server) state(w http.ResponseWriter, _ *httpapi.Request) error {
	f, err := s.events.current()
	if err != nil {
		return httpapi.Errorf(http.StatusInternalServerError, "%v", err)
	}
	w.Header().Set("Content-Type", httpapi.JSON)
	w.Header().Set("ETag", `"`+strconv.FormatUint(f.state.Frame, 10)+`"`)
	_, _ = w.Write(f.body)
	return nil
}

func (s *Server) who(w http.ResponseWriter, r *httpapi.Request) error {
	name, _ := s.user(r.Request)
	who := Who{User: name, Version: s.o.Version, Started: s.started, Actions: s.o.Actions != nil}
	if s.o.Programs != nil {
		who.Programs = programs.Version
	}
	if who.Actions {
		who.ActionToken = s.actionToken(r.Request)
	}
	httpapi.WriteJSON(w, http.StatusOK, who)
	return nil
}

// list returns s, or an empty slice for nil, so that its JSON is an array.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// history answers with the series of some names, or of all names in the newest state. The past is a
// length and not a time, so that all browsers share an answer.
func history(_ context.Context, o *Options, p httpapi.Params) (any, error) {
	var names []string
	for name := range strings.SplitSeq(p["names"], ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		for name := range o.Cluster.State().Numbers {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return o.Cluster.History(names, time.Now().Add(-time.Duration(p.Int("seconds"))*time.Second)), nil
}

// listJobs answers with the jobs of one pool or of both. Specifications and outputs are left out:
// they may be large, and the page of a job has them.
func listJobs(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	pools := []string{p["pool"]}
	if p["pool"] == "" && p["over"] != "true" {
		pools = []string{string(jobs.PoolCPU), string(jobs.PoolGPU)}
	}
	short := []cluster.JobView{}
	for _, pool := range pools {
		all, err := o.Cluster.Jobs(ctx, pool, p["over"] == "true", p.Int("limit")-len(short))
		if err != nil {
			return nil, err
		}
		short = append(short, all...)
	}
	for i := range short {
		short[i] = withoutSecrets(short[i])
		if short[i].Job != nil {
			short[i].Job.Spec = nil
		}
		if short[i].Result != nil {
			short[i].Result.Output = nil
		}
	}
	return short, nil
}

// checks asks the doctor. Without one it examines the newest state alone.
func checks(ctx context.Context, o *Options, _ httpapi.Params) (any, error) {
	if o.Doctor == nil {
		return doctor.Examine(&doctor.Facts{At: time.Now(), State: o.Cluster.State(), Version: o.Version}), nil
	}
	all, err := o.Doctor(ctx)
	return list(all), err
}

func getJob(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	j, err := o.Cluster.Job(ctx, p["id"])
	return withoutSecrets(j), err
}

func listDead(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	all, err := o.Cluster.Dead(ctx, p["pool"], p.Int("limit"))
	short := slices.Clone(list(all))
	for i := range short {
		short[i].Data = nil // a message with a specification
	}
	return short, err
}

// listSwarms answers with the swarms of the newest state, without their specifications.
func listSwarms(_ context.Context, o *Options, _ httpapi.Params) (any, error) {
	all := slices.Clone(list(o.Cluster.State().Swarms))
	for i := range all {
		all[i].Spec = nil
	}
	return all, nil
}

func getSwarm(_ context.Context, o *Options, p httpapi.Params) (any, error) {
	swarm, err := o.Cluster.State().Swarm(p["name"])
	swarm.Spec = hideSecrets(swarm.Spec)
	return swarm, err
}

func getAgent(_ context.Context, o *Options, p httpapi.Params) (any, error) {
	for _, a := range o.Cluster.State().Agents {
		if a.Name == p["name"] {
			return a, nil
		}
	}
	return nil, fmt.Errorf("agent %q: %w", p["name"], jobs.ErrNotFound)
}

func listDecisions(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	all, err := o.Cluster.Decisions(ctx, id, p.Int("shard"), uint64(p.Int("before")), p.Int("limit"))
	return list(all), err
}

func explainSwarm(ctx context.Context, o *Options, id string, _ httpapi.Params) (any, error) {
	return o.Cluster.ExplainSwarm(ctx, id)
}

func findEntities(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.Entities(ctx, id, p["key"], p.Int("limit"))
}

func getEntity(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.Entity(ctx, id, p.Int("group"))
}

func getObserved(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.Observed(ctx, id, uint32(p.Int("agent")), p.Int("limit"))
}

func heat(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.Heat(ctx, id, p["variable"], p["value"], p.Int("size"))
}

func pageMaps(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.PageMaps(ctx, id, p.Int("size"))
}

func groupDecisions(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	return o.Cluster.GroupDecisions(ctx, id, p.Int("shard"), p.Int("group"), uint64(p.Int("before")), p.Int("limit"))
}

func getEntry(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error) {
	if o.Past == nil {
		return nil, errNoPast
	}
	return o.Past.Entry(ctx, id, p.Int("shard"), uint64(p.Int("entry")), p.Int("group"))
}

func jobLogs(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	lines, err := o.Cluster.JobLogs(ctx, p["id"])
	return list(lines), err
}

func explainJob(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	return o.Cluster.ExplainJob(ctx, p["id"])
}

func listDetectors(ctx context.Context, o *Options, _ httpapi.Params) (any, error) {
	all, err := o.Cluster.Detectors(ctx)
	return list(all), err
}

func getDetector(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	return o.Cluster.Detector(ctx, p["name"])
}

func explainDetector(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	return o.Cluster.ExplainDetector(ctx, p["name"])
}

func listAgents(_ context.Context, o *Options, _ httpapi.Params) (any, error) {
	return list(o.Cluster.State().Agents), nil
}

func listTenants(_ context.Context, o *Options, _ httpapi.Params) (any, error) {
	return list(o.Cluster.State().Tenants), nil
}

func getNATS(_ context.Context, o *Options, _ httpapi.Params) (any, error) {
	return o.Cluster.State().NATS, nil
}

// timeline answers with the stages of the batches of an agent, as JSON or in the trace event
// format.
func timeline(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	t, err := o.Cluster.Timeline(ctx, p["name"], p.Int("seconds"))
	if err != nil || p["format"] == "json" {
		return t, err
	}
	return t.Trace(), nil
}

// onSwarm makes a question about the swarm that the path names. It refuses a shard that the swarm
// does not have before the cluster is asked.
func onSwarm(ask func(ctx context.Context, o *Options, id string, p httpapi.Params) (any, error)) question {
	return func(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
		swarm, err := shardOf(o, p)
		if err != nil {
			return nil, err
		}
		return ask(ctx, o, swarm.ID, p)
	}
}

// shardOf finds the swarm of a request. It refuses a shard that the swarm does not have.
func shardOf(o *Options, p httpapi.Params) (cluster.Swarm, error) {
	swarm, err := o.Cluster.State().Swarm(p["name"])
	if err == nil && p["shard"] != "" && p.Int("shard") >= max(1, len(swarm.Shards)) {
		err = fmt.Errorf("shard %s of swarm %q: %w", p["shard"], p["name"], jobs.ErrNotFound)
	}
	return swarm, err
}

func listAudit(ctx context.Context, o *Options, p httpapi.Params) (any, error) {
	if o.Audit == nil {
		return []control.AuditEntry{}, nil
	}
	all, err := o.Audit(ctx, time.Now().Add(-time.Duration(p.Int("seconds"))*time.Second), p.Int("limit"))
	return list(all), err
}
