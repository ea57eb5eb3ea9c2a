package gpuprocess

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const customText = `name: x
cell:
  kind: custom
  state: {v: f32}
  step: |
    __device__ Ballot step(Agent &a, const Params &p, const Observation &x) {
      a.v = add(a.v, x.features[0]);
      return {a.v > 0.0f ? 1u : 0u};
    }
vote: {candidates: [down, up]}
`

// TestCustomCellsAreOff: an agent refuses a step that its operator has not allowed, and one without
// a compiler says what it takes.
func TestCustomCellsAreOff(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		r := newRig(t)
		dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
		if err != nil {
			t.Fatalf("cuda.Open host: %v", err)
		}
		a, err := gpuagents.Start(gpuagents.Options{
			Name: "agent", Device: dev, Queue: r.conn.Swarms,
			LeaseTTL: time.Minute, Logger: slog.New(slog.NewTextHandler(r, nil)), CustomCells: allowed,
		})
		if err != nil {
			t.Fatalf("gpuagents.Start: %v", err)
		}
		t.Cleanup(func() {
			a.Stop()
			if err := dev.Close(); err != nil {
				t.Errorf("dev.Close: %v", err)
			}
		})
		r.announce(t, "custom", customText, nil)
		r.answered(t, "custom", 1)
		rd, err := r.conn.Swarms.Log("custom", 0, swarms.Out).Read(t.Context(), 1)
		if err != nil {
			t.Fatalf("r.conn.Swarms.Log().Read: %v", err)
		}
		defer rd.Close()
		e, err := rd.Next(t.Context())
		if err != nil {
			t.Fatalf("rd.Next: %v", err)
		}
		refused, want, code := jobs.Error{}, "start the GPU agents of the cluster with --allow-custom-cells",
			jobs.CodeInvalid
		if allowed {
			want, code = "host cannot do that: serve the swarm with gpuagent --device cuda:0 --allow-custom-cells",
				jobs.CodeDevice
		}
		if err := json.Unmarshal(e.Data, &refused); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		}
		if e.Kind != swarms.EntryRejected || refused.Code != code || !strings.Contains(refused.Message, want) {
			t.Errorf("allowed %v: %s %s", allowed, e.Kind, e.Data)
		}
	}
}

// TestCustomCellsFlag: nobody gets them without asking.
func TestCustomCellsFlag(t *testing.T) {
	f := Command().Flags().Lookup("allow-custom-cells")
	if f == nil || f.DefValue != "false" {
		t.Errorf("--allow-custom-cells: %+v", f)
	}
}
