package feed

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// TestEntities: keys have groups in the order of their first rows, up to the bound, and they take
// the memory of the inputs.
func TestEntities(t *testing.T) {
	e := NewEntities(2, nil)
	for _, c := range []struct {
		key         string
		group       int
		isNew, full bool
	}{{"b", 0, true, false}, {"a", 1, true, false}, {"b", 0, false, false}, {"c", 0, false, true}} {
		group, isNew, full, err := e.Add(c.key)
		if group != c.group || isNew != c.isNew || full != c.full || err != nil {
			t.Errorf("%s: group %d, new %v, full %v, %v", c.key, group, isNew, full, err)
		}
	}
	if key, ok := e.Key(1); key != "a" || !ok || e.Len() != 2 {
		t.Errorf("group 1 is %q of %d", key, e.Len())
	}
	if _, ok := e.Key(2); ok {
		t.Error("there is a group 2")
	}
	memory := access.NewMemoryParts(1<<20, 1<<20)
	small := NewEntities(1<<20, memory.Hold(t.Context(), "job"))
	for n := 0; ; n++ {
		if _, _, _, err := small.Add(strings.Repeat("k", 1000) + string(rune(n))); err != nil {
			if n < 300 || n > 500 || !access.IsMemory(err) && !strings.Contains(err.Error(), "entities") {
				t.Errorf("after %d entities: %v", n, err)
			}
			return
		}
		if n > 1000 {
			t.Fatal("a thousand keys fit into a megabyte")
		}
	}
}
