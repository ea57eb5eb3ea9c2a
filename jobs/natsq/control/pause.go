package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Pause stops the workers of a pool from taking new jobs of a kind, or of all kinds if kind is
// empty. Running jobs continue. It holds until Resume, also for workers that start later. A worker
// that asked the server before it learned of the pause takes the jobs of that request, up to two
// seconds later, because to give a job back would cost it an attempt.
func (ct *Control) Pause(ctx context.Context, p jobs.Pool, kind string) error {
	return ct.setPause(ctx, p, kind, true)
}

// Resume ends the pause of the same pool and kind. It returns nil if there is none.
func (ct *Control) Resume(ctx context.Context, p jobs.Pool, kind string) error {
	return ct.setPause(ctx, p, kind, false)
}

func (ct *Control) setPause(ctx context.Context, p jobs.Pool, kind string, on bool) error {
	if p != jobs.PoolCPU && p != jobs.PoolGPU {
		return jobs.Errorf(jobs.CodeInvalid, "pool %q: use %q or %q", p, jobs.PoolCPU, jobs.PoolGPU)
	}
	if kind != "" {
		if err := jobs.CheckID("kind", kind); err != nil {
			return err
		}
	}
	return ct.conn.Retry(ctx, "pause or resume pool "+string(p), func(ctx context.Context) error {
		kv, err := ct.conn.JS.KeyValue(ctx, wire.ControlBucket)
		if err != nil {
			return err
		}
		if on {
			_, err = kv.PutString(ctx, wire.PauseKey(p, kind), time.Now().UTC().Format(time.RFC3339))
			return err
		}
		err = kv.Purge(ctx, wire.PauseKey(p, kind))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		return err
	})
}

// PausedKeys returns the keys of all present pauses, see wire.PauseKey.
func (ct *Control) PausedKeys(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	err := ct.conn.Values(ctx, "read what is paused", wire.ControlBucket, func(key string, _ *natsconn.Message) {
		if strings.HasPrefix(key, "pause.") {
			all[key] = true
		}
	})
	return all, err
}
