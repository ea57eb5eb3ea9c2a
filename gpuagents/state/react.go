package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// react does what follows a decision to the agents, and returns their steps. It is a part of the
// vote: a replay of the vote does it again, and an entry behind the vote finds it done. The outcome
// is set before, so agents that hear it hear it in these ticks. A reset keeps it.
//
// What the rules emit and submit is not done here: the answer has it.
func (k *Snapshotter) react(ctx context.Context, all []swarms.Reaction) (steps int64, err error) {
	for _, r := range all {
		switch r.Action {
		case swarms.ReactReset:
			err = k.Reset(ctx)
		case swarms.ReactTick:
			var data []byte
			if data, err = json.Marshal(swarms.Tick{Version: jobs.Version, Count: r.Count}); err == nil {
				var a Answer
				a, err = k.State.Apply(ctx, swarms.Entry{Kind: swarms.EntryTick, Data: data})
				steps += a.Steps
			}
		}
		// A refusal would say that the vote has changed nothing.
		if refused := (*jobs.Error)(nil); errors.As(err, &refused) {
			return steps, fmt.Errorf("rule %d of on_decision: %s: %s", r.Rule, r, err.Error())
		}
		if err != nil {
			return steps, fmt.Errorf("rule %d of on_decision: %s: %w", r.Rule, r, err)
		}
	}
	return steps, nil
}
