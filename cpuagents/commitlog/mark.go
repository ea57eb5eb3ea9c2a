// Package commitlog commits the batches of a detector: it appends them to the logs of the shards of
// its swarm together with the state behind them, finds that state again, and reads the answers of
// all shards in one order.
//
// # The commit
//
// The state behind a batch is the note of its entry (Mark), so one append stores both or none. With
// several shards each part of the batch has the note. The batch counts if one part is stored, and
// the next attempt appends the others before anything else. A batch is appended when all parts of
// the one before are stored, so only the last one can lack parts. The new keys of a batch are
// stored before it, and those behind the entities of the last mark do not count.
//
// A log beside those of the swarm has checkpoints: a mark now and then with the entries that it
// includes, so that an attempt that begins reads few notes.
//
// # Two attempts at a time
//
// The server may give out a job whose earlier attempt still runs. The later attempt takes over: it
// reads the last checkpoint and the notes behind it, stores a checkpoint, and appends an entry with
// a note of its own to each log of the swarm, right behind the last entry that it has read. If
// another entry came in between, it reads that and tries again. The note is a random text, and so is
// a part of the checkpoint: the entries of two attempts that begin at the same time differ.
//
// The earlier attempt appends a batch right behind the last entry that it knows. If another entry is
// there, it reads the entries up to the new end. An entry with a note is that of a later attempt:
// it fails with jobs.ErrFenced. The others are questions of clients: it appends behind them. So
// nothing of the earlier attempt is behind the entry of the later one in any log, and the later one
// has read everything before it. No clock and no lease takes part, and a server that answers with an
// older end of a log delays an attempt and harms nothing: an append behind an old end fails.
//
// Checkpoints of the earlier attempt fail after that of the later one. If one is stored between the
// reading and the checkpoint of the later attempt, that begins again.
//
// # Earlier programs
//
// They stored a mark in the log of checkpoints before each batch. Such a mark counts if the logs of
// the swarm have the batch. An earlier program cannot continue the state of this one: it would not
// read the notes. The number of a mark is text now, which it refuses to read.
package commitlog

import (
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/source"
)

// Mark is the state of a detector behind a batch.
type Mark struct {
	// Number is that of the batch, from 1; 0 before the first one. Earlier programs refuse text.
	Number uint64 `json:"batch,string"`
	// Shards have the parts of the batch, and Before has the positions before it; for a swarm with
	// several shards. Shards without a part have no row between Before and Sources.
	Shards   []int          `json:"shards,omitempty"`
	Before   []source.Place `json:"before,omitempty"`
	Entities int            `json:"entities,omitempty"` // assignments in the dictionary
	Sources  []source.Place `json:"sources,omitempty"`
	// Counts of all attempts up to here.
	Rows     uint64  `json:"rows,omitempty"`
	Rejected uint64  `json:"rejected,omitempty"`
	Keyless  Keyless `json:"keyless,omitzero"`
	Evicted  uint64  `json:"evicted,omitempty"`
	Returned uint64  `json:"returned,omitempty"`
}

// Keyless counts rejected rows without a group: those without a key that can be used, and those of
// entities beyond the number that is allowed.
type Keyless struct {
	WithoutKey     uint64 `json:"without_key"`
	BeyondEntities uint64 `json:"beyond_max_entities"`
}

// checkpoint is an entry of the log of checkpoints.
type checkpoint struct {
	Mark
	// Entries are by shard the entries that the mark includes; nil for a mark that is too long for a
	// note, which refers to it.
	Entries []uint64 `json:"entries,omitempty"`
	Missing []int    `json:"missing,omitempty"` // shards that lack their part
	// Attempt is a random text of the attempt. An append of bytes that are stored already succeeds, as
	// if it was repeated, so two attempts must never append the same.
	Attempt string `json:"attempt,omitempty"`
}

// note is the note of an entry.
type note struct {
	Mark
	// Stored is the entry of the log of checkpoints that has the mark; 0 if it is here.
	Stored uint64 `json:"stored,omitempty"`
}

// Collected is the position of the sinks of a detector among the answers of its swarm.
type Collected struct {
	// Answer is the place of the last answer that no sink needs again. The counts include the
	// answers up to Counted, which sinks may still hold.
	Answer    uint64 `json:"answer"`
	Counted   uint64 `json:"counted"`
	Decisions uint64 `json:"decisions"`
	Anomalies uint64 `json:"anomalies"`
	// Late and Duplicates are observations that the swarm has dropped.
	Late       uint64 `json:"dropped_late,omitempty"`
	Duplicates uint64 `json:"dropped_duplicate,omitempty"`
}

// encodeNote returns a mark as the text of a note.
func encodeNote(n note) (string, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("encode a mark: %w", err)
	}
	return string(text), nil
}
