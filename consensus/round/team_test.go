package round_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/host"
)

var deviceNames = flag.String("devices", "host,host,host", "the devices of a team, two or more, between commas")

// collective opens the devices of a team. At its end nothing may be open on them.
func collective(t testing.TB) device.Collective {
	t.Helper()
	var all []device.Device
	t.Cleanup(func() {
		for _, d := range all {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	log := slog.New(slog.DiscardHandler)
	for name := range strings.SplitSeq(*deviceNames, ",") {
		d, err := cuda.Open(t.Context(), name, cuda.Options{Logger: log, CacheDir: os.TempDir() + "/exoswarm-kernels"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	c, err := cuda.OpenCollective(t.Context(), all, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("route %+v over %s", c.Route(), *deviceNames)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func team(t testing.TB, c device.Collective, o round.TeamOptions) *round.Team {
	t.Helper()
	m, err := round.NewTeam(c, o)
	return owned(t, m, err)
}

func rankOf(shards []int, shard int) (rank int) {
	for shard >= shards[rank] {
		shard -= shards[rank]
		rank++
	}
	return rank
}

// TestTeam: rounds of shards on several devices, some counted there and some that come as partials,
// have the decisions of a Merger of one device for the same parts.
func TestTeam(t *testing.T) {
	const capacity = 3000
	c, r := collective(t), rand.New(rand.NewPCG(43, 44))
	single := opened(t)
	shards := make([]int, len(c.Devices()))
	total := 0
	for rank := range shards {
		shards[rank] = (rank + 2) % 4 // 2, 3, 0 and so on
		total += shards[rank]
	}
	for _, k := range []struct {
		candidates int
		rule       string
	}{{5, "majority"}, {16, "quorum 1/20 of all"}, {3, "weighted"}, {256, "plurality"}} {
		rule, err := consensus.ParseRule(k.rule)
		if err != nil {
			t.Fatal(err)
		}
		whole := merger(t, single, round.MergeOptions{Candidates: k.candidates, Shards: total, Rule: rule})
		m := team(t, c, round.TeamOptions{Candidates: k.candidates, Shards: shards, Rule: rule})
		var held []*round.Round
		for s := range total {
			held = append(held, made(t, c.Devices()[rankOf(shards, s)],
				round.Options{Candidates: k.candidates, Rule: rule, Capacity: capacity, Weights: round.Weights(s % 4)}))
		}
		number := uint64(0)
		for range 20 {
			number += 1 + r.Uint64N(3)
			if err := errors.Join(m.Open(number), whole.Open(number)); err != nil {
				t.Fatal(err)
			}
			silent := r.IntN(3 * total) // often nobody: all shards are heard
			for s, h := range held {
				if s == silent {
					continue
				}
				first := uint64(s) << 40
				part, err := castShard(r, h, round.Weights(s%4), false, r.IntN(capacity+1), k.candidates, first)
				if err != nil {
					t.Fatal(err)
				}
				partial := consensus.Partial{Shard: s, Round: number, Tally: part}
				var counted bool
				if r.IntN(3) > 0 {
					counted, err = m.Count(t.Context(), h, s, first)
				} else {
					counted, err = m.Add(partial)
				}
				if counted2, err2 := whole.Add(partial); !counted || !counted2 || errors.Join(err, err2) != nil {
					t.Fatalf("shard %d in round %d: %v %v, %v %v", s, number, counted, err, counted2, err2)
				}
				if again, err := m.Add(partial); again || err != nil {
					t.Fatalf("shard %d again: %v, %v", s, again, err)
				}
			}
			if m.Missing() != whole.Missing() {
				t.Fatalf("%d missing, want %d", m.Missing(), whole.Missing())
			}
			need, err2 := whole.Decide(t.Context())
			have, err := m.Decide(t.Context())
			if err = errors.Join(err, err2); err != nil || !reflect.DeepEqual(have, need) || m.Last() != number {
				t.Fatalf("got %+v, want %+v (%v)", have, need, err)
			}
		}
	}
}

// TestTeamIsAPoll: a Team does what a consensus.Poll does.
func TestTeamIsAPoll(t *testing.T) {
	c := collective(t)
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SliceOfN(rapid.IntRange(0, 3), len(c.Devices()), len(c.Devices())).Draw(t, "shards")
		shards[rapid.IntRange(0, len(shards)-1).Draw(t, "one more")]++
		total := 0
		for _, n := range shards {
			total += n
		}
		candidates, rule := rapid.IntRange(1, 6).Draw(t, "candidates"), drawRule(t)
		m, err := round.NewTeam(c, round.TeamOptions{Candidates: candidates, Shards: shards, Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		sameAsPoll(t, m, rule, candidates, total)
	})
}

// TestTeamFaults: a gather that fails, or whose context is over, leaves the round open; the next
// Decide closes it.
func TestTeamFaults(t *testing.T) {
	one, two := faults.New(opened(t)), faults.New(opened(t))
	c, err := host.NewRelay([]device.Device{one, two}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := round.NewTeam(c, round.TeamOptions{Candidates: 2, Shards: []int{1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	part := consensus.Partial{Round: 1, Tally: consensus.Tally{Counts: []uint64{3, 4}, Total: 7}}
	part2 := part
	part2.Shard = 1
	if err := m.Open(1); err != nil {
		t.Fatal(err)
	}
	for _, p := range []consensus.Partial{part, part2} {
		if counted, err := m.Add(p); !counted || err != nil {
			t.Fatal(counted, err)
		}
	}
	two.Fail(faults.Copy, 1, 1, device.ErrTransient) // behind the upload of the partial
	if _, err := m.Decide(t.Context()); !errors.Is(err, device.ErrTransient) {
		t.Errorf("a copy that fails: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Decide(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	d, err := m.Decide(t.Context())
	if err != nil || d.Winner != 1 || d.Total != 14 || !slices.Equal(d.Counts, []uint64{6, 8}) || m.Last() != 1 {
		t.Errorf("%+v: %v", d, err)
	}
	if _, err := m.Decide(t.Context()); !errors.Is(err, consensus.ErrRound) {
		t.Errorf("again: %v", err)
	}
}

// TestTeamOverflow: sums that do not fit close nothing.
func TestTeamOverflow(t *testing.T) {
	c := collective(t)
	shards := make([]int, len(c.Devices()))
	shards[0], shards[1] = 1, 1
	m := team(t, c, round.TeamOptions{Candidates: 1, Shards: shards})
	if err := m.Open(1); err != nil {
		t.Fatal(err)
	}
	for s := range 2 {
		if _, err := m.Add(consensus.Partial{
			Shard: s, Round: 1,
			Tally: consensus.Tally{Counts: []uint64{math.MaxUint64}, Total: math.MaxUint64},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Decide(t.Context()); !errors.Is(err, consensus.ErrOverflow) || m.Last() != 0 {
		t.Errorf("%v, last round %d", err, m.Last())
	}
	for what, o := range map[string]round.TeamOptions{
		"too few devices": {Candidates: 1, Shards: shards[1:]},
		"no shards":       {Candidates: 1, Shards: make([]int, len(shards))},
		"less than none":  {Candidates: 1, Shards: append([]int{-1}, shards[1:]...)},
	} {
		if _, err := round.NewTeam(c, o); !errors.Is(err, consensus.ErrShard) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := round.NewTeam(c, round.TeamOptions{Candidates: 0, Shards: shards}); !errors.Is(err,
		consensus.ErrCandidates) {
		t.Error(err)
	}
}

// BenchmarkTeam is a round over shards on all devices, a million ballots each: by a Team, and by
// partials through the host to a consensus.Poll, and to a Merger on the first device. Every
// decision is compared.
func BenchmarkTeam(b *testing.B) {
	const candidates, ballots, perDevice = 5, 1_000_000, 4
	c := collective(b)
	shards := slices.Repeat([]int{perDevice}, len(c.Devices()))
	total := perDevice * len(shards)
	m := team(b, c, round.TeamOptions{Candidates: candidates, Shards: shards})
	one := merger(b, c.Devices()[0], round.MergeOptions{Candidates: candidates, Shards: total})
	var word consensus.Word
	p, err := consensus.NewPoll(&word, candidates, total)
	if err != nil {
		b.Fatal(err)
	}
	var held []*round.Round
	want := make([]uint64, candidates)
	r := rand.New(rand.NewPCG(1, 2))
	for s := range total {
		h := made(b, c.Devices()[rankOf(shards, s)], round.Options{Candidates: candidates, Capacity: ballots})
		data := make([]byte, ballots)
		for i := range data {
			data[i] = byte(r.IntN(candidates))
			want[data[i]]++
		}
		if err := h.Cast(data); err != nil {
			b.Fatal(err)
		}
		held = append(held, h)
	}
	check := func(d consensus.Decision, err error) error {
		if err == nil && !slices.Equal(d.Counts, want) {
			err = errors.New("other counts")
		}
		return err
	}
	number := uint64(0) // of the rounds of all three
	ctx := context.Background()
	parts := func(add func(consensus.Partial) (bool, error)) error {
		for s, h := range held {
			d, err := h.DecideAs(ctx, number)
			if err == nil {
				_, err = add(round.Partial(s, uint64(s)<<32, d))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			for range b.N + 5 {
				number++
				start := time.Now()
				if err := fn(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			took = took[5:]
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
			b.ReportMetric(0, "ns/op")
		})
	}
	run("team", func() error {
		if err := m.Open(number); err != nil {
			return err
		}
		for s, h := range held {
			if _, err := m.Count(ctx, h, s, uint64(s)<<32); err != nil {
				return err
			}
		}
		return check(m.Decide(ctx))
	})
	run("poll", func() error {
		if err := errors.Join(p.Open(number), parts(p.Add)); err != nil {
			return err
		}
		return check(p.Decide(consensus.Rule{}))
	})
	run("merger", func() error {
		if err := errors.Join(one.Open(number), parts(one.Add)); err != nil {
			return err
		}
		return check(one.Decide(ctx))
	})
}
