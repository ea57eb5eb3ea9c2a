// Package feed is what all programs share that feed rows into a swarm and read its decisions: the
// batch of rows with its bounds, its parts for the shards, the numbers of entities, the window of
// entries without an answer, and the swaps of evictions.
//
// # The commit
//
// The state behind a batch is the note of its entry (Mark), so one append stores both or none. With
// several shards each part of the batch has the note. The batch counts if one part is stored, and
// the next attempt appends the others before anything else. A batch is appended when all parts of
// the previous batch are stored, so only the last one can lack parts. The new keys of a batch are
// stored before it. Keys behind the entities of the last mark do not count.
//
// Another log has checkpoints: a mark now and then with the entries that it includes, so that an
// attempt that begins reads few notes.
//
// # Two attempts at a time
//
// The server may give out a job whose earlier attempt still runs. The later attempt takes over: it
// reads the last checkpoint and the notes behind it, stores a checkpoint, and appends an entry with
// its own note to each log of the swarm, right behind the last entry that it has read. If another
// entry came in between, it reads that and tries again. The note is a random text, and so is a part
// of the checkpoint: the entries of two attempts that begin at the same time differ.
//
// The earlier attempt appends a batch right behind the last entry that it knows. If another entry
// is there, it reads the entries up to the new end. An entry with a note is from a later attempt:
// the append fails with jobs.ErrFenced. The others are questions of clients: it appends behind
// them. So nothing of the earlier attempt is behind the entry of the later one in any log, and the
// later one has read everything before it. No clock and no lease takes part, and a server that
// answers with an older end of a log delays an attempt and harms nothing: an append behind an old
// end fails.
//
// Checkpoints of the earlier attempt fail after the checkpoint of the later one. If one is stored
// between the reading and the checkpoint of the later attempt, the later attempt begins again.
//
// # Earlier programs
//
// They stored a mark in the log of checkpoints before each batch. Such a mark counts if the logs of
// the swarm have the batch. An earlier program cannot continue the state of this one: it would not
// read the notes. The number of a mark is text now, which it refuses to read.
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
