package measures

import (
	"path"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// Kind returns the kind of a stream: the folder of its file.
func Kind(s quality.Stream) string { return path.Dir(s.Name) }

// Halves splits streams into a half for choosing parameters and a half for measuring
// (docs/quality.md). The rule is fixed and knows names only: the streams of each kind are sorted by
// name, and belong to the first and the second half in turn.
func Halves(streams []quality.Stream) (first, second []quality.Stream) {
	sorted := slices.Clone(streams)
	slices.SortFunc(sorted, func(a, b quality.Stream) int { return strings.Compare(a.Name, b.Name) })
	kind, index := "", 0
	for _, s := range sorted {
		if Kind(s) != kind {
			kind, index = Kind(s), 0
		}
		if index%2 == 0 {
			first = append(first, s)
		} else {
			second = append(second, s)
		}
		index++
	}
	return first, second
}
