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

// keySeparator stands between the id and the nonce in a key. It may not stand in an id, and it may
// stand in the names of streams, subjects, key-value keys and folders.
const keySeparator = "="

// Key names the swarm wherever something of it is stored: logs, leases and checkpoints. Two swarms
// of one id have different keys. The key of a record without a nonce, which an earlier version
// wrote, is its id: that is how its logs are called.
func (s Swarm) Key() string {
	if s.Nonce == "" {
		return s.ID
	}
	return s.ID + keySeparator + s.Nonce
}

// Identity tells the swarm from every other one, before and after it. It is the key, or the id and
// the time of creation where the record has no nonce.
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

// OwnerJob returns the id of the job that the swarm ends with, and nothing for one that lasts until
// it is deleted. Records of earlier versions do not name it: there a swarm whose spec leaves the
// number of its groups open is that of the job of its id.
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
