package gpuagents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/model/modeltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestModels: an agent holds a model that it is asked for, beside a shard that has it; finds a
// damaged layer, tells it and loads it again; and holds the model again on a device that was
// replaced. A model that is not there is told, and not tried again.
func TestModels(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes to device memory that the agent reads at the same time, which the race detector reports: not " +
			"with -short")
	}
	ctx := t.Context()
	open := func(ctx context.Context) (device.Device, error) { return cuda.Open(ctx, "host", cuda.Options{}) }
	d, err := open(ctx)
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	store, err := bucket.OpenFolder(t.TempDir())
	testkit.NoError(t, "OpenFolder", err)
	testkit.Close(t, store)
	ref := weights.Ref{ModelRef: modeltest.Load(t, store), Exact: true}
	registry := prometheus.NewRegistry()
	counts, err := NewMetrics(registry)
	testkit.NoError(t, "NewMetrics", err)
	a, err := Start(Options{
		Name: "a", Device: d, Open: open, Queue: &quiet{ttl: 10 * time.Second, watch: make(chan struct{}, 1)},
		Logger: slog.New(slog.DiscardHandler), Snapshots: store, Models: bucket.NewFiles(store, nil, ""),
		ResidencyCheck: 20 * time.Millisecond, Metrics: counts, PageMemory: 1 << 20,
	})
	testkit.NoError(t, "Start", err)
	t.Cleanup(a.Stop)
	v := ViewsOf(a)
	hold := func(ref weights.Ref, want string) {
		t.Helper()
		testkit.NoError(t, "HoldModel", a.HoldModel(ctx, ref))
		testkit.Until(t, "the model", func() bool {
			all := v.KeptModels()
			return len(all) == 1 && all[0].Held == (want == "") && (want == "" || all[0].Err != nil &&
				strings.Contains(all[0].Err.Error(), want))
		})
	}
	gone := ref
	gone.Name = "gone"
	hold(gone, "model gone: model not found")
	testkit.NoError(t, "ReleaseModel", a.ReleaseModel(ctx, "gone"))
	hold(ref, "")
	hold(ref, "") // the same again
	other := ref
	other.SHA256 = strings.Repeat("0", 64)
	if err := a.HoldModel(ctx, other); jobs.AsError(err).Code != jobs.CodeInvalid {
		t.Errorf("HoldModel of another digest: %v, want a *jobs.Error", err)
	}
	slot, err := a.TakeSlot(ctx, 0)
	testkit.NoError(t, "TakeSlot", err)
	shard, err := slot.Weights().Hold(ctx, ref, a.openModel(ref))
	testkit.NoError(t, "Hold", err)
	if all := v.Models(); len(all) != 1 || all[0].Users != 2 || all[0].Device != "host" {
		t.Errorf("Models: %+v", all)
	}
	testkit.NoError(t, "CheckModels", a.CheckModels(ctx))
	at, err := shard.Tensor(architecture.Embedding)
	testkit.NoError(t, "Tensor", err)
	testkit.NoError(t, "Write", at.Buffer.Write(at.Offset, []byte{1, 2, 3}))
	testkit.Until(t, "the violation", func() bool {
		return shard.Intact() != nil && errors.Is(a.Residency(), pages.ErrResidency)
	})
	testkit.NoError(t, "CheckModels after the layer was loaded again", a.CheckModels(ctx))
	families, err := registry.Gather()
	testkit.NoError(t, "Gather", err)
	violations := 0.0
	for _, f := range families {
		if f.GetName() == "exoswarm_model_residency_violations_total" {
			violations = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if violations != 1 {
		t.Errorf("%v violations of one", violations)
	}
	// The device breaks: its users leave it, and the model is loaded on the next one.
	before := v.Models()[0].Info
	slot.Failed(device.ErrLost)
	<-slot.Evicted()
	testkit.NoError(t, "Release", shard.Release())
	slot.Release()
	testkit.Until(t, "the model on another device", func() bool {
		all := v.Models()
		return len(all) == 1 && all[0].Users == 1 && a.Device() != d && all[0].Info.Device == before.Device
	})
	testkit.NoError(t, "ReleaseModel", a.ReleaseModel(ctx, "small"))
	if err := a.ReleaseModel(ctx, "small"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a second ReleaseModel: %v, want jobs.ErrNotFound", err)
	}
	if all := v.Models(); len(all) != 0 {
		t.Errorf("%+v after the release", all)
	}
	// An audit under way may free it.
	testkit.Until(t, "the memory", func() bool { return *a.Room().Free == 1<<20 })
}
