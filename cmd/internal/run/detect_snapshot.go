package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// A detector keeps its last two snapshots, and the log from the older one on. The record of the
// swarm has the newer one. If that is damaged, the next process goes back to the older one, and the
// agents take the log behind it again, which has the same results.

// snapshotName returns the name of the snapshot behind an entry, and snapshotOf the snapshot of a
// folder in which it, or the part of one shard, is.
func snapshotName(entry uint64) string { return "at-" + strconv.FormatUint(entry, 10) }

func snapshotOf(folder string) string {
	name, _, _ := strings.Cut(folder, "-shard")
	return name
}

// bases returns by shard the snapshot with which agents begin; nil for the first entry.
func bases(record swarms.Swarm) (all []swarms.Base) {
	for k := range record.ShardCount() {
		if b := record.BaseOf(k); b != nil {
			all = append(all, *b)
		}
	}
	return all
}

// snapshot stores the state of all agents, and removes the log before the snapshot before, and
// older snapshots. All entries are answered. settle notes the output and the position before
// entries are removed.
func (d *detector) snapshot(ctx context.Context, settle func(context.Context) error) error {
	dir := runjob.SnapshotsDir(d.o.DataDir)
	store, err := bucket.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer store.Close()
	before := bases(d.swarm.Record())
	end, err := d.log(0, swarms.In).Last(ctx)
	if err != nil {
		return err
	}
	name := snapshotName(end.Seq + 1)
	if _, err := d.swarm.Snapshot(ctx, name); err != nil {
		return fmt.Errorf("snapshot of the detector: %w", err)
	}
	if err := settle(ctx); err != nil {
		return err
	}
	if _, err := d.swarm.Rebase(ctx, store, name, nil); err != nil {
		return fmt.Errorf("keep the snapshot of the detector: %w", err)
	}
	kept := []string{name}
	if before != nil {
		if err := d.swarm.TrimTo(ctx, before); err != nil {
			return fmt.Errorf("shorten the log of the detector: %w", err)
		}
		kept = append(kept, snapshotOf(before[0].Name))
	}
	return removeSnapshots(ctx, store, dir, func(name string) bool { return !slices.Contains(kept, name) })
}

// removeSnapshots removes the snapshots with the names that drop returns true for.
func removeSnapshots(ctx context.Context, store bucket.Bucket, dir string, drop func(name string) bool) error {
	folders, err := store.Folders(ctx)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if drop(snapshotOf(folder)) {
			if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
				return fmt.Errorf("remove an old snapshot: %w", err)
			}
		}
	}
	return nil
}

// restore has the agents begin with the snapshot before the last one if that is damaged, or with
// the first entry of the log. It fails if there is neither. No agent runs yet.
func restore(ctx context.Context, conn *natsq.Conn, dataDir string, messages io.Writer) error {
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms})
	if err != nil {
		return err
	}
	all, err := client.List(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	s, err := client.Open(ctx, all[0].ID)
	if err != nil || bases(s.Record()) == nil {
		return err
	}
	dir := runjob.SnapshotsDir(dataDir)
	store, err := bucket.Open(ctx, dir)
	if err != nil {
		return command.Usage("--data-dir: %v", err)
	}
	defer store.Close()
	damage := s.CheckBase(ctx, store)
	if damage == nil {
		return nil
	}
	last := snapshotOf(bases(s.Record())[0].Name)
	folders, err := store.Folders(ctx)
	if err != nil {
		return err
	}
	var older []string
	for _, folder := range folders {
		if name := snapshotOf(folder); name != last && !slices.Contains(older, name) {
			older = append(older, name)
		}
	}
	slices.SortFunc(older, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) })
	for _, name := range append(older, "") {
		if _, err := s.Rebase(ctx, store, name, nil); err != nil {
			continue
		}
		fmt.Fprintf(messages, "detect: the last snapshot in --data-dir %s is damaged (%v): the detector goes back to "+
			"the one before and takes the rows behind it again from its log\n", dataDir, damage)
		return removeSnapshots(ctx, store, dir, func(of string) bool { return of == last })
	}
	return command.Usage("detect: the snapshots in --data-dir %s are damaged (%v), and there is none before: name "+
		"another --data-dir, or restore this one from a backup", dataDir, damage)
}
