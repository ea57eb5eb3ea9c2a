// Package feed is what all programs share that feed rows into a swarm and read its decisions: the
// batch of rows with its bounds, its parts for the shards, the numbers of entities, the window of
// entries without an answer, and the swaps of evictions.
package feed

import (
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Batch collects rows up to the bounds of a batch. One goroutine uses it.
type Batch struct {
	batch.Observations
	most  int // rows
	bytes int
}

// NewBatch returns an empty batch of up to most rows.
func NewBatch(features, most int) *Batch {
	return &Batch{Observations: batch.Observations{Width: features}, most: most}
}

// Add adds a row of a group, which was read at a time. It reports whether the batch is full. The
// caller empties a full batch before the next Add.
func (b *Batch) Add(group int, row *rows.Row, read time.Time) (full bool) {
	b.Group = append(b.Group, uint32(group))
	b.Row = append(b.Row, row.Number)
	b.Time = append(b.Time, row.Time)
	b.Read = append(b.Read, read.UnixNano())
	b.Features = append(b.Features, row.Features...)
	b.Timestamp = append(b.Timestamp, row.Timestamp)
	b.Value = append(b.Value, row.Values...)
	b.bytes += batch.RowBytes(len(row.Features), len(row.Timestamp))
	return b.Len() >= b.most || b.bytes >= batch.MaxBytes
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Observations.Reset()
	b.bytes = 0
}
