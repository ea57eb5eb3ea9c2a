package nab

import (
	"cmp"
	"hash/fnv"
	"path"
	"slices"
)

// Kind returns the kind of a stream: the folder of its file.
func (s *Stream) Kind() string { return path.Dir(s.Name) }

// Halves splits streams into two halves, of which one may be used to choose parameters and the other
// not (docs/quality.md). The rule is fixed and knows names only: streams are sorted by kind and,
// within a kind, by the FNV-1a hash of their name, and belong to the first and the second half in
// turn.
func Halves(streams []Stream) (first, second []Stream) {
	hash := func(name string) uint64 {
		h := fnv.New64a()
		h.Write([]byte(name))
		return h.Sum64()
	}
	sorted := slices.Clone(streams)
	slices.SortFunc(sorted, func(a, b Stream) int {
		return cmp.Or(cmp.Compare(a.Kind(), b.Kind()), cmp.Compare(hash(a.Name), hash(b.Name)))
	})
	for i, s := range sorted {
		if i%2 == 0 {
			first = append(first, s)
		} else {
			second = append(second, s)
		}
	}
	return first, second
}
