package swarms

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// decided is a decision with a winner whose name JSON writes with escapes.
func decided() Emission {
	leader := uint32(7)
	return Emission{
		Version: 1, Swarm: "of", Identity: "of=aaaaaaaa", Name: "x", Rule: 2, Entry: 9, Round: 4, Term: 3,
		Winner: `b"l\ue`, Candidates: []string{`b"l\ue`, "red"}, Votes: []uint64{2, 1}, Leader: &leader,
	}
}

// TestFillJob compares random specifications with those whose texts strings.Replacer has filled
// before.
func TestFillJob(t *testing.T) {
	e := decided()
	words := strings.NewReplacer("$(winner)", e.Winner, "$(round)", "4", "$(leader)", "7", "$(swarm)", "of")
	r := rand.New(rand.NewPCG(25, 11))
	parts := []string{"$(winner)", "$(round)", "$(leader)", "$(swarm)", "$", "(", ")", " ", `"`, "<", "é"}
	var pair func(depth int) (v, want any)
	pair = func(depth int) (v, want any) {
		switch n := r.IntN(6); {
		case n == 0 && depth > 0:
			a, wa := map[string]any{}, map[string]any{}
			for range r.IntN(4) {
				k := parts[r.IntN(len(parts))] // names of fields stay
				a[k], wa[k] = pair(depth - 1)
			}
			return a, wa
		case n == 1 && depth > 0:
			a, wa := []any{}, []any{}
			for range r.IntN(4) {
				v, want := pair(depth - 1)
				a, wa = append(a, v), append(wa, want)
			}
			return a, wa
		case n == 2:
			of := []any{nil, true, json.Number("12345678901234567890"), 0.25}[r.IntN(4)]
			return of, of
		case n == 3:
			return "$(decision)", e
		}
		var b strings.Builder
		for range r.IntN(6) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		text := b.String()
		if rest := words.Replace(text); strings.Contains(text, "$(") && strings.Contains(rest, "$(") {
			return "", "" // what is left is no word, and is refused or stays
		}
		return text, words.Replace(text)
	}
	for range 3000 {
		v, want := pair(3)
		in, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FillJob(in, e)
		if err != nil || !bytes.Equal(got, out) {
			t.Fatalf("FillJob(%s): %s, error %v, want %s", in, got, err, out)
		}
	}
	e.Leader = nil
	if got, err := FillJob([]byte(`"$(leader)"`), e); err != nil || string(got) != `"none"` {
		t.Errorf("without a leader: %s, error %v", got, err)
	}
}

// FuzzFillJob: any specification is refused, or is JSON without a word.
func FuzzFillJob(f *testing.F) {
	for _, s := range []string{
		`{"a":"$(round)"}`, `["$(decision)","$()"]`, `"$(x)"`, `"$("`, `1e400`, `"$($(round))"`,
		`1E801 "$("`, `{"$(":1E801}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		got, err := FillJob(spec, decided())
		if err != nil || !bytes.Contains(spec, []byte("$(")) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q is %q", spec, got)
		}
		// Names of fields may have words still.
		again, err := FillJob(got, decided())
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%q is %q, and filled again %q, %v", spec, got, again, err)
		}
	})
}

// TestJobID: jobs of other swarms, entries, rules and names have other ids, and all ids are valid.
func TestJobID(t *testing.T) {
	seen := map[string]bool{}
	n := 0
	for _, s := range []Swarm{{ID: "a", Nonce: "aaaaaaaa"}, {ID: "a", Nonce: "bbbbbbbb"}, {ID: "a"}} {
		for _, name := range []string{"x", "x-1", strings.Repeat("y", maxJobName-6)} {
			for _, tenant := range []string{"", "acme"} {
				if err := CheckJobName(tenant, name); err != nil {
					t.Errorf("CheckJobName: %v", err)
				}
				for entry := range uint64(20) {
					for rule := range 4 {
						id := s.JobID(tenant, name, entry, rule)
						if len(id) > 64 || strings.HasPrefix(id, "acme--") != (tenant == "acme") {
							t.Errorf("id %s", id)
						}
						seen[id] = true
						n++
					}
				}
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d ids of %d jobs", len(seen), n)
	}
	if CheckJobName("acme", strings.Repeat("y", maxJobName-5)) == nil || CheckJobName("", "a.b") == nil {
		t.Error("a name that is too long, or no id, is valid")
	}
}
