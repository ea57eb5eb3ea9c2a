// Package commitlog commits the batches of a detector: it appends them to the logs of the shards of
// its swarm together with the state behind them, finds that state again, and reads the answers of
// all shards in one order.
package commitlog

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/exoswarm/exoswarm/cpuagents/source"
)

// BatchID identifies a batch of a detector in the log of its swarm, where other clients may append
// entries too. The zero value is the begin of the log.
type BatchID struct {
	Number uint64 `json:"number"` // from 1
	// SHA256 is that of the only part. The marks of several shards have it in their parts.
	SHA256 string `json:"sha256,omitempty"`
}

// idOf returns the identity of a part. The number alone would not do: an attempt that was fenced
// and the one after it may both have made a batch of that number, with different rows.
func idOf(number uint64, data []byte) BatchID {
	sum := sha256.Sum256(data)
	return BatchID{Number: number, SHA256: hex.EncodeToString(sum[:])}
}

// MarkedPart is a part of a batch in the log of one shard.
type MarkedPart struct {
	Shard  int    `json:"shard"`
	SHA256 string `json:"sha256"`
	// After is the entry of the log before the part, or an earlier one.
	After uint64 `json:"after"`
}

// Mark is the state of a detector behind a batch. It counts if a log of the swarm has a part of the
// batch, so the batch commits the agents, the dictionary and the positions of the sources together.
type Mark struct {
	Batch BatchID `json:"batch"`
	// After is that of the only part.
	After uint64 `json:"after"`
	// Parts are those of a swarm with several shards, by shard. Shards without a part have no row
	// between Before and Sources.
	Parts []MarkedPart `json:"parts,omitempty"`
	// Before has the positions before the batch; for several shards.
	Before   []source.Place `json:"before,omitempty"`
	Entities int            `json:"entities,omitempty"` // assignments in the dictionary
	Sources  []source.Place `json:"sources"`
	// Counts of all attempts up to here.
	Rows     uint64  `json:"rows"`
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

// parts returns the parts of the batch.
func (m *Mark) parts() []MarkedPart {
	if m.Parts != nil || m.Batch == (BatchID{}) {
		return m.Parts
	}
	return []MarkedPart{{SHA256: m.Batch.SHA256, After: m.After}}
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
