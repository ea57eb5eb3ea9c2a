package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/command"
)

// storeGraph puts a graph that is too large for the record of a swarm into the place of snapshots, where
// GPU agents find it by its digest. An object that is there is not written again.
func storeGraph(cmd *cobra.Command, spec *swarm.Spec) (err error) {
	if !spec.Neighbours.Large() {
		return nil
	}
	place, _ := cmd.Flags().GetString("snapshots")
	if place == "" {
		return command.Usage("swarm create: the edges of the graph %s take %d bytes, packed, too many for the record "+
			"of "+
			"a swarm: name the place of the snapshots of the GPU agents with --snapshots", spec.Neighbours.Graph,
			len(spec.Neighbours.Edges))
	}
	b, err := openBucket(cmd, place)
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
