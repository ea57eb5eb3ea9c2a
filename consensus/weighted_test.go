package consensus

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// hostileWeights are the float32 at which something could go wrong.
var hostileWeights = []float32{
	0, float32(math.Copysign(0, -1)), 1, 1.5, 0.5 / One, 1.5 / One, 2.5 / One, math.SmallestNonzeroFloat32,
	-math.SmallestNonzeroFloat32,
	-1, -1e-9, 65535, math.Nextafter32(65536, 0), 65536, math.Nextafter32(65536, 1e9), math.MaxFloat32,
	-math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0xFFC00001),
	math.Float32frombits(0x7F800001),
}

// dumbFractions weighs every ballot by Fixed itself.
func dumbFractions(candidates int, ballots []byte, weights []float32) Tally {
	t := Tally{Counts: make([]uint64, candidates)}
	for i, b := range ballots {
		w, err := Fixed(float64(weights[i]))
		if err != nil {
			t.BadWeights++
			continue
		}
		one := dumb(candidates, []byte{b}, []uint32{w}, nil)
		if err := t.Merge(one); err != nil {
			panic(err)
		}
	}
	return t
}

// TestFractions: float32 weights count as Fixed says, also where it refuses them, and bytes as the
// same numbers in 32 bits.
func TestFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 5000 {
		candidates, n := randomCandidates(r), r.IntN(200)
		ballots, weights, small, wide := randomBallots(r, n, candidates), make([]float32, n), make([]byte, n),
			make([]uint32, n)
		for j := range weights {
			weights[j] = r.Float32() * float32(int(1)<<r.IntN(17))
			if r.IntN(5) == 0 {
				weights[j] = hostileWeights[r.IntN(len(hostileWeights))]
			}
			small[j] = byte(r.Uint32())
			wide[j] = uint32(small[j])
		}
		have, _ := NewTally(candidates)
		if err := have.CastFractions(ballots, weights); err != nil {
			t.Fatal(err)
		}
		if need := dumbFractions(candidates, ballots, weights); !reflect.DeepEqual(have, need) {
			t.Fatalf("case %d, weights %v of %v: got %+v, want %+v", i, weights, ballots, have, need)
		}
		bytes, _ := NewTally(candidates)
		if err := bytes.CastWeighted8(ballots, small); err != nil ||
			!reflect.DeepEqual(bytes, dumb(candidates, ballots, wide, nil)) {
			t.Fatalf("case %d, weights %v of %v: got %+v (%v)", i, small, ballots, bytes, err)
		}
	}
	tally, _ := NewTally(2)
	if err := tally.CastFractions([]byte{1}, nil); !errors.Is(err, ErrLength) {
		t.Errorf("no weights: %v", err)
	}
	if err := tally.CastWeighted8([]byte{1}, nil); !errors.Is(err, ErrLength) {
		t.Errorf("no small weights: %v", err)
	}
	full := Tally{Counts: make([]uint64, 2), BadWeights: math.MaxUint64}
	if err := full.CastFractions([]byte{1}, []float32{-1}); !errors.Is(err, ErrOverflow) ||
		full.BadWeights != math.MaxUint64 {
		t.Errorf("one bad weight too many: %v", err)
	}
	if err := full.Merge(Tally{Counts: make([]uint64, 2), BadWeights: 1}); !errors.Is(err, ErrOverflow) ||
		full.BadWeights != math.MaxUint64 {
		t.Errorf("merge of one bad weight too many: %v", err)
	}
}

