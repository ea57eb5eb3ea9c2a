package consensus

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawnVoters are sets of voters whose chances of the lead are counted.
func drawnVoters() map[string][]uint32 {
	sets, r := map[string][]uint32{}, rand.New(rand.NewPCG(61, 1))
	for i := range uint32(60) {
		sets["consecutive"] = append(sets["consecutive"], 1_000_000+i)
		sets["every 65536th"] = append(sets["every 65536th"], i<<16)
		sets["random"] = append(sets["random"], r.Uint32())
		sets["pairs"] = append(sets["pairs"], i/2*1000+i%2)
	}
	return sets
}

// TestDrawIsFair: each of 60 voters leads as often as the others over rounds, and over seeds, and
// who leads a round says nothing about who leads the next one. The statistic has 59 degrees of
// freedom: a mean of 59 and a deviation of 11.
func TestDrawIsFair(t *testing.T) {
	const rounds, most = 24_000, 59 + 5*11
	for name, voters := range drawnVoters() {
		for of, draw := range map[string]func(i uint64) Draw{
			"rounds": func(i uint64) Draw { return NewDraw(42, i) },
			"seeds":  func(i uint64) Draw { return NewDraw(i, 7) },
		} {
			led, steps := make([]float64, len(voters)), make([]float64, len(voters))
			last := 0
			for i := range uint64(rounds) {
				d, best := draw(i), 0
				for k, id := range voters {
					if d.Priority(id) > d.Priority(voters[best]) {
						best = k
					}
				}
				led[best]++
				steps[(best-last+len(voters))%len(voters)]++
				last = best
			}
			for what, counts := range map[string][]float64{"leaders": led, "changes": steps} {
				chi, want := 0.0, float64(rounds)/float64(len(voters))
				for _, n := range counts {
					chi += (n - want) * (n - want) / want
				}
				if chi > most {
					t.Errorf("%s voters over %s: the chi-square of %s is %.0f, want at most %d", name, of, what, chi,
						most)
				}
			}
		}
	}
}

// TestDrawIsPublic: docs/protocol.md has these numbers, which clients in other languages compute
// too.
func TestDrawIsPublic(t *testing.T) {
	d := NewDraw(42, 1)
	key, salt := d.Words()
	got := [4]uint32{key, salt, d.Priority(0), d.Priority(950438)}
	if want := [4]uint32{4082100516, 2358461157, 1377416880, 3953315733}; got != want {
		t.Errorf("%d, want %d", got, want)
	}
	if DrawOf(key, salt) != d {
		t.Error("DrawOf does not return the draw of the words")
	}
}

// TestDrawIsOneToOne: no two agents have the same priority.
func TestDrawIsOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := NewDraw(rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "round"))
		a, b := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b")
		if a != b && d.Priority(a) == d.Priority(b) {
			t.Errorf("%v: agents %d and %d have the same priority", d, a, b)
		}
	})
}

// plainElection is the decision of agents in a loop over all of them.
func plainElection(r Rule, d Draw, votes []int, candidates int, incumbent Leader) Decision {
	t := Tally{Counts: make([]uint64, candidates), Total: uint64(len(votes))}
	for _, v := range votes {
		if v == None {
			t.Abstentions++
		} else {
			t.Counts[v]++
		}
	}
	out, err := Decide(r, t)
	if err != nil {
		panic(err)
	}
	out.Leader = Leader{}
	for id, v := range votes {
		if v == None || v != out.Winner {
			continue
		}
		l := Leader{Agent: uint64(id), Priority: d.Priority(uint32(id)), Elected: true}
		if incumbent.Elected && incumbent.Agent == uint64(id) {
			l.Term = incumbent.Term
			out.Leader = l
			break
		}
		if !out.Leader.Elected || l.Priority > out.Leader.Priority {
			out.Leader = l
		}
	}
	return out
}

