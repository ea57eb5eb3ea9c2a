package swarms

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// Lengths of a nonce.
const (
	minNonce = 8
	newNonce = 16 // 80 random bits
	maxNonce = 32
)

// NewNonce returns a nonce for the record of a new swarm.
func NewNonce() string { return strings.ToLower(rand.Text()[:newNonce]) }

// keySeparator separates the id and the nonce in a key. It is not allowed in an id, and is allowed
// in the names of streams, subjects, keys of buckets and folders.
const keySeparator = "="

// Key returns the name of the swarm in the names of its logs, leases and checkpoints. Two swarms of
// one id have different keys. A record without a nonce is of an earlier version; its key is its id,
// because its logs have that name.
func (s Swarm) Key() string {
	if s.Nonce == "" {
		return s.ID
	}
	return s.ID + keySeparator + s.Nonce
}

// Identity returns a text that no earlier or later swarm has: the key, or the id and the time of
// creation if the record has no nonce.
func (s Swarm) Identity() string {
	if s.Nonce == "" {
		return s.ID + "@" + s.Created.UTC().Format(time.RFC3339Nano)
	}
	return s.Key()
}

// Same reports whether o is a record of the same swarm. The number of shards never changes, so
// another one is another swarm.
func (s Swarm) Same(o Swarm) bool {
	return s.Identity() == o.Identity() && s.ShardCount() == o.ShardCount()
}

// CheckKey returns an error unless key is one that Key returns.
func CheckKey(key string) error {
	id, nonce, has := strings.Cut(key, keySeparator)
	if err := jobs.CheckID("swarm", id); err != nil {
		return err
	}
	if has && !validNonce(nonce) {
		return invalid("swarm %s: nonce %.100q: use %d to %d lower-case letters and digits", id, nonce,
			minNonce, maxNonce)
	}
	return nil
}

func validNonce(nonce string) bool {
	for _, c := range []byte(nonce) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(nonce) >= minNonce && len(nonce) <= maxNonce
}

// OwnerJob returns the id of the job with which the swarm ends, or "" for a swarm that lasts until
// it is deleted. Records of earlier versions do not name the job: there a swarm whose specification
// has no number of groups belongs to the job with its id.
func (s Swarm) OwnerJob() string {
	if s.Owner != "" || s.Nonce != "" {
		return s.Owner
	}
	var spec struct {
		Agents int64 `json:"agents"`
		Groups int64 `json:"groups"`
	}
	if err := json.Unmarshal(s.Spec, &spec); err != nil || spec.Agents != 0 || spec.Groups != 0 {
		return ""
	}
	return s.ID
}
