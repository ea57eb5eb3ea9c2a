// Package swarms is the contract of running swarms: their records, the ordered logs of their
// shards, and the leases of the agents that serve them. Package natsq implements it over NATS
// JetStream.
//
// Each shard has two logs. Clients append observations and questions to the log of entries. The
// agent that holds the lease of the shard reads it in order, and appends to the log of answers.
// Every answer names the entry that it answers (Entry.Ref). An append names the entry that it
// follows, so an agent that has lost its lease cannot write: correctness never depends on the lease
// itself.
package swarms

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// Swarm is the record of a running swarm. It has everything that a GPU agent needs to serve a
// shard.
type Swarm struct {
	Version int             `json:"v"`
	ID      string          `json:"id"`     // an id, unique among the swarms that exist at the same time
	Name    string          `json:"name"`   // of the specification
	Spec    json.RawMessage `json:"spec"`   // the specification as JSON
	Groups  int             `json:"groups"` // number of groups, which are numbered from 0
	// Shards is the number of shards into which the groups are split, see ShardGroups. 0 means 1,
	// as in the records of swarms with one shard.
	Shards  int       `json:"shards,omitempty"`
	Created time.Time `json:"created"`
	// Nonce tells the swarm from earlier and later ones of the same id, see Key. NewNonce makes
	// one. Records of earlier versions have none.
	Nonce string `json:"nonce,omitempty"`
	// Owner is the id of the job to which the swarm belongs, and with which it ends. A swarm
	// without an owner lasts until it is deleted.
	Owner string `json:"owner,omitempty"`
	// Ending reports whether the swarm is being removed. No agent serves it any more, and its logs
	// are removed before the record.
	Ending bool `json:"ending,omitempty"`
	// From is the snapshot with which its agents begin; nil for agents in their initial state.
	From *SnapshotRef `json:"from,omitempty"`
	// Base replaces the first entries of the log of a swarm with one shard, which may be trimmed;
	// nil if all entries are there.
	Base *Base `json:"base,omitempty"`
	// Bases are the same for the logs of several shards, in the order of the shards. nil if all
	// entries are there.
	Bases []Base `json:"bases,omitempty"`
}

// Base is a snapshot of a shard that replaces the first entries of its log.
type Base struct {
	SnapshotRef
	Entry uint64 `json:"entry"` // the last entry that is in the snapshot, 1 or more
}

// SnapshotRef names a snapshot of a swarm, in the place where the GPU agents of a cluster keep
// snapshots.
type SnapshotRef struct {
	Name   string `json:"name"`   // an id
	SHA256 string `json:"sha256"` // of its manifest, 64 hexadecimal digits; the manifest has the digests of files
}

var shaPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate returns an error of jobs.CodeInvalid unless name and digest are well formed.
func (r SnapshotRef) Validate() error {
	if err := jobs.CheckID("snapshot", r.Name); err != nil {
		return err
	}
	if !shaPattern.MatchString(r.SHA256) {
		return invalid("snapshot %s: sha256 %.100q: use the 64 hexadecimal digits of its "+
			"manifest", r.Name, r.SHA256)
	}
	return nil
}

// MaxGroups is the largest number of groups of a swarm. An agent keeps 4 bytes for each before it
// asks its device for their pages.
const MaxGroups = 1 << 27

// Validate checks everything but the specification, which belongs to the cell. The error names the
// field, its value and the cure.
func (s Swarm) Validate() error {
	if s.Version != jobs.Version {
		return jobs.Errorf(jobs.CodeVersion, "swarm %s speaks protocol version %d, this agent %d: update the older "+
			"side", s.ID,
			s.Version, jobs.Version)
	}
	if err := jobs.CheckID("swarm id", s.ID); err != nil {
		return err
	}
	if s.Nonce != "" {
		if err := CheckKey(s.Key()); err != nil {
			return err
		}
	}
	if s.Owner != "" {
		if err := jobs.CheckID("swarm "+s.ID+": owner", s.Owner); err != nil {
			return err
		}
	}
	if s.Groups < 1 || s.Groups > MaxGroups {
		return invalid("swarm %s: %d groups: use 1 to %d", s.ID, s.Groups, MaxGroups)
	}
	if s.From != nil {
		if err := s.From.Validate(); err != nil {
			return fmt.Errorf("swarm %s: %w", s.ID, err)
		}
	}
	if err := s.validateShards(); err != nil {
		return err
	}
	for k := range s.ShardCount() {
		base := s.BaseOf(k)
		if base == nil {
			continue
		}
		if err := base.Validate(); err != nil {
			return fmt.Errorf("swarm %s: %w", s.ID, err)
		}
		if base.Entry == 0 {
			return invalid("swarm %s: base: entry 0: use the entry of the snapshot, 1 or more", s.ID)
		}
	}
	return nil
}
