package edges

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestRead: lists with and without names, weights and comments, in any order.
func TestRead(t *testing.T) {
	for text, want := range map[string]*List{
		"0,1\n":                              {Edges: []Edge{{0, 1, WeightOne, 1}}},
		"# contacts\n\nfrom,to\n2 , 0\n1\t0": {Edges: []Edge{{1, 0, WeightOne, 1}, {2, 0, WeightOne, 1}}},
		"\ufeffa;b;w\n0;1;0.5\n0;0;-2": {
			Edges:    []Edge{{0, 0, -2 * WeightOne, 1}, {0, 1, WeightOne / 2, 1}},
			Weighted: true,
		},
		"4294967294 0 1e-5": {Edges: []Edge{{math.MaxUint32 - 1, 0, 1, 1}}, Weighted: true},
		"a,b,w,d\n0,1,1,7\n0,1,1,3": {
			Edges: []Edge{{0, 1, WeightOne, 3}, {0, 1, WeightOne, 7}}, Weighted: true, Longest: 7,
		},
		"0,1,2,1": {Edges: []Edge{{0, 1, 2 * WeightOne, 1}}, Weighted: true},
	} {
		want.Longest = max(want.Longest, 1)
		got, err := Read(strings.NewReader(text), 10)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// TestReadRefuses: the line and the cure are in the errors.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "it has no edge: write FROM,TO on each line",
		"from,to\n":                          "it has no edge",
		"0,1\n0,1,2":                         "line 2: 3 values: write FROM,TO on all lines, or FROM,TO,WEIGHT on all",
		"from,to\n0,1,2":                     "line 2: 3 values below 2 names",
		"0\n":                                "line 1: 1 values",
		"0,1\n-1,2":                          `line 2: agent "-1": use a whole number from 0 to 4294967294`,
		"0,4294967295":                       `line 1: agent "4294967295"`,
		"0,1.5":                              `line 1: agent "1.5"`,
		"0,1\nx,2":                           `line 2: agent "x"`,
		"0,1,NaN":                            `line 1: weight "NaN": use a number from -32767 to 32767`,
		"0,1,inf":                            `line 1: weight "inf"`,
		"0,1,40000":                          `line 1: weight "40000"`,
		"nan,nan":                            `line 1: agent "nan"`,
		"0,1\n0,1\n0,1\n":                    "line 3: more than 2 edges: use fewer",
		"0,1,1,2\n0,1,1":                     "line 2: 3 values: write FROM,TO on all lines, or FROM,TO,WEIGHT on",
		"0,1,1\n0,1,1,2":                     "line 2: 4 values: write FROM,TO on all lines",
		"0,1,1,2,3":                          "line 1: 5 values: write FROM,TO on all lines",
		"0,1,1,0":                            `line 1: delay "0": use a whole number of ticks from 1 to 32`,
		"0,1,1,33":                           `line 1: delay "33"`,
		"0,1,1,2\n0,1,1,1.5":                 `line 2: delay "1.5"`,
		"0,1,1,-1":                           `line 1: delay "-1"`,
		"0,1,1,300":                          `line 1: delay "300"`,
		strings.Repeat("9", 99):              "line 1: 1 values",
		"0,1\n" + strings.Repeat("9", 1<<17): "line 2: ",
	} {
		_, err := Read(strings.NewReader(text), 2)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// random returns a random list.
func random(r *rand.Rand, agents uint32, n int, weighted bool) *List {
	all := make([]Edge, n)
	for i := range all {
		all[i] = Edge{r.Uint32N(agents), r.Uint32N(agents), WeightOne, 1}
		if weighted {
			all[i].Weight = int32(r.Int64N(2*MaxWeight*WeightOne+1) - MaxWeight*WeightOne)
		}
		if weighted && n%2 == 0 {
			all[i].Delay = uint8(1 + r.IntN(MaxDelay))
		}
	}
	return newList(all, weighted)
}

// TestPack: a packed list is unpacked to the same list, and damaged texts are refused and never
// panic.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 5))
	for range 200 {
		agents := 1 + r.Uint32N(100)
		if r.IntN(4) == 0 {
			agents = math.MaxUint32
		}
		want := random(r, agents, r.IntN(300), r.IntN(2) == 0)
		text := want.Pack()
		got, err := Unpack(text, 300)
		if err != nil || got.Weighted != want.Weighted || got.Longest != want.Longest ||
			!slices.Equal(got.Edges, want.Edges) {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
		if n := len(want.Edges); n > 0 {
			if _, err := Unpack(text, n-1); !errors.Is(err, ErrInvalid) {
				t.Errorf("%d edges of %d: %v", n, n-1, err)
			}
		}
		damaged := []byte(text)
		damaged[r.IntN(len(damaged))] = "Ab+/=,"[r.IntN(6)]
		if got, err := Unpack(string(damaged), 300); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("damaged: %+v, %v", got, err)
		}
		if _, err := Unpack(text[:len(text)/2], 300); !errors.Is(err, ErrInvalid) {
			t.Errorf("half of a text: %v", err)
		}
	}
}

// TestRows: rows have each edge once, twice if it is not directed, in the order of the list.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 6))
	for range 100 {
		n := 1 + r.Uint32N(20)
		l := random(r, n, r.IntN(100), r.IntN(2) == 0)
		directed, out := r.IntN(2) == 0, r.IntN(2) == 0
		type link struct {
			column uint32
			weight int32
			delay  uint8
		}
		want := make([][]link, n)
		for _, e := range l.Edges {
			row, column := e.To, e.From
			if out {
				row, column = column, row
			}
			want[row] = append(want[row], link{column, e.Weight, e.Delay})
			if !directed && row != column {
				want[column] = append(want[column], link{row, e.Weight, e.Delay})
			}
		}
		make := l.In
		if out {
			make = l.Out
		}
		got, err := make(int64(n), directed)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			from, to := got.Offsets[i], got.Offsets[i+1]
			if int(to-from) != len(w) {
				t.Fatalf("agent %d has %d links, want %d", i, to-from, len(w))
			}
			for k, link := range w {
				at := from + uint64(k)
				if got.Columns[at] != link.column || l.Weighted && got.Weights[at] != link.weight ||
					got.Delays != nil && got.Delays[at] != link.delay {
					t.Fatalf("link %d of agent %d differs", k, i)
				}
			}
		}
		if l.Weighted != (got.Weights != nil) || l.Longest > 1 != (got.Delays != nil) {
			t.Error("weights or delays of a list without, or none of a list with them")
		}
		if most := l.Agents(); most > 0 {
			if _, err := make(most-1, directed); !errors.Is(err, ErrInvalid) {
				t.Errorf("%d agents of %d: %v", most, most-1, err)
			}
		}
	}
}
