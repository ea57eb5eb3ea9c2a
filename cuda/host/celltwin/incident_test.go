package celltwin

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestIncident: an anomalous decision has a score of the alarm or more. After one, neither another
// one nor such a score comes before a normal one.
func TestIncident(t *testing.T) {
	const alarm = 0.3
	for trial := range 8 {
		rng := rand.New(rand.NewPCG(uint64(trial), 15))
		voting := cells.Weighted
		if trial%2 == 1 {
			voting = cells.Voting{Rule: kernels.RulePlurality}
		}
		values := map[string]float64{
			"alarm": alarm, "suspect": 0.25, "warmup": 25, "share": 0.2 + 0.1*float64(trial),
		}
		b := bind(t, "predictor", values, 24, 1+trial%3, voting)
		events := randomEvents(rng, 3000, 1, b.Features)
		out := newSwarm(t, b, 1<<18).play(events, nil)
		incidents, inside := 0, false
		for i, d := range out.decisions {
			switch d {
			case kernels.VoteAnomalous:
				if incidents++; inside {
					t.Errorf("trial %d, observation %d: anomalous inside an incident", trial, i)
				}
				if out.scores[i] < alarm-1e-6 {
					t.Errorf("trial %d, observation %d: anomalous with score %v, below the alarm of %v", trial, i,
						out.scores[i], alarm)
				}
				inside = true
			case kernels.VoteNormal:
				inside = false
			}
			if inside && d != kernels.VoteAnomalous && out.scores[i] >= alarm {
				t.Errorf("trial %d, observation %d: score %v inside an incident", trial, i, out.scores[i])
			}
		}
		if incidents < 2 {
			t.Errorf("trial %d: %d incidents among %d observations: the test reaches nothing", trial, incidents,
				len(events))
		}
	}
}
