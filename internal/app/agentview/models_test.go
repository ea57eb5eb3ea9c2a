package agentview

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// holding is an agent with models.
type holding struct {
	Agent
	models []pool.Model
	kept   []gpuagents.KeptModel
	done   []string
	fail   error
}

func (h *holding) Models() []pool.Model              { return h.models }
func (h *holding) KeptModels() []gpuagents.KeptModel { return h.kept }

func (h *holding) HoldModel(_ context.Context, ref weights.Ref) error {
	h.done = append(h.done, "hold "+ref.Name)
	return h.fail
}

func (h *holding) ReleaseModel(_ context.Context, name string) error {
	h.done = append(h.done, "release "+name)
	return h.fail
}

func (h *holding) CheckModels(context.Context) error {
	h.done = append(h.done, "check")
	return h.fail
}

// TestChange: requests reach the agent, wrong ones do not, and the answer has each model once.
func TestChange(t *testing.T) {
	digest := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	ref := func(name string) weights.Ref {
		return weights.Ref{ModelRef: swarms.ModelRef{Name: name, SHA256: digest}, Exact: true}
	}
	at := time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)
	h := &holding{
		models: []pool.Model{
			{Device: "cuda:0", Info: weights.Info{
				Ref: ref("a"), Users: 2, Device: 7, Pinned: 3, Layers: 5, Passing: 3, Step: time.Millisecond, Claims: 3,
				Checked: at,
			}},
			{Device: "cuda:0", Info: weights.Info{Ref: ref("shard"), Users: 1, Device: 9}},
		},
		kept: []gpuagents.KeptModel{
			{Ref: ref("a"), Held: true}, {Ref: ref("b")}, {Ref: ref("c"), Err: errors.New("it is gone")},
		},
	}
	one := func(name, device, state string, asked bool) telemetry.HeldModel {
		return telemetry.HeldModel{Name: name, SHA256: digest, Exact: true, Device: device, State: state, Asked: asked}
	}
	want := []telemetry.HeldModel{
		one("a", "cuda:0", telemetry.ModelHeld, true), one("shard", "cuda:0", telemetry.ModelHeld, false),
		one("b", "", telemetry.ModelLoading, true), one("c", "", telemetry.ModelFailed, true),
	}
	want[0].Users, want[0].DeviceBytes, want[0].PinnedBytes, want[0].Layers = 2, 7, 3, 5
	want[0].Passing, want[0].Step, want[0].Claims, want[0].Checked = 3, 1e6, 3, &at
	want[1].Users, want[1].DeviceBytes = 1, 9
	want[3].Error = "it is gone"
	view, err := Answer(t.Context(), "agent", h, telemetry.View{What: telemetry.ViewModels})
	testkit.NoError(t, "Answer", err)
	for _, c := range []telemetry.ModelChange{
		{Do: telemetry.HoldModel, Name: "a", SHA256: digest},
		{Do: telemetry.ReleaseModel, Name: "a"},
		{Do: telemetry.CheckModels},
	} {
		got, err := Change(t.Context(), "agent", h, h, c)
		testkit.NoError(t, "Change", err)
		for _, of := range []any{got, view} {
			m, is := of.(*telemetry.Models)
			if !is || m.Agent != "agent" {
				t.Fatalf("the answer %+v", of)
			}
			if d := cmp.Diff(want, m.Models); d != "" {
				t.Errorf("%s: %s", c.Do, d)
			}
		}
	}
	if d := cmp.Diff([]string{"hold a", "release a", "check"}, h.done); d != "" {
		t.Error(d)
	}
	for _, c := range []telemetry.ModelChange{{Do: "drop"}, {Do: telemetry.HoldModel, Name: "../a", SHA256: digest}} {
		if _, err := Change(t.Context(), "agent", h, h, c); jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("%+v: %v, want a *jobs.Error", c, err)
		}
	}
	h.fail = pages.ErrResidency
	if _, err := Change(t.Context(), "agent", h, h, telemetry.ModelChange{Do: telemetry.CheckModels}); jobs.AsError(
		err).Code != jobs.CodeDevice {
		t.Errorf("a violation: %v, want a *jobs.Error of the device", err)
	}
}
