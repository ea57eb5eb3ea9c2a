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

// PauseKey returns the key of a pause in the bucket of controls: of a kind, or of a whole pool when
// kind is empty.
func PauseKey(p jobs.Pool, kind string) string {
	if kind == "" {
		return "pause." + string(p)
	}
	return "pause." + string(p) + "." + kind
}

// Pause has the workers of a pool take no new jobs of a kind, or of any when kind is empty; what
// runs goes on. It holds, for workers that start later too, until Resume. A worker that has asked
// the server before it hears of the pause takes what that request brings, up to two seconds later:
// to give it back would cost the job an attempt.
func (ct *Control) Pause(ctx context.Context, p jobs.Pool, kind string) error {
	return ct.setPause(ctx, p, kind, true)
}

// Resume ends a pause of the same pool and kind. What is not paused stays so.
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
			_, err = kv.PutString(ctx, PauseKey(p, kind), time.Now().UTC().Format(time.RFC3339))
			return err
		}
		err = kv.Purge(ctx, PauseKey(p, kind))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		return err
	})
}

// PausedKeys reads what is paused now.
func (ct *Control) PausedKeys(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	err := ct.conn.Values(ctx, "read what is paused", wire.ControlBucket, func(key string, _ *natsconn.Message) {
		if strings.HasPrefix(key, "pause.") {
			all[key] = true
		}
	})
	return all, err
}
