package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// showEntity writes the state of entities of a detector that does not run, one entities.State as
// JSON for each line. keys have the form of entities.Directory.Find. It fails with
// jobs.ErrNotFound, naming the nearest keys, if there is no such entity, and with an error of usage
// if the folder has no detector.
func showEntity(ctx context.Context, dataDir string, keys []string, to io.Writer, log *slog.Logger) (err error) {
	missing := command.Usage("detect: --data-dir %s has no state of a detector: name the folder of an earlier call",
		dataDir)
	if all, err := os.ReadDir(dataDir); errors.Is(err, os.ErrNotExist) || err == nil && len(all) == 0 {
		return missing
	}
	conn, client, end, err := start(ctx, dataDir, io.Discard, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	all, err := client.List(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return missing
	}
	s, err := client.Open(ctx, all[0].ID)
	if err != nil {
		return err
	}
	// The questions below are entries of the log of the swarm. What was stored for a batch that is
	// not there must be undone before: such an entry would have the number of the batch.
	record := s.Record()
	logs := logsOf(record)
	if _, err := feed.OpenState(ctx, feed.StateOptions{
		Record: record, Logs: logs, Dictionary: feed.NewEntities(swarms.MaxGroups, nil),
		Log: func(shard int, d swarms.Direction) swarms.Log { return conn.Swarms.Log(record.Key(), shard, d) },
	}); err != nil {
		return err
	}
	d, err := entities.Open(conn.Swarms, record, logs.Keys)
	if err != nil {
		return command.Usage("detect: --show-key: %v", err)
	}
	if err := d.Update(ctx); err != nil {
		return err
	}
	found := make([]entities.Entity, len(keys))
	for i, key := range keys {
		if found[i], err = d.Find(key); err != nil {
			return err
		}
	}
	states, err := entities.StatesOf(ctx, s, found)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(to)
	for _, one := range states {
		if err := lines.Encode(one); err != nil {
			return fmt.Errorf("detect: output: %w", err)
		}
	}
	return nil
}
