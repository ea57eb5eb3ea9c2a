package state

import (
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// TestPageBytes: the pages of a swarm's shard are as many as its groups fill, and a spec that
// cannot be laid out has none.
func TestPageBytes(t *testing.T) {
	d := openHost(t)
	for name, text := range pagedTexts {
		spec, err := swarm.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatalf("swarm.Parse: %v, want no error", err)
		}
		spec.PageSize = testPage
		p := openPaged(t, d, nil, text)
		l := layoutOf(p)
		if l.Slots < 2 {
			t.Fatalf("%s: a page has %d groups: the comparison proves nothing", name, l.Slots)
		}
		for groups, pages := range map[int]int64{
			0: 0, 1: 1, l.Slots - 1: 1, l.Slots: 1, l.Slots + 1: 2, 2 * l.Slots: 2,
			2*l.Slots + 1: 3,
		} {
			if got := spec.PageBytes(groups); got != pages*int64(l.PageBytes) {
				t.Errorf("%s: %d groups take %d bytes, want %d pages of %d", name, groups, got, pages, l.PageBytes)
			}
		}
		if err := p.Close(); err != nil {
			t.Errorf("p.Close: %v, want no error", err)
		}
		for what, change := range map[string]func(*swarm.Spec){
			"a page too small":    func(s *swarm.Spec) { s.PageSize = 1 },
			"a cell there is not": func(s *swarm.Spec) { s.Cell.Kind = "none" },
		} {
			bad := *spec
			change(&bad)
			if got := bad.PageBytes(100); got != 0 {
				t.Errorf("%s, %s: %d bytes", name, what, got)
			}
		}
	}
}
