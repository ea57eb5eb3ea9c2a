package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Bounds of previews, which answer a person within seconds.
const (
	maxChildren = 1000
	maxLetters  = 500
)

// previewCancel shows the job, the jobs that wait for it and the swarm that ends with it.
func previewCancel(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	if _, err := o.conn.Results.Lookup(ctx, r.Object); err == nil {
		return p, jobs.Errorf(jobs.CodeInvalid, "job %s is over", r.Object)
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return p, err
	}
	j, err := o.conn.Queue.Locate(ctx, r.Object)
	if err != nil {
		return p, err
	}
	children, err := o.conn.Queue.Children(ctx, j.ID, maxChildren)
	if err != nil {
		return p, err
	}
	all, err := o.conn.Swarms.Swarms(ctx)
	if err != nil {
		return p, err
	}
	own := []string{}
	for _, s := range all {
		if s.Err == nil && s.Swarm.OwnerJob() == j.ID {
			own = append(own, s.ID)
		}
	}
	p.Sentence = fmt.Sprintf("Cancel job %s of kind %s in pool %s, which is %s.", j.ID, j.Kind, j.Pool, j.State)
	if r.Finish {
		p.Sentence += " It completes the work in hand."
	}
	p.Final = true
	p.Affects = []Effect{
		effect("job", []string{j.ID}, false), effect("jobs that wait for it", children, false),
		effect("swarms that end with it", own, false),
	}
	p.mark = j.Submitted.String()
	if j.Running != nil {
		p.Sentence = fmt.Sprintf("Cancel job %s of kind %s, which %s runs in attempt %d.", j.ID, j.Kind,
			j.Running.Worker, j.Running.Attempt)
		p.mark += j.Running.Since.String()
	}
	return p, nil
}

func doCancel(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	j, err := o.conn.Queue.Find(ctx, r.Object)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Sentence: "job " + j.ID + " is asked to end", Count: 1}, o.conn.Queue.Cancel(ctx, j, r.Finish)
}

// letters returns the ids of the dead letters that a request selects, and a mark of exactly these
// letters.
func letters(ctx context.Context, o *Operator, r *Request) (ids []string, mark string, err error) {
	if r.filter() == (jobs.DeadFilter{}) {
		return nil, "", jobs.Errorf(jobs.CodeInvalid, "%s: name a dead letter, a pool, a kind or a tenant", r.Action)
	}
	sum := sha256.New()
	err = o.conn.Letters.List(ctx, r.filter(), func(d jobs.DeadLetter) bool {
		ids = append(ids, d.ID)
		fmt.Fprintf(sum, "%d %s\n", d.Seq, d.ID)
		return len(ids) <= maxLetters
	})
	switch {
	case err != nil:
		return nil, "", err
	case len(ids) == 0:
		return nil, "", fmt.Errorf("dead letters of %s: %w", r.Target(), jobs.ErrNotFound)
	case len(ids) > maxLetters:
		return nil, "", jobs.Errorf(jobs.CodeInvalid, "%s: more than %d dead letters: use exoswarm %s", r.Target(),
			maxLetters, "dlq")
	}
	return ids, hex.EncodeToString(sum.Sum(nil)), nil
}

func previewRedrive(ctx context.Context, o *Operator, r *Request) (Preview, error) {
	ids, mark, err := letters(ctx, o, r)
	return Preview{
		Sentence: fmt.Sprintf("Queue the jobs of %s again, under their ids. Their failed results are removed.",
			several(len(ids), "dead letter")),
		Affects: []Effect{effect("dead letters", ids, false)}, mark: mark,
	}, err
}

func doRedrive(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	n, err := command.Redrive(ctx, o.conn.Letters, r.filter())
	return Outcome{Sentence: several(n, "job") + " queued again", Count: uint64(n)}, err
}

func previewPurge(ctx context.Context, o *Operator, r *Request) (Preview, error) {
	ids, mark, err := letters(ctx, o, r)
	return Preview{
		Sentence: fmt.Sprintf("Remove %s. Their jobs cannot be queued again.", several(len(ids), "dead letter")),
		Affects:  []Effect{effect("dead letters", ids, false)}, Final: true, mark: mark,
	}, err
}

func doPurge(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	n, err := o.conn.Letters.Purge(ctx, r.filter())
	return Outcome{Sentence: fmt.Sprintf("%d dead letters removed", n), Count: n}, err
}

