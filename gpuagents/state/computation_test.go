package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const text = "name: x\naddressed: agent\nagents: 1650\nagents_per_group: 33\nfeatures: [a, b]\nseed: 3\n" +
	"cell: {kind: gru, params: {hidden: 8}}\nvote: {candidates: [a, b], rule: majority}\n"

// newState makes a swarm of 1,650 agents, half of them stepped, with pages of b.
func newState(t *testing.T, d device.Device, b *pages.Budget) state.State {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	spec.PageSize = 8 << 10
	s, err := state.New(d, b, spec, state.GroupRange{Shards: 1, Groups: 50, All: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := rand.New(rand.NewPCG(1, 24))
	o := &batch.AgentObservations{Width: 2}
	for range 800 {
		o.Agent = append(o.Agent, uint32(r.IntN(1200))) // the last pages are never addressed
		o.Features = append(o.Features, float32(r.NormFloat64()), float32(r.NormFloat64()))
	}
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryObserve, Data: data}); err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(t *testing.T, s state.State, want swarms.Compute) (swarms.Computed, error) {
	t.Helper()
	want.Version = jobs.Version
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryCompute, Data: data})
	if err != nil {
		return swarms.Computed{}, err
	}
	return swarms.DecodeComputed(a.Data)
}

// TestKernels: a device that compiles kernels answers with the bits of one that does not, with
// resident pages, and with pages that come in sets.
func TestKernels(t *testing.T) {
	raw, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := raw.Close(); err != nil {
			t.Error(err)
		}
	})
	d := emulation.NewDevice(t, raw)
	twin := newState(t, raw, nil)
	for name, b := range map[string]*pages.Budget{"resident": nil, "paged": pages.NewBudget(9*8<<10, 1<<30)} {
		if b != nil && testing.Short() {
			// The emulation copies all frames for a launch, also frames into which pages are loaded
			// meanwhile and which no kernel reads: the race detector, which runs with -short, sees
			// that.
			continue
		}
		s := newState(t, d, b)
		if resident := s.Memory().Resident(); resident != (b == nil) {
			t.Fatalf("%s: resident %v", name, resident)
		}
		for i, want := range []swarms.Compute{
			{Text: "mean(abs(hidden)) by group where vote == 1; n = count(round > 1) by group"},
			{Text: "max(input) by group", First: 13, Groups: 30},
			{Text: "sum(hidden * hidden) where agent % 7 != 1"},
			{Text: "m = min(hidden) by vote; s = sum(agent) by vote"},
		} {
			if i >= 2 && name == "paged" && i != 2 && !testkit.Long() {
				continue // a launch of all blocks takes a second
			}
			got, err := ask(t, s, want)
			if err != nil {
				t.Fatalf("%s, %q: %v", name, want.Text, err)
			}
			same, err := ask(t, twin, want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(same, got); diff != "" {
				t.Errorf("%s, %q: the host says (-), the device (+):\n%s", name, want.Text, diff)
			}
		}
	}
}

// TestCancelled: a question whose context has ended has no answer, and the next one has.
func TestCancelled(t *testing.T) {
	raw, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	s := newState(t, raw, nil)
	ctx, cancel := cancelled(t)
	defer cancel()
	e := swarms.Entry{Kind: swarms.EntryCompute, Data: []byte(`{"v":1,"text":"sum(hidden)"}`)}
	var refused *jobs.Error
	if _, err := s.Apply(ctx, e); err == nil || errors.As(err, &refused) {
		t.Errorf("after the end of the context: %v, want its cause", err)
	}
	if _, err := s.Apply(t.Context(), e); err != nil {
		t.Errorf("the next question: %v", err)
	}
}

func cancelled(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}
