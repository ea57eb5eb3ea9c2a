package round_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// opened opens the device under test. At its end nothing may be open on it.
func opened(t testing.TB) device.Device { t.Helper(); return opentest.Device(t) }

func made(t testing.TB, d device.Device, o round.Options) *round.Round {
	t.Helper()
	r, err := round.New(d, o)
	return owned(t, r, err)
}

// owned closes what a test has made, twice, at its end.
func owned[T io.Closer](t testing.TB, c T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func randomBallots(r *rand.Rand, n, candidates int) []byte {
	b := make([]byte, n)
	for i := range b {
		switch r.IntN(40) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] = consensus.Abstain
		default:
			b[i] = byte(r.IntN(candidates))
		}
	}
	return b
}

// randomPacked returns n packed ballots; some may be invalid.
func randomPacked(r *rand.Rand, n int) []byte {
	packed := make([]byte, consensus.PackedLen(n))
	for i := range packed {
		packed[i] = byte(r.Uint32())
	}
	return packed
}

func randomPriorities(r *rand.Rand, n int, below uint32) []uint32 {
	priorities := make([]uint32, n)
	for i := range priorities {
		priorities[i] = r.Uint32N(below)
	}
	return priorities
}

// maybePrioritize gives the ballots of a round random priorities, in half of the calls.
func maybePrioritize(r *rand.Rand, held *round.Round, n int) ([]uint32, error) {
	if r.IntN(2) > 0 {
		return nil, nil
	}
	priorities := randomPriorities(r, n, 1000)
	return priorities, held.Prioritize(priorities)
}

// castRandom casts n random ballots and returns them, a byte each.
func castRandom(r *rand.Rand, held *round.Round, n, candidates int, packed bool) ([]byte, error) {
	ballots := randomBallots(r, n, candidates)
	if !packed {
		return ballots, held.Cast(ballots)
	}
	p := randomPacked(r, n)
	return ballots, errors.Join(held.CastPacked(p, n), consensus.Unpack(ballots, p, candidates))
}

func plain(t testing.TB, rule consensus.Rule, candidates int, number uint64, cast func(*consensus.Tally) error, n int,
	priorities []uint32,
) consensus.Decision {
	t.Helper()
	tally, err := consensus.NewTally(candidates)
	if err == nil {
		err = cast(&tally)
	}
	if err != nil {
		t.Fatal(err)
	}
	tally.Leader.Elected = n > 0 && priorities == nil
	tally.Nominate(0, priorities)
	d, err := consensus.Decide(rule, tally)
	if err != nil {
		t.Fatal(err)
	}
	d.Round = number
	return d
}

// TestRounds decides random electorates in rounds of all kinds, as the pure-Go tally does.
func TestRounds(t *testing.T) {
	const capacity = 20_001
	d, r := opened(t), rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		candidates int
		packed     bool
		rule       string
		resident   time.Duration
	}{
		{5, false, "majority", 0},
		{16, false, "quorum 1/20", 0},
		{256, false, "plurality", 0},
		{8, false, "quorum 1/9 of all", 0},
		{5, true, "majority of all", 0},
		{16, true, "weighted", 0},
		{1, false, "unanimous", 0},
		{5, false, "majority", 100 * time.Millisecond},
		{16, false, "plurality", time.Millisecond},
	} {
		rule, err := consensus.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		held := made(t, d, round.Options{
			Candidates: c.candidates, Rule: rule, Packed: c.packed, Capacity: capacity,
			Resident: c.resident,
		})
		for number := uint64(1); number <= 40; number++ {
			n := []int{0, 1, 33, 1000, capacity, r.IntN(capacity)}[r.IntN(6)]
			ballots := randomBallots(r, n, c.candidates)
			var cast func(*consensus.Tally) error
			if c.packed {
				packed := randomPacked(r, n)
				cast = func(t *consensus.Tally) error { return t.CastPacked(packed, n) }
				err = held.CastPacked(packed, n)
			} else {
				cast = func(t *consensus.Tally) error { return t.Cast(ballots) }
				err = held.Cast(ballots)
			}
			priorities, err2 := maybePrioritize(r, held, n)
			if err = errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			have, err := held.Decide(t.Context())
			need := plain(t, rule, c.candidates, number, cast, n, priorities)
			if err != nil || !reflect.DeepEqual(have, need) {
				t.Fatalf("%+v, %d ballots: got %+v, want %+v (%v)", c, n, have, need, err)
			}
		}
	}
}

