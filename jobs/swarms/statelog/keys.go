package statelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// KeyShard is the number of the log of the dictionary among the logs of the swarm of a job or of a
// detector (swarms.In). The journals of sources and the positions of sinks have lower numbers.
const KeyShard = 82

const entryKeys = "keys"

// keysBytes bounds the text of the keys of an entry in bytes. JSON needs up to six bytes for a byte
// of a key, and a NATS server accepts messages of 1 MiB by default.
const keysBytes = 128 << 10

// Assignment is a group that an entity got.
type Assignment struct {
	Group int
	Key   string // empty: the group became free
	// After is an entry of the log of the swarm. The assignment holds for later entries, until the
	// next one of the group.
	After uint64
}

// newKeys is an entry of the dictionary: the assignments from number First on, from 0. It replaces
// assignments that were stored for a batch that the log of the swarm does not have.
type newKeys struct {
	First int      `json:"first"`
	Keys  []string `json:"keys"`
	// Groups are the groups of the keys; without them each has the number of its assignment.
	Groups []int  `json:"groups,omitempty"`
	After  uint64 `json:"after,omitempty"` // of all assignments of the entry
}

// Keys is the stored dictionary of the entities of a swarm: the groups that entities got, in the
// order in which they were assigned. One goroutine uses it.
type Keys struct {
	*Log
	stored int
}

// NewKeys returns the dictionary in l. Call Open and then Load before Store.
func NewKeys(l swarms.Log) *Keys { return &Keys{Log: New(l, entryKeys)} }

// Stored returns the number of assignments that are stored.
func (k *Keys) Stored() int { return k.stored }

// Load returns the first n assignments; all if n is below 0. It fails with ErrDamaged if there are
// fewer. The next Store or Assign replaces the rest.
func (k *Keys) Load(ctx context.Context, n int) ([]Assignment, error) {
	var d Dictionary
	if err := k.Read(ctx, 1, d.take); err != nil {
		return nil, err
	}
	if n < 0 {
		n = len(d.assigned)
	}
	if len(d.assigned) < n {
		return nil, fmt.Errorf("the dictionary has %d entities of %d: %w", len(d.assigned), n, ErrDamaged)
	}
	k.stored = n
	return d.assigned[:n], nil
}

// Store appends keys, each with the group that has the number of its assignment, in as many entries
// as they need. add appends an entry; nil for Add. After an error the first few keys may be stored.
func (k *Keys) Store(ctx context.Context, keys []string, add func(ctx context.Context, v any) error) error {
	return k.store(ctx, newKeys{Keys: keys}, add)
}

// Assign appends assignments, in as many entries as they need. after is their After. add is used as
// in Store.
func (k *Keys) Assign(ctx context.Context, all []Assignment, after uint64, add func(ctx context.Context, v any) error,
) error {
	e := newKeys{After: after}
	for _, a := range all {
		e.Keys, e.Groups = append(e.Keys, a.Key), append(e.Groups, a.Group)
	}
	return k.store(ctx, e, add)
}

// store appends the assignments of all in parts.
func (k *Keys) store(ctx context.Context, all newKeys, add func(ctx context.Context, v any) error) error {
	if add == nil {
		add = k.Add
	}
	for len(all.Keys) > 0 {
		n, size := 0, 0
		for n < len(all.Keys) && size < keysBytes {
			size += len(all.Keys[n]) + 6 // with the quotes, commas and the group
			n++
		}
		part := newKeys{First: k.stored, Keys: all.Keys[:n], After: all.After}
		if all.Groups != nil {
			part.Groups, all.Groups = all.Groups[:n], all.Groups[n:]
		}
		if err := add(ctx, part); err != nil {
			return err
		}
		k.stored += n
		all.Keys = all.Keys[n:]
	}
	return nil
}

// Dictionary is a copy of a stored dictionary, for a reader that appends nothing. The zero value is
// empty. One goroutine uses it.
type Dictionary struct {
	assigned []Assignment
	keys     []string // by group
	read     uint64   // entries
	changed  int      // the first group that was named since the last Update
}

// Keys returns the keys by group, empty for a free group. The caller does not change them. The last
// ones may belong to a batch that is not stored yet.
func (d *Dictionary) Keys() []string { return d.keys }

// Had reports whether an entity with a key has or had a group.
func (d *Dictionary) Had(key string) bool {
	return slices.ContainsFunc(d.assigned, func(a Assignment) bool { return a.Key == key })
}

// Update reads the entries that are new since the last call. It returns the first group whose key
// is new or may have changed, and the number of groups if there is none. It fails with
// jobs.ErrNotFound if there is no such log.
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

func (d *Dictionary) take(data []byte) error {
	var k newKeys
	if err := json.Unmarshal(data, &k); err != nil {
		return err
	}
	if k.First > len(d.assigned) || k.First < 0 || k.Groups != nil && len(k.Groups) != len(k.Keys) {
		return errors.New("entries before it are missing")
	}
	if k.First < len(d.assigned) {
		before := d.assigned[:k.First]
		d.assigned, d.keys, d.changed = nil, nil, 0
		for _, a := range before {
			d.assign(a)
		}
	}
	for i, key := range k.Keys {
		a := Assignment{Group: len(d.assigned), Key: key, After: k.After}
		if k.Groups != nil {
			a.Group = k.Groups[i]
		}
		if a.Group < 0 || a.Group >= swarms.MaxGroups {
			return fmt.Errorf("group %d", a.Group)
		}
		d.assign(a)
	}
	return nil
}

func (d *Dictionary) assign(a Assignment) {
	d.assigned = append(d.assigned, a)
	for len(d.keys) <= a.Group {
		d.keys = append(d.keys, "")
	}
	d.keys[a.Group] = a.Key
	d.changed = min(d.changed, a.Group)
}
