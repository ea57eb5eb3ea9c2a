package celltwin

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// consensusOf is the winner that consensus finds for a group's tally, as a kernel stores it.
func consensusOf(t *testing.T, rule kernels.Rule, quorum uint32, counts []uint32) uint32 {
	t.Helper()
	r := consensus.Rule{Kind: consensus.Kind(rule), Of: consensus.All}
	if r.Kind == consensus.Quorum {
		r.Quorum = consensus.Fraction{Num: quorum, Den: 1 << 16}
	}
	tally := consensus.Tally{}
	for _, n := range counts {
		tally.Counts = append(tally.Counts, uint64(n))
		tally.Total += uint64(n)
	}
	d, err := consensus.Decide(r, tally)
	if err != nil {
		t.Fatal(err)
	}
	if d.Winner == consensus.None {
		return kernels.NoDecision
	}
	return uint32(d.Winner)
}

// TestCellsVoteIsConsensus compares the decisions of the cells, of the Go twin and of the kernels'
// text compiled for the CPU, with package consensus: all rules, ties, no votes, the largest counts,
// quorums from the least to all.
func TestCellsVoteIsConsensus(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	const cases = 50_000
	var words, want []uint32
	for range cases {
		rule := kernels.Rule(r.IntN(5))
		quorum := []uint32{1, 1 << 15, 1<<15 + 1, 1 << 16, 43691, 1 + r.Uint32N(1<<16)}[r.IntN(6)]
		most := []uint32{0, 1, 2, 5, 100, math.MaxUint32}[r.IntN(6)]
		var c tally
		for i := range c.counts {
			c.counts[i] = uint32(r.Uint64N(uint64(most) + 1))
		}
		need := consensusOf(t, rule, quorum, c.counts[:])
		if got := c.decide(rule, quorum); got != need {
			t.Fatalf("rule %d, quorum %d/65536 of %v: %#x, want %#x", rule, quorum, c.counts, got, need)
		}
		words = append(append(words, uint32(rule), quorum), c.counts[:]...)
		want = append(want, need)
	}
	if got := (&tally{counts: [kernels.VoteCandidates]uint32{0, 1, 0}}).decide(kernels.RuleQuorum, 0); got != 1 {
		t.Errorf("a vote under the quorum 0: %#x", got)
	}

	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ to compile the kernels for the CPU with")
	}
	file, err := filepath.Abs("../../kernels/vote.cuh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, input := filepath.Join(dir, "decide"), filepath.Join(dir, "tallies")
	if out, err := exec.Command(compiler, "-std=c++17", "-O1", "-w", fmt.Sprintf("-DFILE_UNDER_TEST=%q", file), "-o",
		program,
		"testdata/decide.cpp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(input, device.Bytes(words), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, input).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := device.Of[uint32](slices.Clone(out)); !slices.Equal(got, want) {
		t.Errorf("vote.cuh decides %d tallies otherwise than consensus", len(want))
	}
}

// TestObserveDecidesByConsensus: the decision that an observe kernel emits is the decision of
// package consensus over the emitted votes. Under rules without weights every agent has one vote.
func TestObserveDecidesByConsensus(t *testing.T) {
	const agents, observations = 33, 400
	for _, cell := range cells.Names() {
		seen, values := map[uint32]int{}, warmed(cell, 20)
		if cell == "predictor" { // 400 observations are too few blocks for its usual alarm
			values["alarm"], values["suspect"], values["block"] = 0.25, 0.2, 8
		}
		for rule := range kernels.Rule(5) {
			b := bind(t, cell, values, agents, 1, cells.Voting{Rule: rule, Quorum: 0.9})
			s := newSwarm(t, b, 1<<18)
			rng := rand.New(rand.NewPCG(uint64(rule), 53))
			var times []int64
			var x []float32
			for _, e := range randomEvents(rng, observations, 1, 1) {
				times, x = append(times, e.time), append(x, e.features...)
			}
			out := s.series(times, x)
			width := len(b.Cell.Candidates)
			for n, decision := range out.decisions {
				counts := out.counts[n*width : (n+1)*width]
				if need := consensusOf(t, rule, uint32(math.Round(0.9*(1<<16))), counts); decision != need {
					t.Fatalf("%s, rule %d, observation %d, votes %v: decided %#x, want %#x", cell, rule, n, counts,
						decision, need)
				}
				sum := uint32(0)
				for _, c := range counts {
					sum += c
				}
				if rule != kernels.RuleWeighted && sum != agents {
					t.Fatalf("%s, rule %d, observation %d: %d votes of %d agents", cell, rule, n, sum, agents)
				}
				seen[decision]++
			}
		}
		if len(seen) < 3 {
			t.Errorf("%s: only the decisions %v, which proves little", cell, seen)
		}
	}
}
