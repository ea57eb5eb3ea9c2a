package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// A snapshot of a swarm of several shards is a set: each shard writes a snapshot named by PartName,
// which has Manifest.Shard set. The set is complete when all parts are.

// PartName returns the name of the snapshot of a shard that is part of a set. It is a valid id if
// name has at most 56 characters.
func PartName(name string, shard int) string { return fmt.Sprintf("%s-shard%d", name, shard) }

// SetDigest returns the digest of a set: the SHA-256 of the digests of its parts, in the order of
// the shards, one in each line.
func SetDigest(parts []string) string { return sum([]byte(strings.Join(parts, "\n") + "\n")) }

// ReadSet reads the manifests of the snapshot of a name: one for a whole swarm, or one for each
// shard in their order. digest identifies the whole snapshot. ErrNotFound: nothing has the name, or
// a part of the set is missing. ErrMismatch: the parts are from different swarms or divisions.
func ReadSet(ctx context.Context, store Store, name string) (parts []*Manifest, digest string, err error) {
	whole, digest, err := ReadManifest(ctx, store, name)
	if err == nil {
		return []*Manifest{whole}, digest, nil
	}
	if !errors.Is(err, ErrNotFound) || jobs.CheckID("snapshot", PartName(name, 0)) != nil {
		return nil, "", err
	}
	first, one, ferr := ReadManifest(ctx, store, PartName(name, 0))
	if errors.Is(ferr, ErrNotFound) {
		return nil, "", err // the error for the requested name
	}
	if ferr != nil {
		return nil, "", ferr
	}
	if first.Shard == nil {
		return nil, "", fmt.Errorf("snapshot %s: %w: %s is of a whole swarm", name, ErrMismatch, first.Name)
	}
	parts, digests := []*Manifest{first}, []string{one}
	for k := 1; k < first.Shard.Of; k++ {
		m, one, err := ReadManifest(ctx, store, PartName(name, k))
		if err != nil {
			return nil, "", err
		}
		if !first.beside(m, k) {
			return nil, "", fmt.Errorf("snapshot %s: %w: %s is not of shard %d of %d of the swarm that %s is of", name,
				ErrMismatch, m.Name, k, first.Shard.Of, first.Name)
		}
		if (m.Model == nil) != (first.Model == nil) || m.Model != nil && *m.Model != *first.Model {
			return nil, "", fmt.Errorf("snapshot %s: %w: %s and %s have weights of different models: adopt one in all "+
				"shards, and take another snapshot", name, ErrMismatch, first.Name, m.Name)
		}
		parts, digests = append(parts, m), append(digests, one)
	}
	return parts, SetDigest(digests), nil
}

// beside reports whether o is shard k of the swarm of m, which is also of a shard.
func (m *Manifest) beside(o *Manifest, k int) bool {
	return o.Shard != nil && o.Shard.Number == k && o.Shard.Of == m.Shard.Of && o.Shard.Groups == m.Shard.Groups &&
		o.PerGroup == m.PerGroup &&
		o.Swarm.same(m.Swarm) && slices.EqualFunc(m.Variables, o.Variables, Variable.like)
}

func (v Variable) like(o Variable) bool {
	return v.Name == o.Name && v.DType == o.DType && v.Per == o.Per && v.Width == o.Width
}