// TestElectionOfParts: elections of parts, merged in any order and grouping, have the leader of a
// loop over all agents. It votes for the winner, is the incumbent if that votes for it, and there
// is none without a winner.
func TestElectionOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates := rapid.IntRange(1, 5).Draw(t, "candidates")
		votes := rapid.SliceOfN(rapid.IntRange(None, candidates-1), 0, 40).Draw(t, "votes")
		d := NewDraw(rapid.Uint64().Draw(t, "seed"), 1)
		rule := Rule{Kind: rapid.SampledFrom([]Kind{Plurality, Majority, Unanimous}).Draw(t, "rule")}
		incumbent := Leader{
			Agent: uint64(rapid.IntRange(0, 45).Draw(t, "incumbent")), Elected: rapid.Bool().Draw(t, "is"), Term: 3,
		}
		var parts []Election
		newPart := func() Election {
			e, err := NewElection(candidates)
			if err != nil {
				t.Fatalf("NewElection: %v", err)
			}
			return e
		}
		part := newPart()
		for id, v := range votes {
			part.Tally.Total++
			if v == None {
				part.Tally.Abstentions++
			} else {
				part.Tally.Counts[v]++
				l := Leader{Agent: uint64(id), Priority: d.Priority(uint32(id)), Elected: true}
				if incumbent.Elected && incumbent.Agent == l.Agent {
					l.Term = incumbent.Term
				}
				part.Bid(v, l)
			}
			if rapid.Bool().Draw(t, "cut") {
				parts = append(parts, part)
				part = newPart()
			}
		}
		parts = append(parts, part)
		for len(parts) > 1 {
			i := rapid.IntRange(0, len(parts)-1).Draw(t, "part")
			from := parts[i]
			parts = append(parts[:i], parts[i+1:]...)
			into := &parts[rapid.IntRange(0, len(parts)-1).Draw(t, "into")]
			if err := into.Merge(from); err != nil {
				t.Fatalf("Merge: %v", err)
			}
		}
		got, err := parts[0].Decide(rule)
		if err != nil {
			t.Fatalf("Decide: %v", err)
		}
		want := plainElection(rule, d, votes, candidates, incumbent)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if got.Leader.Elected != (got.Winner != None) || got.Leader.Elected && votes[got.Leader.Agent] != got.Winner {
			t.Fatalf("%+v of the votes %v", got, votes)
		}
	})
}

// TestElectionRefuses: what no agents make is refused, and changes nothing.
func TestElectionRefuses(t *testing.T) {
	bid := Leader{Agent: 3, Priority: 9, Elected: true}
	all := Election{Tally{Counts: []uint64{1, 0}, Total: 1}, []Leader{bid, {}}}
	for name, c := range map[string]struct {
		of   Election
		want error
	}{
		"votes without a bid": {Election{Tally{Counts: []uint64{0, 2}, Total: 2}, make([]Leader, 2)}, ErrBid},
		"a bid without votes": {Election{Tally{Counts: []uint64{0, 0}}, []Leader{{}, bid}}, ErrBid},
		"fewer bids":          {Election{Tally{Counts: []uint64{1, 0}, Total: 1}, []Leader{bid}}, ErrCandidates},
		"fewer counts":        {Election{Tally{Counts: []uint64{1}, Total: 1}, []Leader{bid, {}}}, ErrCandidates},
		"another total":       {Election{Tally{Counts: []uint64{1, 0}, Total: 2}, []Leader{bid, {}}}, ErrSum},
	} {
		before := Election{all.Tally.Clone(), append([]Leader(nil), all.Bids...)}
		if err := all.Merge(c.of); !errors.Is(err, c.want) || !reflect.DeepEqual(all, before) {
			t.Errorf("%s: error %v and %+v, want %v", name, err, all, c.want)
		}
	}
	if _, err := all.Decide(Rule{Kind: 9}); !errors.Is(err, ErrRule) {
		t.Errorf("Decide: error %v, want %v", err, ErrRule)
	}
	if _, err := NewElection(257); !errors.Is(err, ErrCandidates) {
		t.Errorf("NewElection: error %v, want %v", err, ErrCandidates)
	}
}