// TestPackedFrom: any run of packed ballots counts as the ballots that Unpack returns.
func TestPackedFrom(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 5000 {
		candidates, n := 1+r.IntN(MaxPacked), r.IntN(600)
		packed, ballots := make([]byte, PackedLen(n)), make([]byte, n)
		for i := range packed {
			packed[i] = byte(r.Uint32())
		}
		if err := Unpack(ballots, packed, candidates); err != nil {
			t.Fatal(err)
		}
		first := r.IntN(n + 1)
		count := r.IntN(n - first + 1)
		have, _ := NewTally(candidates)
		need := dumb(candidates, ballots[first:first+count], nil, nil)
		if err := have.CastPackedFrom(packed, first, count); err != nil || !reflect.DeepEqual(have, need) {
			t.Fatalf("%d from %d of %d: got %+v, want %+v (%v)", count, first, n, have, need, err)
		}
	}
	tally, _ := NewTally(2)
	for what, err := range map[string]error{
		"first":   tally.CastPackedFrom(make([]byte, 1), 3, 0),
		"n":       tally.CastPackedFrom(make([]byte, 1), 1, 2),
		"below":   tally.CastPackedFrom(make([]byte, 1), -1, 1),
		"unpack":  Unpack(make([]byte, 3), make([]byte, 1), 2),
		"too few": tally.CastPacked(make([]byte, 2), 1),
	} {
		if !errors.Is(err, ErrLength) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Unpack(nil, nil, 17); !errors.Is(err, ErrCandidates) {
		t.Errorf("unpack for 17: %v", err)
	}
}

// drawTally is a consistent tally, near the end of 64 bits now and then.
func drawTally(t *rapid.T, candidates int, name string) Tally {
	part := rapid.Uint64Max(1 << 20)
	if rapid.IntRange(0, 9).Draw(t, name+" size") == 0 {
		part = rapid.Uint64Max(math.MaxUint64 / uint64(candidates+2))
	}
	s := Tally{
		Abstentions: part.Draw(t, name), Invalid: part.Draw(t, name),
		BadWeights: rapid.Uint64Max(9).Draw(t, name),
	}
	s.Total = s.Abstentions + s.Invalid
	for range candidates {
		s.Counts = append(s.Counts, part.Draw(t, name))
		s.Total += s.Counts[len(s.Counts)-1]
	}
	s.Leader = Leader{Elected: rapid.Bool().Draw(t, name)}
	if s.Leader.Elected {
		s.Leader.Agent, s.Leader.Priority = rapid.Uint64Max(5).Draw(t, name), rapid.Uint32Max(3).Draw(t, name)
	}
	return s
}

// TestMergeLaws: merging is associative and commutative and refuses the same sums in every order
// and grouping.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates := rapid.IntRange(1, 6).Draw(t, "candidates")
		a, b, c := drawTally(t, candidates, "a"), drawTally(t, candidates, "b"), drawTally(t, candidates, "c")
		sum := func(parts ...Tally) (Tally, error) {
			s, _ := NewTally(candidates)
			for _, p := range parts {
				before := s.Clone()
				if err := s.Merge(p); err != nil {
					if !errors.Is(err, ErrOverflow) || !reflect.DeepEqual(s, before) {
						t.Fatalf("%v left %+v of %+v", err, s, before)
					}
					return s, err
				}
			}
			return s, nil
		}
		whole, refused := sum(a, b, c)
		check := func(what string, s Tally, err error) {
			if (err == nil) != (refused == nil) || err == nil && !reflect.DeepEqual(s, whole) {
				t.Fatalf("%s: %+v (%v), want %+v (%v)", what, s, err, whole, refused)
			}
		}
		s, err := sum(c, a, b)
		check("another order", s, err)
		if s, err = sum(b, c); err == nil {
			s, err = sum(a, s)
		}
		check("another grouping", s, err)
		s, err = sum(a, Tally{Counts: make([]uint64, candidates)}, b, c)
		check("with nothing", s, err)

		broken := a.Clone()
		broken.Total++
		if err := whole.Merge(broken); !errors.Is(err, ErrSum) {
			t.Fatalf("a tally that is not its parts: %v", err)
		}
		broken = Tally{Counts: make([]uint64, candidates), Abstentions: math.MaxUint64, Invalid: 1}
		if err := whole.Merge(broken); !errors.Is(err, ErrSum) {
			t.Fatalf("parts that wrap: %v", err)
		}
	})
}
