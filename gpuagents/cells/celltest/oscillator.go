package celltest

import (
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Oscillator is a cell with a variable of every type, an array, abstentions, weights and random
// numbers.
func Oscillator() Cell {
	return Cell{
		State: map[string]string{
			"place": "f32", "velocity": "bf16", "past": "f32[3]", "turns": "u8", "sum": "u64",
			"seen": "u32",
		},
		Params: map[string]float64{
			"stiffness": 0.3, "damping": 0.97, "noise": 2, "high": 1.5, "half": 2,
			"share": 0.4, "warmup": 5,
		},
		Step:       OscillatorStep,
		Candidates: []string{"low", "middle", "turning", "high"},
	}
}

// OscillatorTwin is one group of oscillators in Go.
type OscillatorTwin struct {
	Agents []OscillatorAgent
	Round  uint64
	seed   uint64
	rule   kernels.Rule
	quorum uint64
}

// OscillatorAgent is the state of one.
type OscillatorAgent struct {
	Place, Velocity float32
	Past            [3]float32
	Turns           uint8
	Sum             uint64
	Seen            uint32
}

// Outcome is what an observation of a group comes to, as kernels.ObserveArgs has it.
type Outcome struct {
	Score            float32
	Decision, Leader uint32
	Counts           [4]uint32
	Round            uint64
}

// NewOscillator is a group that has seen nothing; quorum is in 16.16.
func NewOscillator(agents int, seed uint64, rule kernels.Rule, quorum uint32) *OscillatorTwin {
	return &OscillatorTwin{Agents: make([]OscillatorAgent, agents), seed: seed, rule: rule, quorum: uint64(quorum)}
}

// number is number k of an agent in a round, or of all rounds where that is 0.
func (g *OscillatorTwin) number(k, agent uint32, round uint64) float32 {
	v := kernels.Philox([2]uint32{uint32(g.seed), uint32(g.seed >> 32)},
		[4]uint32{k / 4, agent, uint32(round), uint32(round >> 32)})
	return float32(v[k%4]>>8) / (1 << 24)
}

// Observe steps the group.
func (g *OscillatorTwin) Observe(time int64, features []float32) (out Outcome) {
	const (
		stiffness, damping, noise, high = float32(0.3), float32(0.97), float32(2), float32(1.5)
		half, share, warmup             = float32(2), 26214, 5 // 0.4 in 16.16
	)
	var bins []uint32
	best := uint32(0)
	for i := range g.Agents {
		a, id := &g.Agents[i], uint32(i)
		a.Past = [3]float32{features[len(features)-1], a.Past[0], a.Past[1]}
		spread := g.number(0, id, g.Round+1) - g.number(1, id, g.Round+1)
		force := (a.Past[0] + a.Past[2]) + float32(noise*spread)
		velocity := a.Velocity + float32(stiffness*(force-a.Place))
		a.Place = (a.Place + velocity) * damping
		a.Velocity = device.FromBF16(device.ToBF16(velocity))
		if a.Place > 0 {
			a.Turns++
		} else {
			a.Turns += 3
		}
		a.Sum += uint64(time/1e9) * uint64(id+1)
		a.Seen = uint32(g.Round) + 1
		if g.number(5, id, 0) < 0.25 && g.Round%3 == 0 {
			continue
		}
		vote := 1
		switch {
		case a.Turns%16 == 0:
			vote = 2
		case a.Place > high:
			vote = 3
		case a.Place < -high:
			vote = 0
		}
		weight := uint32(1)
		if id%5 != 4 {
			weight = min(id%4*3000, kernels.MaxVoteWeight)
			bin := surpriseBin(float32(math.Abs(float64(a.Place))))
			bins = append(bins, bin)
			if bin > best {
				best, out.Leader = bin, id
			}
		}
		if g.rule != kernels.RuleWeighted {
			weight = 1
		}
		out.Counts[vote] += weight
	}
	if n := len(bins); n > 0 && g.Round >= warmup {
		slices.Sort(bins)
		bin := uint32(0)
		for k := range bins { // the highest that a share reaches
			if uint64(n-k)<<16 >= share*uint64(n) {
				bin = bins[k]
			}
		}
		ratio := math.Float32frombits((bin + lowestBin) << 18)
		out.Score = ratio / (ratio + half)
	}
	total, winner := uint64(0), 0
	for c, n := range out.Counts {
		total += uint64(n)
		if n > out.Counts[winner] {
			winner = c
		}
	}
	out.Decision = uint32(winner)
	if votes := uint64(out.Counts[winner]); votes == 0 || g.rule == kernels.RuleQuorum && votes<<16 < g.quorum*total {
		out.Decision = kernels.NoDecision
	}
	g.Round++
	out.Round = g.Round
	return out
}

const lowestBin = (127 + kernels.SurpriseMinOctave) * kernels.SurpriseFine

func surpriseBin(ratio float32) uint32 {
	return uint32(min(max(int(math.Float32bits(ratio)>>18)-lowestBin, 0), kernels.SurpriseBins-1))
}
