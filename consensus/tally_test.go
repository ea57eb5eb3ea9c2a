package consensus

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// dumb counts ballot by ballot, as the package comment says it.
func dumb(candidates int, ballots []byte, weights, priorities []uint32) Tally {
	t := Tally{Counts: make([]uint64, candidates)}
	for i, b := range ballots {
		w := uint64(1)
		if weights != nil {
			w = uint64(weights[i])
		}
		t.Total += w
		if int(b) < candidates {
			t.Counts[b] += w
		} else if b == 255 {
			t.Abstentions += w
		} else {
			t.Invalid += w
		}
	}
	for i, p := range priorities {
		if !t.Leader.Elected || p > t.Leader.Priority {
			t.Leader = Leader{Agent: uint64(i), Priority: p, Elected: true}
		}
	}
	return t
}

// randomBallots are of one of four characters: uniform over candidates, skewed to one, all equal,
// any byte.
func randomBallots(r *rand.Rand, n, candidates int) []byte {
	b := make([]byte, n)
	kind, one := r.IntN(4), byte(r.IntN(candidates))
	for i := range b {
		switch {
		case kind == 3:
			b[i] = byte(r.Uint32())
		case kind == 2 || kind == 1 && r.IntN(100) != 0:
			b[i] = one
		case r.IntN(8) == 0:
			b[i] = Abstain
		default:
			b[i] = byte(r.IntN(candidates))
		}
		if kind < 2 && r.IntN(500) == 0 {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

func randomCandidates(r *rand.Rand) int {
	return []int{1, 2, 5, 7, 8, 9, 15, 16, 17, 255, 256, 1 + r.IntN(256)}[r.IntN(12)]
}

// TestFastAgainstDumb counts random ballots, cut in parts at random places and merged, in both
// ways.
func TestFastAgainstDumb(t *testing.T) {
	cases := 50_000
	if testing.Short() {
		cases = 2000
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range cases {
		candidates, n := randomCandidates(r), r.IntN(600)
		ballots := randomBallots(r, n, candidates)
		priorities := make([]uint32, n)
		for j := range priorities {
			priorities[j] = r.Uint32N(50)
		}
		var weights []uint32
		if r.IntN(4) == 0 {
			weights = make([]uint32, n)
			for j := range weights {
				weights[j] = r.Uint32() >> r.IntN(32)
			}
		}
		have, _ := NewTally(candidates)
		for lo := 0; lo < n; {
			hi := lo + 1 + r.IntN(n-lo)
			part, _ := NewTally(candidates)
			err := part.Cast(ballots[lo:hi])
			if weights != nil {
				part, _ = NewTally(candidates)
				err = part.CastWeighted(ballots[lo:hi], weights[lo:hi])
			}
			part.Nominate(uint64(lo), priorities[lo:hi])
			if err := errors.Join(err, have.Merge(part)); err != nil {
				t.Fatal(err)
			}
			lo = hi
		}
		if need := dumb(candidates, ballots, weights, priorities); !reflect.DeepEqual(have, need) {
			t.Fatalf("case %d, %d candidates, %v: got %+v, want %+v", i, candidates, ballots, have, need)
		}
	}
}

func TestPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		candidates, n := 1+r.IntN(MaxPacked), r.IntN(200)
		packed := make([]byte, PackedLen(n))
		bytes := make([]byte, n)
		for i := range bytes {
			v := byte(r.IntN(16))
			packed[i/2] |= v << (4 * (i % 2))
			if bytes[i] = v; v == AbstainPacked && candidates < MaxPacked {
				bytes[i] = Abstain
			}
		}
		if n%2 == 1 {
			packed[n/2] |= 0x70 // no ballot, and not counted
		}
		have, _ := NewTally(candidates)
		if err := have.CastPacked(packed, n); err != nil {
			t.Fatal(err)
		}
		if need := dumb(candidates, bytes, nil, nil); !reflect.DeepEqual(have, need) {
			t.Fatalf("%d candidates, %v: got %+v, want %+v", candidates, bytes, have, need)
		}
		again := make([]byte, len(packed))
		if err := Pack(again, bytes, candidates); err != nil {
			t.Fatal(err)
		}
		repacked, _ := NewTally(candidates)
		if err := repacked.CastPacked(again, n); err != nil || !reflect.DeepEqual(have, repacked) {
			t.Fatalf("packed again: got %+v, want %+v (%v)", repacked, have, err)
		}
	}
}

// TestMerge: associative, commutative, and the empty tally is neutral.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 10_000 {
		candidates := randomCandidates(r)
		random := func() Tally {
			n := r.IntN(20)
			priorities := make([]uint32, n)
			for i := range priorities {
				priorities[i] = r.Uint32N(4)
			}
			return dumb(candidates, randomBallots(r, n, candidates), nil, priorities)
		}
		sum := func(parts ...Tally) Tally {
			s, _ := NewTally(candidates)
			for _, p := range parts {
				if err := s.Merge(p); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		a, b, c := random(), random(), random()
		whole := sum(a, b, c)
		for _, other := range []Tally{
			sum(sum(a, b), c), sum(a, sum(b, c)), sum(c, b, a), sum(b, a, c),
			sum(a, sum(), b, c),
		} {
			if !reflect.DeepEqual(whole, other) {
				t.Fatalf("%+v and %+v", whole, other)
			}
		}
	}
}

func TestTallyRefusals(t *testing.T) {
	for _, n := range []int{-1, 0, 257} {
		if _, err := NewTally(n); !errors.Is(err, ErrCandidates) {
			t.Errorf("%d candidates: %v", n, err)
		}
	}
	tally, _ := NewTally(17)
	full := Tally{Counts: make([]uint64, 17), Invalid: math.MaxUint64, Total: math.MaxUint64}
	if err := errors.Join(tally.Cast([]byte{3}), tally.Cast(nil)); err != nil {
		t.Fatal(err)
	}
	before := tally.Clone()
	for what, c := range map[string]struct{ got, want error }{
		"merge of others":   {tally.Merge(Tally{Counts: make([]uint64, 5)}), ErrCandidates},
		"merge too many":    {tally.Merge(full), ErrOverflow},
		"cast too many":     {full.Cast([]byte{1}), ErrOverflow},
		"weigh too many":    {full.CastWeighted([]byte{1}, []uint32{1}), ErrOverflow},
		"packed for 17":     {tally.CastPacked([]byte{1}, 2), ErrCandidates},
		"a weight too few":  {tally.CastWeighted([]byte{1, 2}, []uint32{1}), ErrLength},
		"packed length":     {(&Tally{Counts: make([]uint64, 2)}).CastPacked([]byte{1}, 3), ErrLength},
		"packed negative":   {(&Tally{Counts: make([]uint64, 2)}).CastPacked(nil, -1), ErrLength},
		"pack for 17":       {Pack(nil, nil, 17), ErrCandidates},
		"pack an abstainer": {Pack(make([]byte, 1), []byte{Abstain}, 16), ErrCandidates},
		"pack an invalid":   {Pack(make([]byte, 1), []byte{77}, 15), ErrCandidates},
		"pack length":       {Pack(make([]byte, 2), []byte{7}, 15), ErrLength},
		"pack for none":     {Pack(nil, nil, 0), ErrCandidates},
		"unpack for none":   {Unpack(nil, nil, 0), ErrCandidates},
		"unpack for 17":     {Unpack(nil, nil, 17), ErrCandidates},
		"unpack length":     {Unpack(make([]byte, 3), make([]byte, 1), 16), ErrLength},
		"packed behind":     {(&Tally{Counts: make([]uint64, 2)}).CastPackedFrom(make([]byte, 2), 5, 0), ErrLength},
		"packed beyond":     {(&Tally{Counts: make([]uint64, 2)}).CastPackedFrom(make([]byte, 2), 1, 4), ErrLength},
		"packed before":     {(&Tally{Counts: make([]uint64, 2)}).CastPackedFrom(make([]byte, 2), -1, 1), ErrLength},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", what, c.got, c.want)
		}
	}
	if !reflect.DeepEqual(tally, before) {
		t.Errorf("a refusal changed the tally to %+v", tally)
	}
	for _, w := range []float64{-1, math.NaN(), math.Inf(1), 65536} {
		if _, err := Fixed(w); !errors.Is(err, ErrWeight) {
			t.Errorf("weight %v: %v", w, err)
		}
	}
	if w, err := Fixed(1.5); err != nil || w != 3*One/2 {
		t.Errorf("weight 1.5 is %d: %v", w, err)
	}
}

func TestRules(t *testing.T) {
	for _, text := range []string{
		"", "most", "quorum", "quorum 2", "quorum 0/3", "quorum 4/3", "quorum 1/0", "quorum -1/3", "quorum 1/3 of",
		"plurality of all",
		"majority of some", "majority 1/2", "quorum 1/4294967296",
	} {
		if r, err := ParseRule(text); !errors.Is(err, ErrRule) {
			t.Errorf("%q is %v: %v", text, r, err)
		}
	}
	for _, r := range []Rule{{Kind: 5}, {Kind: Quorum}, {Kind: Majority, Of: 2}} {
		if _, err := Decide(r, Tally{Counts: make([]uint64, 2)}); !errors.Is(err, ErrRule) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	// Sums near the end of 64 bits do not wrap.
	big := Tally{Counts: []uint64{math.MaxUint64 / 3 * 2, math.MaxUint64 / 3}, Total: math.MaxUint64}
	for text, winner := range map[string]int{
		"majority": 0, "quorum 2/3": 0, "quorum 3/4": None,
		"quorum 4294967294/4294967295": None,
	} {
		r, _ := ParseRule(text)
		if d, err := Decide(r, big); err != nil || d.Winner != winner {
			t.Errorf("%s of the largest tally: %d, want %d (%v)", text, d.Winner, winner, err)
		}
	}
}

func BenchmarkCast(b *testing.B) {
	const n = 1 << 24
	r := rand.New(rand.NewPCG(9, 10))
	for _, c := range []struct {
		name             string
		candidates, kind int
	}{
		{"5", 5, 0},
		{"5-abstentions", 5, 1},
		{"5-equal", 5, 2},
		{"5-any-byte", 5, 3},
		{"16", 16, 0},
		{"256", 256, 0},
		{"256-equal", 256, 2},
	} {
		ballots := make([]byte, n)
		for i := range ballots {
			switch {
			case c.kind == 3:
				ballots[i] = byte(r.Uint32())
			case c.kind == 1 && i%5 == 0:
				ballots[i] = Abstain
			case c.kind != 2:
				ballots[i] = byte(r.IntN(c.candidates))
			}
		}
		need := dumb(c.candidates, ballots, nil, nil)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				t, _ := NewTally(c.candidates)
				if err := t.Cast(ballots); err != nil || !slices.Equal(t.Counts, need.Counts) {
					b.Fatalf("got %v, want %v (%v)", t.Counts, need.Counts, err)
				}
			}
		})
	}
	packed := make([]byte, n/2)
	for i := range packed {
		packed[i] = byte(r.Uint32())
	}
	b.Run("16-packed", func(b *testing.B) {
		b.SetBytes(n) // a byte stands for a ballot
		for b.Loop() {
			t, _ := NewTally(16)
			if err := t.CastPacked(packed, n); err != nil || t.Total != n {
				b.Fatal(err)
			}
		}
	})
}
