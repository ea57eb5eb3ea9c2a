package round_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
)

func merger(t testing.TB, d device.Device, o round.MergeOptions) *round.Merger {
	t.Helper()
	m, err := round.NewMerger(d, o)
	return owned(t, m, err)
}

// TestMergedShards: rounds of shards of many kinds of ballots and weights, some counted on the
// device and some that come as partials, merge to the decision of one big tally.
func TestMergedShards(t *testing.T) {
	const shards, capacity = 6, 3000
	d, r := opened(t), rand.New(rand.NewPCG(41, 42))
	for _, c := range []struct {
		candidates int
		rule       string
	}{{5, "majority"}, {16, "quorum 1/20 of all"}, {3, "weighted"}, {11, "unanimous"}} {
		rule, err := consensus.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		m := merger(t, d, round.MergeOptions{Candidates: c.candidates, Shards: shards, Rule: rule})
		var held []*round.Round
		for s := range shards {
			held = append(held, made(t, d, round.Options{
				Candidates: c.candidates, Rule: rule, Capacity: capacity, Packed: s%2 == 1,
				Weights: round.Weights(s % 4),
			}))
		}
		number := uint64(0)
		for range 25 {
			number += 1 + r.Uint64N(3)
			if err := m.Open(number); err != nil {
				t.Fatal(err)
			}
			whole, _ := consensus.NewTally(c.candidates)
			first := uint64(1) << r.IntN(40)
			for s, h := range held {
				n := r.IntN(capacity + 1)
				part, err := castShard(r, h, round.Weights(s%4), s%2 == 1, n, c.candidates, first)
				counted := false
				if r.IntN(3) > 0 {
					counted, err = count(t.Context(), m, h, s, first, err)
				} else if err == nil {
					var one consensus.Decision
					if one, err = h.DecideAs(t.Context(), number); err == nil {
						counted, err = m.Add(round.Partial(s, first, one))
					}
				}
				if err = errors.Join(err, whole.Merge(part)); err != nil || !counted {
					t.Fatalf("shard %d in round %d: %v, %v", s, number, counted, err)
				}
				if again, err := m.Add(consensus.Partial{Shard: s, Round: number, Tally: part}); again || err != nil {
					t.Fatalf("shard %d again: %v, %v", s, again, err)
				}
				if again, err := m.Count(t.Context(), h, s, first); again || err != nil {
					t.Fatalf("shard %d counted again: %v, %v", s, again, err)
				}
				first += 1 + r.Uint64N(1<<40)
			}
			if m.Missing() != 0 {
				t.Fatalf("%d missing", m.Missing())
			}
			need, err := consensus.Decide(rule, whole)
			need.Round = number
			have, err2 := m.Decide(t.Context())
			if err = errors.Join(err, err2); err != nil || !reflect.DeepEqual(have, need) || m.Last() != number {
				t.Fatalf("got %+v, want %+v (%v)", have, need, err)
			}
			for s, h := range held {
				if _, err := h.DecideAs(t.Context(), number); !errors.Is(err, consensus.ErrRound) {
					t.Fatalf("shard %d decides round %d again: %v", s, number, err)
				}
			}
		}
	}
}

// castShard casts n random ballots with weights of a kind and priorities, and returns the tally of a
// shard whose first agent has the id first.
func castShard(r *rand.Rand, h *round.Round, kind round.Weights, packed bool, n, candidates int, first uint64) (
	consensus.Tally, error,
) {
	ballots, err := castRandom(r, h, n, candidates, packed)
	part, _ := consensus.NewTally(candidates)
	if kind == round.Unweighted {
		err = errors.Join(err, part.Cast(ballots))
	} else {
		w := weightsOf(r, kind, n)
		err = errors.Join(err, w.give(h), w.cast(&part, ballots))
	}
	priorities := randomPriorities(r, n, 300)
	err = errors.Join(err, h.Prioritize(priorities))
	part.Nominate(first, priorities)
	return part, err
}

