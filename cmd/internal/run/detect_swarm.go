package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// start starts the cluster of a folder, and tells of damage that it has repaired. The caller calls
// end.
func start(ctx context.Context, dataDir string, messages io.Writer, log *slog.Logger) (
	conn *natsq.Conn, client *swarmclient.Client, end func() error, err error,
) {
	cluster, err := runjob.StartCluster(ctx, runjob.ClusterOptions{
		DataDir: dataDir, Keep: true, Log: log,
		Prepare: func(ctx context.Context, c *natsq.Conn) error { return restore(ctx, c, dataDir, messages) },
	})
	if err != nil {
		return nil, nil, nil, err
	}
	conn = cluster.Conn()
	if client, err = swarmclient.New(swarmclient.Options{Swarms: conn.Swarms}); err != nil {
		return nil, nil, nil, errors.Join(err, cluster.Close())
	}
	return conn, client, cluster.Close, nil
}

// readSpec reads the specification, and makes it one of a swarm that lasts.
func (d *detector) readSpec() error {
	spec, err := userfile.ReadSpec(d.o.SpecFile)
	if err != nil {
		return err
	}
	switch {
	case spec.Topology().ByAgent:
		return command.Usage("detect: %s addresses agents, and rows are for groups: make it with exoswarm swarm create",
			d.o.SpecFile)
	case spec.GroupCount != 0:
		return command.Usage("detect: %s has groups: %d: a detector has max_entities of them: leave groups out",
			d.o.SpecFile, spec.GroupCount)
	}
	if err := userfile.SetCSV(&spec.CSV, d.o.CSV); err != nil {
		return err
	}
	// The last time of each entity is in the state of its group, so the group finds late rows.
	d.columns = rows.ColumnSpec{
		Timestamp: spec.Timestamp, Features: spec.Features, AnyOrder: true, Key: spec.Key,
		MaxEntities: spec.MaxEntities,
	}
	if !spec.CSV.IsZero() {
		d.columns.CSV = &spec.CSV
	}
	if spec.Observations.Late == swarm.Reject {
		spec.Observations.Late = swarm.Drop
	}
	d.most = max(d.columns.Entities(), 1)
	if spec.Shards > d.most {
		return command.Usage("detect: %s has shards: %d, and %d groups, one for each entity: "+
			"use at most as many shards",
			d.o.SpecFile, spec.Shards, d.most)
	}
	spec.GroupCount = d.most
	d.spec = spec
	return nil
}

// openSwarm opens the swarm of the folder, or makes it. A specification that differs is refused.
// log returns the log of a shard.
func (d *detector) openSwarm(ctx context.Context, client *swarmclient.Client,
	log func(s swarms.Swarm, shard int) swarms.Log,
) (err error) {
	all, err := client.List(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		d.swarm, err = client.Create(ctx, d.spec, nil)
		return err
	}
	if d.swarm, err = client.Open(ctx, all[0].ID); err != nil {
		return err
	}
	// A process that was killed while it made the swarm leaves a record without some of its logs, or
	// empty ones.
	for k := range d.swarm.Record().ShardCount() {
		last, err := log(d.swarm.Record(), k).Last(ctx)
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		if last.Seq == 0 {
			if err := client.Delete(ctx, all[0].ID, nil); err != nil {
				return err
			}
			d.swarm, err = client.Create(ctx, d.spec, nil)
			return err
		}
	}
	now, err := json.Marshal(d.spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	before, err := json.Marshal(d.swarm.Spec())
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	if !bytes.Equal(now, before) {
		return command.Usage("detect: --data-dir %s has the state of another specification than %s: name another "+
			"folder, or use the former specification", d.o.DataDir, d.o.SpecFile)
	}
	return nil
}
