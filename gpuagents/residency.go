package gpuagents

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
)

type violations struct {
	mu sync.Mutex
	of map[shard.ID]violation
	// models is the last violation of a model; it has no error before the first.
	models violation
}

type violation struct {
	err  error
	seen time.Time
}

// violationShown is how long a violation is shown. The shard recovers long before, and a check once
// a minute must see the violation.
const violationShown = time.Minute

func (v *violations) set(id shard.ID, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[shard.ID]violation{}
	}
	v.of[id] = violation{err, time.Now()}
}

func (v *violations) setModels(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.models = violation{err, time.Now()}
}

// Residency returns a pages.ErrResidency for a minute after pages of a swarm with residency: gpu, or
// layers of a model, were not on the device as claimed. Their shards have started again from their
// checkpoints.
func (a *Agent) Residency() error {
	a.violations.mu.Lock()
	defer a.violations.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(a.violations.of), func(x, y shard.ID) int {
		return strings.Compare(fmt.Sprint(x.Swarm, x.Shard), fmt.Sprint(y.Swarm, y.Shard))
	})
	var errs []error
	for _, id := range ids {
		if v := a.violations.of[id]; time.Since(v.seen) < violationShown {
			errs = append(errs, fmt.Errorf("swarm %s, shard %d: %w", id.Swarm, id.Shard, v.err))
		} else {
			delete(a.violations.of, id)
		}
	}
	if v := a.violations.models; v.err != nil && time.Since(v.seen) < violationShown {
		errs = append(errs, v.err)
	}
	return errors.Join(errs...)
}