// TestRandomRounds is 50,000 small electorates, pointed at anywhere in device memory.
func TestRandomRounds(t *testing.T) {
	cases := 50_000
	if testing.Short() {
		cases = 1000
	}
	const size = 1 << 12
	d, r := opened(t), rand.New(rand.NewPCG(3, 4))
	memory := make([]byte, size)
	for _, candidates := range []int{5, 11, 200} {
		held := made(t, d, round.Options{Candidates: candidates})
		b, err := d.Alloc(size, "test")
		if err != nil {
			t.Fatal(err)
		}
		for i := range cases / 3 {
			if i%1000 == 0 {
				copy(memory, randomBallots(r, size, candidates))
				if err := b.Write(0, memory); err != nil {
					t.Fatal(err)
				}
			}
			off := r.IntN(size)
			n := min(r.IntN(1<<r.IntN(12)), size-off)
			if err := held.Point(b, int64(off), n); err != nil {
				t.Fatal(err)
			}
			have, err := held.Decide(t.Context())
			need := plain(t, consensus.Rule{}, candidates, uint64(i+1),
				func(t *consensus.Tally) error { return t.Cast(memory[off : off+n]) }, n, nil)
			if err != nil || !reflect.DeepEqual(have, need) {
				t.Fatalf("%d ballots at %d: got %+v, want %+v (%v)", n, off, have, need, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNumbers: the numbers of rounds only grow, and a wait that was given up loses no round.
func TestNumbers(t *testing.T) {
	d := opened(t)
	held := made(t, d, round.Options{Candidates: 2, Capacity: 10})
	ctx := context.Background()
	if _, err := held.Decide(ctx); !errors.Is(err, device.ErrInvalidArgument) {
		t.Errorf("a decision without ballots: %v", err)
	}
	if err := held.Cast([]byte{1, 1, 0}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		round uint64
		stale bool
	}{{5, false}, {5, true}, {4, true}, {0, true}, {6, false}, {1 << 50, false}, {7, true}} {
		got, err := held.DecideAs(ctx, c.round)
		if c.stale != errors.Is(err, consensus.ErrRound) || !c.stale &&
			(err != nil || got.Round != c.round || got.Winner != 1) {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := held.Decide(gone); err == nil {
		t.Log("the decision came before the context was looked at")
	}
	if err := held.Cast([]byte{0}); err != nil {
		t.Fatal(err)
	}
	got, err := held.Decide(ctx)
	if err != nil || got.Round <= 1<<50 || got.Round > 1<<50+2 || got.Round != held.Last() || got.Winner != 0 ||
		got.Total != 1 {
		t.Errorf("after a wait that was given up: %+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	d := opened(t)
	for what, c := range map[string]struct {
		o    round.Options
		want error
	}{
		"no candidates":   {round.Options{}, consensus.ErrCandidates},
		"too many":        {round.Options{Candidates: 257}, consensus.ErrCandidates},
		"too many packed": {round.Options{Candidates: 17, Packed: true}, consensus.ErrCandidates},
		"no fraction": {
			round.Options{Candidates: 2, Rule: consensus.Rule{Kind: consensus.Quorum}},
			consensus.ErrRule,
		},
		"a negative reserve": {round.Options{Candidates: 2, Capacity: -1}, device.ErrInvalidArgument},
		"too many ballots":   {round.Options{Candidates: 2, Capacity: 1 << 32}, device.ErrInvalidArgument},
	} {
		if r, err := round.New(d, c.o); !errors.Is(err, c.want) || r != nil {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	b, err := d.Alloc(100, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	held, packed := made(t, d, round.Options{Candidates: 2, Capacity: 3}),
		made(t, d, round.Options{Candidates: 2, Capacity: 3, Packed: true})
	for what, err := range map[string]error{
		"priorities first":      held.Prioritize([]uint32{1}),
		"pointed at first":      held.PointPriorities(b, 0),
		"too many":              held.Cast(make([]byte, 4)),
		"packed of bytes":       held.CastPacked(make([]byte, 1), 2),
		"bytes of packed":       packed.Cast(make([]byte, 1)),
		"a packed one too many": packed.CastPacked(make([]byte, 2), 4),
		"packed length":         packed.CastPacked(make([]byte, 1), 3),
		"no memory":             held.Point(nil, 0, 0),
		"behind the end":        held.Point(b, 50, 51),
		"before the beginning":  held.Point(b, -1, 1),
		"overflow":              held.Point(b, 1<<62, 1<<31),
		"half a byte too many":  packed.Point(b, 0, 201),
		"negative":              held.Point(b, 0, -1),
	} {
		if !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(held.Point(b, 0, 20), packed.Point(b, 0, 200)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"not aligned": held.PointPriorities(b, 4), "too few": held.PointPriorities(b, 32),
		"none":           held.PointPriorities(nil, 0),
		"another number": held.Prioritize(make([]uint32, 3)),
	} {
		if !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestGroups decides groups of many sizes, as the pure-Go tally does one by one.
func TestGroups(t *testing.T) {
	d, r := opened(t), rand.New(rand.NewPCG(7, 8))
	rule := consensus.Rule{Kind: consensus.Majority}
	for i := range 60 {
		candidates := []int{2, 5, 8, 16, 40, 256}[i%6]
		o := round.GroupOptions{
			Candidates: candidates, Rule: rule, Counts: i%3 != 0, Reserve: true,
			Packed: i%12 >= 6 && candidates <= consensus.MaxPacked,
		}
		starts := []uint32{0}
		if i%2 == 0 {
			o.Size, o.Count = 1+r.IntN(300), r.IntN(200)
			for g := range o.Count {
				starts = append(starts, uint32((g+1)*o.Size))
			}
		} else {
			for range r.IntN(200) {
				starts = append(starts, starts[len(starts)-1]+r.Uint32N(1<<r.IntN(14)))
			}
			o.Starts = starts
		}
		groups, err := round.NewGroups(d, o)
		if err != nil {
			t.Fatal(err)
		}
		n := groups.Len()
		ballots := randomBallots(r, n, min(candidates, 3))
		data := ballots
		if o.Packed {
			data = make([]byte, consensus.PackedLen(n))
			for j, v := range ballots {
				if v != consensus.Abstain && v > 15 {
					v = consensus.AbstainPacked - 1
				}
				data[j/2] |= v & 0xF << (4 * (j % 2))
			}
			if err := consensus.Unpack(ballots, data, candidates); err != nil {
				t.Fatal(err)
			}
		}
		priorities := make([]uint32, n)
		for j := range priorities {
			priorities[j] = r.Uint32N(9)
		}
		b, err := d.Alloc(int64(4*n), "test")
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(b.Write(0, device.Bytes(priorities)), groups.Cast(data))
		if i%4 == 0 {
			priorities = nil
		} else {
			err = errors.Join(err, groups.PointPriorities(b, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
		count := len(starts) - 1
		winners, leaders, rows := make([]int32, count), make([]int32, count), make([]uint32, count*(candidates+2))
		have, err := groups.Decide(t.Context())
		err = errors.Join(err, groups.Winners(winners), groups.Leaders(leaders))
		if o.Counts {
			err = errors.Join(err, groups.Counts(rows))
		} else if !errors.Is(groups.Counts(rows), device.ErrInvalidArgument) {
			t.Error("counts that were not asked for")
		}
		if err != nil {
			t.Fatal(err)
		}
		decided := 0
		for g := range count {
			lo, hi := starts[g], starts[g+1]
			var mine []uint32
			if priorities != nil {
				mine = priorities[lo:hi]
			}
			need := plain(t, rule, candidates, 1, func(t *consensus.Tally) error { return t.Cast(ballots[lo:hi]) },
				int(hi-lo), mine)
			leader := int32(-1)
			if need.Leader.Elected {
				leader = int32(need.Leader.Agent)
			}
			if int(winners[g]) != need.Winner || leaders[g] != leader {
				t.Fatalf("group %d of %d: winner %d, leader %d, want %+v", g, hi-lo, winners[g], leaders[g], need)
			}
			if need.QuorumMet {
				decided++
			}
			row := rows[g*(candidates+2):]
			for c, v := range append(need.Counts, need.Abstentions, need.Invalid) {
				if o.Counts && uint64(row[c]) != v {
					t.Fatalf("group %d: counts %v, want %+v", g, row[:candidates+2], need)
				}
			}
		}
		if need := (round.GroupDecision{Round: 1, Groups: count, Decided: decided}); have != need {
			t.Errorf("got %+v, want %+v", have, need)
		}
		if _, err := groups.DecideAs(t.Context(), 1); !errors.Is(err, consensus.ErrRound) {
			t.Errorf("a round twice: %v", err)
		}
		if err := errors.Join(groups.Close(), groups.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
	for what, o := range map[string]round.GroupOptions{
		"neither": {Candidates: 2}, "both": {Candidates: 2, Size: 1, Count: 1, Starts: []uint32{0, 1}},
		"falling": {Candidates: 2, Starts: []uint32{0, 2, 1}}, "later": {Candidates: 2, Starts: []uint32{1, 2}},
		"many":        {Candidates: 2, Size: 1 << 20, Count: 1 << 20},
		"other count": {Candidates: 2, Count: 3, Starts: []uint32{0, 2}},
	} {
		if _, err := round.NewGroups(d, o); !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := round.NewGroups(d, round.GroupOptions{Size: 1, Candidates: 17, Packed: true}); !errors.Is(err,
		consensus.ErrCandidates) {
		t.Errorf("too many for packed ballots: %v", err)
	}
	if _, err := round.NewGroups(d, round.GroupOptions{Size: 1}); !errors.Is(err, consensus.ErrCandidates) {
		t.Errorf("no candidates: %v", err)
	}
}
