package swarm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// storeGraph puts a graph that is too large for the record of a swarm into the place of snapshots,
// where GPU agents find it by its digest. An object that is there is not written again.
func storeGraph(cmd *cobra.Command, spec *swarm.Spec) (err error) {
	if !spec.Neighbours.Large() {
		return nil
	}
	place, _ := cmd.Flags().GetString("snapshots")
	if place == "" {
		return command.Usage("swarm create: the edges of the graph %s take %d bytes, packed, too many for the record "+
			"of a swarm: name the place of the snapshots of the GPU agents with --snapshots", spec.Neighbours.Graph,
			len(spec.Neighbours.Edges))
	}
	b, err := models.OpenBucket(cmd, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	name, text := spec.Detach()
	if r, err := b.Open(cmd.Context(), name); err == nil {
		return r.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s of --snapshots: %w", name, err)
	}
	o, err := b.Create(cmd.Context(), name)
	if err != nil {
		return fmt.Errorf("%s of --snapshots: %w", name, err)
	}
	defer o.Abort()
	if _, err := io.WriteString(o, text); err != nil {
		return fmt.Errorf("%s of --snapshots: %w", name, err)
	}
	return o.Commit()
}

// unusedGraphs returns the sorted names of the graphs in a place that no swarm of the cluster and
// no snapshot of the place uses. A record or a manifest that cannot be read is an error: it may use
// any.
func unusedGraphs(ctx context.Context, c *natsq.Conn, b bucket.Bucket) (unused []string, err error) {
	// The graphs are listed first: a swarm has its graph before its record.
	names, err := b.Names(ctx, swarm.GraphFolder)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	used := map[string]bool{}
	add := func(spec json.RawMessage) error {
		var s swarm.Spec
		err := json.Unmarshal(spec, &s)
		used[s.Neighbours.Object()] = true
		return err
	}
	all, err := c.Swarms.Swarms(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Gone {
			continue
		}
		if err := errors.Join(s.Err, add(s.Swarm.Spec)); err != nil {
			return nil, fmt.Errorf("graphs stay: swarm %s, which may use one, cannot be read: %w", s.ID, err)
		}
	}
	snapshots, err := b.Folders(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range snapshots {
		if jobs.CheckID("snapshot", name) != nil {
			continue
		}
		m, _, err := snapshot.ReadManifest(ctx, b, name)
		if errors.Is(err, snapshot.ErrNotFound) { // it is being written, of a swarm that is there
			continue
		}
		if err == nil {
			err = add(m.Spec)
		}
		if err != nil {
			return nil, fmt.Errorf("graphs stay: a snapshot, which may use one, cannot be read: %w", err)
		}
	}
	for _, name := range names {
		if name = swarm.GraphFolder + "/" + name; !used[name] {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	return unused, nil
}

// dropGraph removes the graph of a swarm that is deleted from the place of --snapshots, unless
// another swarm or a snapshot uses it. Without a place it says what stays. An empty name does
// nothing.
func dropGraph(cmd *cobra.Command, c *natsq.Conn, name string) error {
	place, _ := cmd.Flags().GetString("snapshots")
	switch {
	case name == "":
		return nil
	case place == "":
		cmd.PrintErrf("its edges stay in the place of snapshots, as %s: exoswarm swarm orphans --snapshots PLACE "+
			"--delete removes them\n", name)
		return nil
	}
	return withUnusedGraphs(cmd, c, place, func(b bucket.Bucket, unused []string) error {
		if !slices.Contains(unused, name) {
			return nil
		}
		return b.Drop(cmd.Context(), name)
	})
}

// withUnusedGraphs calls f with a place and the graphs in it that nobody uses.
func withUnusedGraphs(
	cmd *cobra.Command, c *natsq.Conn, place string, f func(b bucket.Bucket, unused []string) error,
) (err error) {
	b, err := models.OpenBucket(cmd, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	unused, err := unusedGraphs(cmd.Context(), c, b)
	if err != nil {
		return err
	}
	return f(b, unused)
}

// graphOf returns the name of the object that has the edges of a swarm; empty: there is none, or
// the swarm cannot be read.
func graphOf(ctx context.Context, c *natsq.Conn, id string) string {
	var spec swarm.Spec
	s, err := c.Swarms.Swarm(ctx, id)
	if err != nil || json.Unmarshal(s.Spec, &spec) != nil {
		return ""
	}
	return spec.Neighbours.Object()
}

type unusedGraph struct {
	Graph  string `json:"graph"` // the name of the object
	Reason string `json:"reason"`
}

// listGraphs returns the graphs in --snapshots that nobody uses. Without --snapshots there are
// none.
func listGraphs(cmd *cobra.Command, c *natsq.Conn) (names []string, err error) {
	place, _ := cmd.Flags().GetString("snapshots")
	if place == "" {
		return nil, nil
	}
	err = withUnusedGraphs(cmd, c, place, func(_ bucket.Bucket, unused []string) error {
		names = unused
		return nil
	})
	return names, err
}

// dropGraphs removes graphs that listGraphs has listed, and that still nobody uses.
func dropGraphs(cmd *cobra.Command, c *natsq.Conn, names []string) error {
	place, _ := cmd.Flags().GetString("snapshots")
	if len(names) == 0 {
		return nil
	}
	return withUnusedGraphs(cmd, c, place, func(b bucket.Bucket, unused []string) error {
		for _, name := range names {
			if !slices.Contains(unused, name) {
				continue
			}
			if err := b.Drop(cmd.Context(), name); err != nil {
				return err
			}
		}
		return nil
	})
}
