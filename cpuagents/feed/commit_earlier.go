package feed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// earlierMark is a mark of a program before checkpoints. A detector on a cluster stored it before
// its batch, and it counts if a log has a part. exoswarm detect stored the number of an entry or a
// batch, and the position in its only input.
type earlierMark struct {
	Batch  json.RawMessage `json:"batch"` // a number, or an earlierBatch
	After  uint64          `json:"after"`
	Parts  []earlierPart   `json:"parts"`
	Before json.RawMessage `json:"before"` // a position, or places
	At     json.RawMessage `json:"at"`     // a position
}

type earlierBatch struct {
	Number uint64 `json:"number"`
	SHA256 string `json:"sha256"` // of the only part
}

// earlierPart is a part of a batch in the log of one shard, behind entry After.
type earlierPart struct {
	Shard  int    `json:"shard"`
	SHA256 string `json:"sha256"`
	After  uint64 `json:"after"`
}

// earlierPlace returns the place of a position of exoswarm detect.
func earlierPlace(position json.RawMessage) (at Place, err error) {
	var of struct{ Records, Skip uint64 }
	if len(position) == 0 || bytes.Equal(position, []byte("null")) {
		return at, nil
	}
	err = json.Unmarshal(position, &of)
	return Place{Document: Document(position), Rows: of.Skip, Number: of.Records - of.Skip}, err
}

// candidate is a mark of the log of checkpoints.
type candidate struct {
	checkpoint
	earlier bool          // of a detector on a cluster of an earlier program: no notes are behind it
	parts   []earlierPart // a log must have one of them
	entry   uint64        // that the log must have
	body    bool          // of a note
}

// decodeMark reads a mark of this program or an earlier one.
func decodeMark(data []byte) (c candidate, err error) {
	var old earlierMark
	var form struct{ Batch json.RawMessage }
	if err := json.Unmarshal(data, &form); err != nil {
		return c, err
	}
	if bytes.HasPrefix(form.Batch, []byte(`"`)) {
		err = json.Unmarshal(data, &c.checkpoint)
		c.body = c.Entries == nil
		return c, err
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return c, err
	}
	// The other members are as now.
	var rest map[string]json.RawMessage
	if err := json.Unmarshal(data, &rest); err != nil {
		return c, err
	}
	for _, name := range []string{"batch", "before"} {
		delete(rest, name)
	}
	if data, err = json.Marshal(rest); err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c.checkpoint); err != nil {
		return c, err
	}
	if bytes.HasPrefix(form.Batch, []byte("{")) {
		var of earlierBatch
		if err := json.Unmarshal(old.Batch, &of); err != nil {
			return c, err
		}
		c.earlier, c.Number, c.parts = true, of.Number, old.Parts
		if c.parts == nil && of != (earlierBatch{}) {
			c.parts = []earlierPart{{SHA256: of.SHA256, After: old.After}}
		}
		for _, p := range c.parts {
			c.Shards = append(c.Shards, p.Shard)
		}
		if len(old.Before) > 0 {
			err = json.Unmarshal(old.Before, &c.Before)
		}
		return c, err
	}
	if err := json.Unmarshal(old.Batch, &c.Number); err != nil {
		return c, err
	}
	if c.Entries == nil {
		c.entry, c.Entries = c.Number, []uint64{c.Number}
	}
	at, err := earlierPlace(old.At)
	if err != nil {
		return c, err
	}
	before, err := earlierPlace(old.Before)
	if c.Sources = []Place{at}; len(old.Before) > 0 {
		if before.Number > at.Number+at.Rows { // the batch is in the next file
			before.Number = -before.Rows // its records are in a file
		}
		c.Before = []Place{before}
	}
	return c, err
}

// counts reports whether the logs of the swarm, up to some ends, have the batch of a mark of an
// earlier program, or its parts in part. With trimmed set, the parts of a log that was trimmed to a
// snapshot are in the snapshot.
func (s *State) counts(ctx context.Context, c *candidate, ends []swarms.Entry, trimmed bool,
) (counts bool, missing []int, err error) {
	if len(c.parts) == 0 {
		return !c.body && (c.entry == 0 || len(ends) > 1 || c.entry <= ends[0].Seq), c.Missing, nil
	}
	for _, p := range c.parts {
		if p.Shard < 0 || p.Shard >= len(s.in) {
			return false, nil, jobs.Errorf(jobs.CodeInternal, "a position of the detector names shard %d of %d: %s",
				p.Shard, len(s.in), Cure)
		}
		base, found := s.bases[p.Shard], false
		err := statelog.Rest(ctx, s.in[p.Shard], max(p.After+1, base), ends[p.Shard].Seq, func(e swarms.Entry) error {
			sum := sha256.Sum256(e.Data)
			found = found || (e.Kind == swarms.EntryObserve || e.Kind == swarms.EntrySwap) && e.Ref == c.Number &&
				hex.EncodeToString(sum[:]) == p.SHA256
			return nil
		})
		if err != nil {
			return false, nil, err
		}
		if found || trimmed && base > p.After+1 {
			counts = true
		} else {
			missing = append(missing, p.Shard)
		}
	}
	return counts, missing, nil
}
