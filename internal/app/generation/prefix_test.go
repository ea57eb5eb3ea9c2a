package generation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestPrefixes compares the index with a loop over all agents, while they read more, are shortened
// and begin anew.
func TestPrefixes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, all := prefixes{}, make([]*place, 12)
	for i := range all {
		all[i] = &place{id: uint32(i)}
	}
	// Few tokens, so that agents have beginnings in common.
	more := func(tokens []int32) []int32 {
		tokens = slices.Clone(tokens)
		for range r.IntN(4 * block) {
			tokens = append(tokens, int32(r.IntN(100)/98))
		}
		return tokens
	}
	found := 0
	for range 3000 {
		p := all[r.IntN(len(all))]
		switch from := all[r.IntN(len(all))]; r.IntN(5) {
		case 0:
			p.keep(r.IntN(len(p.tokens) + 1))
		case 1:
			p.forget()
		case 2:
			p.forget()
			p.tokens = slices.Clone(from.tokens)
		default:
			if p.tokens = more(p.tokens); len(p.tokens) > 20*block {
				p.keep(block)
			}
		}
		p.read = max(p.read, r.IntN(len(p.tokens)+1))
		x.update(p)

		tokens := more(all[r.IntN(len(all))].tokens)
		may := func(p *place) bool { return p.id%3 != 0 }
		blocks := func(p *place) int { return common(p.tokens[:p.read], tokens) / block }
		var want *place
		for _, p := range all {
			if may(p) && blocks(p) > 0 && (want == nil || blocks(p) > blocks(want)) {
				want = p
			}
		}
		if got := x.longest(tokens, may); got != want {
			t.Fatalf("longest: %v, want %v", got, want)
		}
		if want != nil {
			found++
		}
	}
	if found < 500 {
		t.Errorf("%d beginnings were known", found)
	}
	for _, p := range all {
		p.forget()
		x.update(p)
	}
	if len(x) > 0 {
		t.Errorf("%d digests of nobody are left", len(x))
	}
}

type letters struct{}

func (letters) Add(id int32) string { return []string{"", "a", "b", "ab", "ba"}[id] }
func (letters) Flush() string       { return "a" }

// TestScanner compares random streams with a search in the whole text.
func TestScanner(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	stopped := 0
	for range 20_000 {
		s := scanner{decoder: letters{}}
		for range r.IntN(3) {
			stop := ""
			for range 1 + r.IntN(4) {
				stop += string("ab"[r.IntN(2)])
			}
			s.stops = append(s.stops, stop)
		}
		whole, got, over := "", "", false
		for range r.IntN(12) {
			id := int32(r.IntN(5))
			whole += letters{}.Add(id)
			text, end := s.add(id)
			if got += text; end {
				over = true
				break
			}
		}
		if !over {
			whole += letters{}.Flush()
			text, end := s.flush()
			got += text
			over = end
		}
		want, ends := whole, false
		for _, stop := range s.stops {
			if at := strings.Index(whole, stop); at >= 0 {
				want, ends = want[:min(len(want), at)], true
			}
		}
		if got != want || over != ends {
			t.Fatalf("%q until %q: %q, %v, want %q, %v", whole, s.stops, got, over, want, ends)
		}
		if over {
			stopped++
		}
	}
	if stopped < 2000 {
		t.Errorf("%d streams were ended by a text", stopped)
	}
}
