package state

import (
	"reflect"

	"github.com/google/go-cmp/cmp"
)

// diff is cmp.Diff, which takes seconds for the states of a shard: it is called only for values
// that differ. A NaN differs from itself.
func diff(want, got any, o ...cmp.Option) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, o...)
}
