package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// runningWait is how long Running waits for workers that do not answer. It then returns the answers
// of the other workers.
const runningWait = 500 * time.Millisecond

// RunningQuestion is the message that asks workers for one job, or for all if Job is empty.
type RunningQuestion struct {
	Job string `json:"job,omitempty"`
}

// RunningAnswer is the answer of one worker. Partial reports that some jobs did not fit into the
// message.
type RunningAnswer struct {
	Worker  string         `json:"worker"`
	Running []jobs.Running `json:"running"`
	Partial bool           `json:"partial,omitempty"`
}

// Running asks the workers of a pool which of its jobs they run now; id limits the question to one
// job. It waits for the workers that are in the registry, and at most runningWait for workers that
// do not answer. The result is ordered by id.
func (q *Queue) Running(ctx context.Context, p jobs.Pool, id string) ([]jobs.Running, error) {
	all, _, err := q.running(ctx, p, id)
	return all, err
}

// running is Running with the names of the agents that are in the registry and did not answer,
// sorted. With an id it returns at the first answer that has the job, without these names.
func (q *Queue) running(ctx context.Context, p jobs.Pool, id string) (all []jobs.Running, silent []string, err error) {
	what := "ask what runs in pool " + string(p)
	agents, err := q.agents.Agents(ctx)
	if err != nil {
		return nil, nil, err
	}
	missing := map[string]bool{}
	for _, a := range agents {
		if a.Pool == p && len(a.Kinds) > 0 {
			missing[a.Name] = true
		}
	}
	data, err := json.Marshal(RunningQuestion{Job: id})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	inbox := q.conn.NC.NewInbox()
	sub, err := q.conn.NC.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := q.conn.NC.PublishRequest(wire.RunningSubject(p), inbox, data); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	wait, cancel := context.WithTimeout(ctx, runningWait)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(wait)
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if err != nil { // no worker listens, or some do not answer
			break
		}
		var r RunningAnswer
		if json.Unmarshal(m.Data, &r) == nil {
			all = append(all, r.Running...)
			delete(missing, r.Worker)
		}
		if id != "" && len(all) > 0 {
			clear(missing)
		}
		if len(missing) == 0 {
			break
		}
	}
	silent = slices.Sorted(maps.Keys(missing))
	slices.SortFunc(all, func(a, b jobs.Running) int { return strings.Compare(a.JobID, b.JobID) })
	return all, silent, nil
}
