package serveprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// own is a detector without sinks that this process makes and feeds. Its incidents are on the
// dashboard.
type own struct {
	conn *natsq.Conn
	spec *swarm.Spec // its name is the name of the detector and of the rows that are pushed
	log  *slog.Logger
	// snapshots are the snapshots of the GPU agent. The log of the swarm is trimmed to them each
	// trimEvery, so the disk stays bounded.
	snapshots bucket.Bucket
	trimEvery time.Duration

	told time.Time // when the last failed push was logged
}

// trimEvery is the time between two snapshots. A log is trimmed to the one before the last, so
// pages can show this time at least.
const trimEvery = 30 * time.Minute

// trimmed calls feed until ctx ends, and trims the log of the detector meanwhile.
func (o *own) trimmed(ctx context.Context, feed func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var trims sync.WaitGroup
	trims.Go(func() {
		tick := time.NewTicker(o.trimEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := o.trim(ctx); err != nil && ctx.Err() == nil {
					o.log.Warn(fmt.Sprintf("the log of detector %s grows", o.spec.Name), "error", err)
				}
			}
		}
	})
	defer trims.Wait()
	defer cancel()
	return feed(ctx)
}

// trim takes a snapshot, trims the log to the snapshot before it, and removes the earlier ones.
func (o *own) trim(ctx context.Context) error {
	client, err := swarmclient.New(swarmclient.Options{Swarms: o.conn.Swarms})
	if err != nil {
		return err
	}
	s, err := client.Open(ctx, o.spec.Name)
	if err != nil {
		return err
	}
	prefix := "serve-" + o.spec.Name + "-"
	all, err := o.snapshots.Folders(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(all) // by time
	if _, err := s.Snapshot(ctx, fmt.Sprint(prefix, time.Now().UnixMilli())); err != nil || len(all) == 0 {
		return err
	}
	last := len(all) - 1
	if _, err := s.Trim(ctx, o.snapshots, all[last], nil); err != nil {
		return err
	}
	for _, name := range all[:last] {
		if err := o.snapshots.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// batchSeconds is how long rows are collected for a batch. It is most of the latency of a decision.
const batchSeconds = 0.1

// make makes the detector unless it is there. One with another specification, of an earlier
// version, is replaced: it begins anew, and fresh is true as for a new one.
func (o *own) make(ctx context.Context) (fresh bool, err error) {
	name, of := o.spec.Name, *o.spec // which Spec changes
	made, err := detectors.Spec(&of, []source.Series{{
		Name: name, URI: "push:" + name, Push: &source.PushSpec{BatchSeconds: batchSeconds},
	}}, nil, nil)
	if err != nil {
		return false, err
	}
	all := detectors.New(o.conn)
	switch was, err := all.Get(ctx, name); {
	case errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		return false, err
	case same(was.Spec, made):
		return false, nil
	default:
		if err := all.Delete(ctx, name); err != nil {
			return false, err
		}
	}
	return true, all.Create(ctx, made)
}

func same(a, b cpuagents.DetectorSpec) bool {
	x, err := json.Marshal(a)
	y, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(x, y)
}

// push sends rows, in NDJSON. Rows that the servers do not take are lost, which the log says once a
// minute: the process goes on.
func (o *own) push(ctx context.Context, rows []byte) {
	_, err := o.conn.Streams.Push(ctx, o.spec.Name, "", [][]byte{rows})
	if err != nil && ctx.Err() == nil && time.Since(o.told) > time.Minute {
		o.told = time.Now()
		o.log.Warn(fmt.Sprintf("rows of detector %s are lost", o.spec.Name), "error", err)
	}
}
