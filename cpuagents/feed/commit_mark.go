package feed

import (
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// Mark is the state of a detector behind a batch.
type Mark struct {
	// Number is the number of the batch, from 1; 0 before the first one. Earlier programs refuse
	// text.
	Number uint64 `json:"batch,string"`
	// Shards have the parts of the batch, and Before has the positions before it; for a swarm with
	// several shards. Shards without a part have no row between Before and Sources.
	Shards   []int   `json:"shards,omitempty"`
	Before   []Place `json:"before,omitempty"`
	Entities int     `json:"entities,omitempty"` // assignments in the dictionary
	Sources  []Place `json:"sources,omitempty"`
	// Counts of all attempts up to here.
	Rows     uint64  `json:"rows,omitempty"`
	Rejected uint64  `json:"rejected,omitempty"`
	Keyless  Keyless `json:"keyless,omitzero"`
	Evicted  uint64  `json:"evicted,omitempty"`
	Returned uint64  `json:"returned,omitempty"`
}

// Keyless counts rejected rows without a group: rows without a usable key, and rows of entities
// beyond the number that is allowed.
type Keyless struct {
	WithoutKey     uint64 `json:"without_key"`
	BeyondEntities uint64 `json:"beyond_max_entities"`
}

// Count counts a reject if it has no group.
func (k *Keyless) Count(r *rows.Reject) {
	switch r.Cause {
	case rows.CauseKey:
		k.WithoutKey++
	case rows.CauseEntities:
		k.BeyondEntities++
	}
}

// Note returns the text about such rows for a table or a line of progress; empty if there are none.
func (k Keyless) Note() string {
	if k == (Keyless{}) {
		return ""
	}
	return fmt.Sprintf(" (%d without a key, %d beyond max_entities)", k.WithoutKey, k.BeyondEntities)
}

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

func encodeNote(n note) (string, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("encode a mark: %w", err)
	}
	return string(text), nil
}