func count(ctx context.Context, m *round.Merger, r *round.Round, shard int, first uint64, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	return m.Count(ctx, r, shard, first)
}

// TestMergerIsAPoll: a Merger does what a consensus.Poll does.
func TestMergerIsAPoll(t *testing.T) {
	d := opened(t)
	rapid.Check(t, func(t *rapid.T) {
		candidates, shards := rapid.IntRange(1, 6).Draw(t, "candidates"), rapid.IntRange(1, 5).Draw(t, "shards")
		rule := drawRule(t)
		m, err := round.NewMerger(d, round.MergeOptions{Candidates: candidates, Shards: shards, Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		sameAsPoll(t, m, rule, candidates, shards)
	})
}

func drawRule(t *rapid.T) consensus.Rule {
	return consensus.Rule{
		Kind:   consensus.Kind(rapid.IntRange(0, 4).Draw(t, "rule")),
		Of:     consensus.Base(rapid.IntRange(0, 1).Draw(t, "of")),
		Quorum: consensus.Fraction{Num: 2, Den: 3},
	}
}

type poll interface {
	Open(round uint64) error
	Add(part consensus.Partial) (bool, error)
	Decide(ctx context.Context) (consensus.Decision, error)
	Missing() int
	Last() uint64
}

// sameAsPoll does the same random steps on m and on a consensus.Poll: late, early and repeated partials,
// partials whose sums do not fit, decisions too soon and twice.
func sameAsPoll(t *rapid.T, m poll, rule consensus.Rule, candidates, shards int) {
	var word consensus.Word
	p, err := consensus.NewPoll(&word, candidates, shards)
	if err != nil {
		t.Fatal(err)
	}
	open := uint64(0)
	same := func(what string, have, need error) {
		for _, class := range []error{
			consensus.ErrRound, consensus.ErrShard, consensus.ErrCandidates,
			consensus.ErrSum,
		} {
			if errors.Is(have, class) != errors.Is(need, class) || (have == nil) != (need == nil) {
				t.Fatalf("%s: %v, want %v", what, have, need)
			}
		}
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0:
			next := rapid.Uint64Range(0, open+2).Draw(t, "round")
			need := p.Open(next)
			same("open", m.Open(next), need)
			if need == nil {
				open = next
			}
		case 1:
			need, e := p.Decide(rule)
			have, err := m.Decide(context.Background())
			same("decide", err, e)
			if e == nil && !reflect.DeepEqual(have, need) {
				t.Fatalf("got %+v, want %+v", have, need)
			}
		default:
			part := drawPartial(t, candidates, shards, open)
			need, e := p.Add(part)
			have, err := m.Add(part)
			same("add", err, e)
			if have != need || open > 0 && m.Missing() != p.Missing() {
				t.Fatalf("%+v: %v and %d missing, want %v and %d", part, have, m.Missing(), need, p.Missing())
			}
		}
		if m.Last() != word.Load() {
			t.Fatalf("last round %d, want %d", m.Last(), word.Load())
		}
	}
}

// drawPartial draws a partial that may be of another shard, round or number of candidates, or torn.
func drawPartial(t *rapid.T, candidates, shards int, open uint64) consensus.Partial {
	part := consensus.Partial{
		Shard: rapid.IntRange(-1, shards).Draw(t, "shard"),
		Round: rapid.Uint64Range(0, open+1).Draw(t, "of"),
	}
	for range candidates + rapid.IntRange(0, 20).Draw(t, "other")/20 {
		part.Tally.Counts = append(part.Tally.Counts, rapid.Uint64Max(1<<60).Draw(t, "count"))
		part.Tally.Total += part.Tally.Counts[len(part.Tally.Counts)-1]
	}
	part.Tally.Abstentions = rapid.Uint64Max(9).Draw(t, "abstentions")
	part.Tally.Total += part.Tally.Abstentions - uint64(rapid.IntRange(0, 20).Draw(t, "torn")/20)
	if rapid.Bool().Draw(t, "led") {
		part.Tally.Leader = consensus.Leader{
			Agent:    rapid.Uint64().Draw(t, "agent"),
			Priority: rapid.Uint32Max(2).Draw(t, "priority"), Elected: true,
		}
	}
	return part
}

func TestMergeRefusals(t *testing.T) {
	d := opened(t)
	for what, c := range map[string]struct {
		o    round.MergeOptions
		want error
	}{
		"no shards":     {round.MergeOptions{Candidates: 2}, consensus.ErrShard},
		"no candidates": {round.MergeOptions{Shards: 2}, consensus.ErrCandidates},
		"no rule": {
			round.MergeOptions{Candidates: 2, Shards: 2, Rule: consensus.Rule{Kind: 9}},
			consensus.ErrRule,
		},
	} {
		if m, err := round.NewMerger(d, c.o); !errors.Is(err, c.want) || m != nil {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	m := merger(t, d, round.MergeOptions{Candidates: 2, Shards: 2})
	held, other := made(t, d, round.Options{Candidates: 2, Capacity: 4}),
		made(t, d, round.Options{Candidates: 3, Capacity: 4})
	if err := errors.Join(held.Cast([]byte{1, 1, 0}), other.Cast([]byte{1})); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Count(t.Context(), held, 0, 0); !errors.Is(err, consensus.ErrRound) {
		t.Errorf("counted before a round: %v", err)
	}
	if err := m.Open(3); err != nil {
		t.Fatal(err)
	}
	_, candidates := m.Count(t.Context(), other, 0, 0)
	_, none := m.Count(t.Context(), nil, 0, 0)
	_, foreign := m.Count(t.Context(), made(t, opened(t), round.Options{Candidates: 2, Capacity: 1}), 0, 0)
	for what, err := range map[string]error{"other candidates": candidates, "none": none, "another device": foreign} {
		if !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := m.Count(t.Context(), held, 2, 0); !errors.Is(err, consensus.ErrShard) {
		t.Errorf("no such shard: %v", err)
	}

	// A shard that has closed the round by itself is no partial of it, and nothing is closed
	// without it.
	if _, err := held.DecideAs(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if ok, err := m.Count(t.Context(), held, 0, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := m.Decide(t.Context()); !errors.Is(err, consensus.ErrRound) || m.Last() != 0 {
		t.Errorf("a partial of a shard that had closed the round: %v, last round %d", err, m.Last())
	}
	// Two partials that do not fit 64 bits.
	half := consensus.Tally{Counts: []uint64{math.MaxUint64/2 + 1, 0}, Total: math.MaxUint64/2 + 1}
	if err := m.Open(4); err != nil {
		t.Fatal(err)
	}
	for s := range 2 {
		if ok, err := m.Add(consensus.Partial{Shard: s, Round: 4, Tally: half}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if _, err := m.Decide(t.Context()); !errors.Is(err, consensus.ErrOverflow) || m.Last() != 0 {
		t.Errorf("sums that do not fit: %v, last round %d", err, m.Last())
	}
	// The round after is decided as if nothing had been, with the shard whose partial was replaced.
	if err := m.Open(5); err != nil {
		t.Fatal(err)
	}
	for s := range 2 {
		if s == 1 {
			if ok, err := m.Add(consensus.Partial{
				Shard: s, Round: 5,
				Tally: consensus.Tally{Counts: []uint64{4, 0}, Total: 4},
			}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		} else if ok, err := m.Count(t.Context(), held, s, 1<<50); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := m.Decide(gone)
	if err == nil && (got.Winner != 0 || got.Total != 7 || got.Leader.Agent != 1<<50) {
		t.Errorf("got %+v", got)
	}
	if err := m.Open(6); err != nil || m.Last() > 5 {
		t.Errorf("after a wait that was given up: %v, last round %d", err, m.Last())
	}
	if got, err := held.Decide(t.Context()); err != nil || got.Round != 6 || got.Winner != 1 {
		t.Errorf("a shard by itself: %+v, %v", got, err)
	}
}