// previewPause is for a pause and for its end: the kinds with jobs, and the jobs that wait.
func previewPause(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	pool := jobs.Pool(r.Object)
	if pool != jobs.PoolCPU && pool != jobs.PoolGPU {
		return p, jobs.Errorf(jobs.CodeInvalid, "pool %q: use cpu or gpu", r.Object)
	}
	if r.Kind != "" {
		if err := jobs.CheckID("kind", r.Kind); err != nil {
			return p, err
		}
	}
	st, err := o.conn.Queue.Stats(ctx, pool)
	if err != nil {
		return p, err
	}
	paused, err := o.conn.Control.PausedKeys(ctx)
	if err != nil {
		return p, err
	}
	agents, err := o.conn.Registry.Agents(ctx)
	if err != nil {
		return p, err
	}
	var serving []string
	for _, a := range agents {
		if a.Pool == pool && a.Lost == nil && (r.Kind == "" && len(a.Kinds) > 0 || slices.Contains(a.Kinds, r.Kind)) {
			serving = append(serving, a.Name)
		}
	}
	waiting, running := 0, 0
	for _, s := range st.Sources {
		if r.Kind == "" || s.Kind == r.Kind {
			waiting, running = waiting+int(s.Waiting), running+s.Running
		}
	}
	what := "pool " + r.Object
	if r.Kind != "" {
		what = "kind " + r.Kind + " of " + what
	}
	is := paused[wire.PauseKey(pool, r.Kind)]
	p.Sentence = fmt.Sprintf("Pause %s: agents take no new jobs of it, and running jobs continue.", what)
	if r.Action == "queue.resume" {
		p.Sentence = fmt.Sprintf("End the pause of %s: agents take its jobs again.", what)
	}
	if is {
		p.Sentence += " It is paused now."
	} else {
		p.Sentence += " It is not paused now."
	}
	p.Affects = []Effect{
		{What: "waiting jobs", Count: waiting, Live: true},
		{What: "jobs that workers have", Count: running, Live: true},
		effect("agents", serving, false),
	}
	return p, nil
}

func doPause(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	if r.Action == "queue.pause" {
		return Outcome{Sentence: "paused", Count: 1}, o.conn.Control.Pause(ctx, jobs.Pool(r.Object), r.Kind)
	}
	return Outcome{Sentence: "resumed", Count: 1}, o.conn.Control.Resume(ctx, jobs.Pool(r.Object), r.Kind)
}

// previewLimit is for a change of limits and for their removal: the limits before and after, and
// the jobs of the tenant.
func previewLimit(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	if r.Object != jobs.EveryTenant {
		if err := jobs.CheckID("tenant", r.Object); err != nil {
			return p, err
		}
	}
	all, err := o.conn.Control.Tenants(ctx)
	if err != nil {
		return p, err
	}
	var before jobs.Limits
	set := false
	var named []string
	for _, t := range all {
		if named = append(named, t.Tenant); t.Tenant == r.Object {
			before, set = t.Limits, true
		}
	}
	before.Version = 0
	old, err := json.Marshal(before)
	if err != nil {
		return p, fmt.Errorf("limits of tenant %s: %w", r.Object, err)
	}
	switch {
	case r.Action == "tenant.unlimit" && !set:
		return p, fmt.Errorf("tenant %s has no limits of its own: %w", r.Object, jobs.ErrNotFound)
	case r.Action == "tenant.unlimit":
		p.Sentence = fmt.Sprintf("Remove the limits of tenant %s, which are %s.", r.Object, old)
	case r.Limits == nil || *r.Limits == (jobs.Limits{}):
		return p, jobs.Errorf(jobs.CodeInvalid, "tenant.limit: say what to limit: weight, rate, burst, concurrency or "+
			"queued")
	default:
		want := *r.Limits
		want.Version = jobs.Version
		if err := want.Validate(); err != nil {
			return p, err
		}
		after := r.Limits.Or(before)
		after.Version = 0
		now, err := json.Marshal(after)
		if err != nil {
			return p, fmt.Errorf("limits of tenant %s: %w", r.Object, err)
		}
		p.Sentence = fmt.Sprintf("Change the limits of tenant %s from %s to %s. Running jobs continue.", r.Object, old,
			now)
	}
	waiting, running := 0, 0
	for _, pool := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		st, err := o.conn.Queue.Stats(ctx, pool)
		if err != nil {
			return p, err
		}
		for _, s := range st.Sources {
			if s.Tenant == r.Object || r.Object == jobs.EveryTenant && !slices.Contains(named, s.Tenant) {
				waiting, running = waiting+int(s.Waiting), running+s.Running
			}
		}
	}
	p.Affects = []Effect{
		{
			What:  "waiting jobs",
			Count: waiting,
			Live:  true,
		}, {What: "jobs that workers have", Count: running, Live: true},
	}
	return p, nil
}

func doLimit(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	return Outcome{Sentence: "the limits of tenant " + r.Object + " are changed", Count: 1},
		o.conn.Control.LimitTenant(ctx, r.Object, *r.Limits)
}

func doUnlimit(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	return Outcome{Sentence: "tenant " + r.Object + " has no limits of its own", Count: 1},
		o.conn.Control.UnlimitTenant(ctx, r.Object)
}

func several(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
