package statelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// KeyShard is the number of the log of the dictionary among the logs of the swarm of a job or of a
// detector (swarms.In). The journals of sources and the positions of sinks have lower numbers.
const KeyShard = 82

// entryKeys is the kind of the entries of a dictionary.
const entryKeys = "keys"

// keysBytes bounds the text of the keys of an entry in bytes. JSON needs up to six bytes for a byte
// of a key, and a NATS server accepts messages of 1 MiB by default.
const keysBytes = 128 << 10

// newKeys is an entry of the dictionary: the keys of the groups from First on. It replaces keys of
// these groups that were stored before, for a batch that the log of the swarm does not have.
type newKeys struct {
	First int      `json:"first"`
	Keys  []string `json:"keys"`
}

// Keys is the stored dictionary of the entities of a swarm: the keys by group, in the order in
// which the groups were assigned. One goroutine uses it.
type Keys struct {
	*Log
	stored int
}

// NewKeys returns the dictionary in l. Call Open and then Load before Store.
func NewKeys(l swarms.Log) *Keys { return &Keys{Log: New(l, entryKeys)} }

// Stored returns the number of keys that are stored.
func (k *Keys) Stored() int { return k.stored }

// Load returns the first n stored keys; all if n is below 0. It fails if there are fewer. The next
// Store replaces the others.
func (k *Keys) Load(ctx context.Context, n int) ([]string, error) {
	var d Dictionary
	if err := k.Read(ctx, 1, d.take); err != nil {
		return nil, err
	}
	all := d.keys
	if n < 0 {
		n = len(all)
	}
	if len(all) < n {
		return nil, fmt.Errorf("the dictionary has %d entities of %d: %w", len(all), n, ErrDamaged)
	}
	k.stored = n
	return all[:n], nil
}

// Store appends keys after those that are stored, in as many entries as they need. add appends an
// entry; nil for Add. After an error the first few keys may be stored.
func (k *Keys) Store(ctx context.Context, keys []string, add func(ctx context.Context, v any) error) error {
	if add == nil {
		add = k.Add
	}
	for len(keys) > 0 {
		n, size := 0, 0
		for n < len(keys) && size < keysBytes {
			size += len(keys[n]) + 3 // with the quotes and the comma
			n++
		}
		if err := add(ctx, newKeys{First: k.stored, Keys: keys[:n]}); err != nil {
			return err
		}
		k.stored += n
		keys = keys[n:]
	}
	return nil
}

// Dictionary is a copy of a stored dictionary, for a reader that appends nothing. The zero value is
// empty. One goroutine uses it.
type Dictionary struct {
	keys    []string
	read    uint64 // entries
	changed int    // the first group that was named since the last Update
}

// Keys returns the keys by group, which the caller does not change. The last ones may belong to a
// batch that is not stored yet.
func (d *Dictionary) Keys() []string { return d.keys }

// Update reads the entries that are new since the last call. It returns the first group whose key is
// new or may have changed, and the number of keys if there is none. It fails with jobs.ErrNotFound
// if there is no such log.
func (d *Dictionary) Update(ctx context.Context, l swarms.Log) (changed int, err error) {
	last, err := l.Last(ctx)
	if err != nil {
		return len(d.keys), err
	}
	d.changed = len(d.keys)
	if err := (&Log{log: l, kind: entryKeys, last: last.Seq}).Read(ctx, d.read+1, d.take); err != nil {
		return d.changed, err
	}
	d.read = last.Seq
	return d.changed, nil
}

// take applies an entry.
func (d *Dictionary) take(data []byte) error {
	var k newKeys
	if err := json.Unmarshal(data, &k); err != nil {
		return err
	}
	if k.First > len(d.keys) || k.First < 0 {
		return errors.New("entries before it are missing")
	}
	d.changed = min(d.changed, k.First)
	d.keys = append(d.keys[:k.First], k.Keys...)
	return nil
}
