package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// checkpoints keeps a page store a shard in a folder: SWARM.SHARD below it. It implements gpuagents.Checkpoints.
type checkpoints struct{ dir string }

// maxSegment bounds a segment file of a checkpoint.
const maxSegment = 64 << 20

// Open implements gpuagents.Checkpoints.
func (c checkpoints) Open(swarm string, shard, pageSize, pages int) (gpuagents.PageStore, error) {
	dir, err := c.path(swarm, shard)
	if err != nil {
		return nil, err
	}
	// A commit may replace every page before the old ones come free; a third copy is room for segments that are not full.
	record := int64(pageSize + vfs.BlockSize)
	all := record * int64(pages)
	o := pagestore.Options{PageSize: pageSize, Tiers: []pagestore.Tier{{
		Name: "checkpoint", Dir: dir, SegmentBytes: max(min(2*all, maxSegment), record),
	}}}
	o.Tiers[0].Capacity = o.MinCapacity() + 3*all + 2*o.Tiers[0].SegmentBytes + indexBytes*int64(pages)
	s, err := pagestore.Open(o)
	if err != nil {
		return nil, fmt.Errorf("checkpoint in %s: %w", dir, err)
	}
	return s, nil
}

// indexBytes is room in the index for a page and for what is remembered of its former places.
const indexBytes = 1 << 10

// Remove implements gpuagents.Checkpoints.
func (c checkpoints) Remove(swarm string, shard int) error {
	dir, err := c.path(swarm, shard)
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// Shards implements gpuagents.Checkpoints.
func (c checkpoints) Shards() ([]gpuagents.ShardID, error) {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []gpuagents.ShardID
	for _, e := range entries {
		swarm, number, _ := strings.Cut(e.Name(), ".")
		shard, err := strconv.Atoi(number)
		if err == nil && jobs.CheckID("swarm id", swarm) == nil && e.Name() == fmt.Sprintf("%s.%d", swarm, shard) {
			ids = append(ids, gpuagents.ShardID{Swarm: swarm, Shard: shard})
		}
	}
	return ids, nil
}

// path is the folder of a shard. The id comes from the queue: one that would lead elsewhere is refused.
func (c checkpoints) path(swarm string, shard int) (string, error) {
	if err := jobs.CheckID("swarm id", swarm); err != nil {
		return "", err
	}
	return filepath.Join(c.dir, fmt.Sprintf("%s.%d", swarm, shard)), nil
}
