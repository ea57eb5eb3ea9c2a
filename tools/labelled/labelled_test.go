package labelled

import (
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestSize: there are enough families and kinds, and the rule holds five families back.
func TestSize(t *testing.T) {
	heldBack := []string{}
	for _, f := range Families() {
		if f.HeldBack {
			heldBack = append(heldBack, f.Name)
		}
		if f.Doc == "" || !slices.ContainsFunc(Pairs(), func(p Pair) bool { return p.Family == f.Name }) {
			t.Errorf("family %s has no documentation or no incident", f.Name)
		}
	}
	if len(Families()) < 25 || len(Incidents()) < 12 || len(heldBack) != 5 {
		t.Errorf("%d families, %d incidents, held back: %v", len(Families()), len(Incidents()), heldBack)
	}
	t.Logf("%d families, %d incidents, %d pairs, held back: %v", len(Families()), len(Incidents()), len(Pairs()),
		strings.Join(heldBack, ", "))
}

// TestEveryPair: every pair has series; each window lies where the incident is, values before it
// are from the usual series, and all values are finite.
func TestEveryPair(t *testing.T) {
	for _, p := range Pairs() {
		for n := range testkit.Of(10, 1) {
			s, k, err := makeSeries(1, p, n)
			if err != nil {
				t.Error(err)
				continue
			}
			if len(s.Windows) == 0 || len(s.Values) != Rows || len(s.Times) != Rows {
				t.Fatalf("%s: %d windows, %d values, %d times", s.Name, len(s.Windows), len(s.Values), len(s.Times))
			}
			differs := func(row int) bool {
				for f, column := range append([][]float64{s.Values}, s.More...) {
					if column[row] != k.usual[f][row] {
						return true
					}
				}
				return false
			}
			before := -1
			for _, w := range s.Windows {
				if w.First <= before || w.Last < w.First || w.Last >= Rows {
					t.Errorf("%s: windows %v", s.Name, s.Windows)
				}
				before = w.Last
				// Two incidents of a counter can cancel out in a row.
				if (!differs(w.First) || !differs(w.Last)) && !k.family.has(cumulative) {
					t.Errorf("%s: window %v begins or ends with a usual row", s.Name, w)
				}
			}
			for row := range Rows * 45 / 100 {
				if differs(row) {
					t.Fatalf("%s: row %d differs before all incidents", s.Name, row)
				}
			}
			for _, v := range s.Flat() {
				if v-v != 0 {
					t.Fatalf("%s: a value is not finite", s.Name)
				}
			}
		}
	}
}

// TestSameBytes pins a checksum of some series: the same seed makes the same bytes on all machines.
// A change of the generator changes it.
func TestSameBytes(t *testing.T) {
	h := fnv.New64a()
	for i, p := range Pairs() {
		if i%5 != 0 {
			continue
		}
		s, err := Make(7, p, 3)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := Make(7, p, 3)
		other, _ := Make(8, p, 3)
		if !slices.Equal(s.Flat(), again.Flat()) || !slices.Equal(s.Times, again.Times) {
			t.Fatalf("%s differs from itself", s.Name)
		}
		if slices.Equal(s.Values, other.Values) {
			t.Errorf("%s: another seed makes the same values", s.Name)
		}
		for k, v := range s.Flat() {
			bits := math.Float32bits(v)
			at := s.Times[k/s.Features()] >> 30
			h.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24), byte(at)})
		}
		for _, w := range s.Windows {
			h.Write([]byte{byte(w.First), byte(w.First >> 8), byte(w.Last), byte(w.Last >> 8)})
		}
	}
	const want = 0xaaab69de1080841f
	if got := h.Sum64(); got != want {
		t.Errorf("checksum %#x, want %#x", got, uint64(want))
	}
}

// TestQuiet: quiet series last a month and have no windows.
func TestQuiet(t *testing.T) {
	for _, f := range Families() {
		s, err := Quiet(1, f.Name, 0)
		if err != nil {
			t.Fatal(err)
		}
		length := time.Duration(s.Times[len(s.Times)-1] - s.Times[0])
		if len(s.Windows) != 0 || s.Incident != "" || length < 28*24*time.Hour || length > 45*24*time.Hour {
			t.Errorf("%s: %d windows, incident %q, %v", s.Name, len(s.Windows), s.Incident, length)
		}
		for i := range s.Times[1:] {
			if s.Times[i+1] <= s.Times[i] {
				t.Fatalf("%s: row %d is not after the one before", s.Name, i+1)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	for _, p := range []Pair{{"no-family", "spike"}, {"white", "no-incident"}, {"white", "hump-missing"}} {
		if _, err := Make(1, p, 0); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v: %v", p, err)
		}
	}
	if _, err := Quiet(1, "no-family", 0); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}
