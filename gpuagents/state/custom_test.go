package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// customSpec is the spec of a swarm with a custom cell, as an agent process reads it.
func customSpec(t testing.TB, of celltest.Cell, agents int, rule string) *swarm.Spec {
	t.Helper()
	spec := swarm.Spec{
		Name: "x", Cell: swarm.Cell{Kind: "custom", Params: of.Params, State: of.State, Step: of.Step},
		AgentsPerGroup: agents,
		Vote:           swarm.Vote{Candidates: of.Candidates, Rule: rule}, PageSize: 1 << 20, Seed: 0xFEDCBA9876543210,
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	read, err := swarm.FromJSON(data)
	if err != nil {
		t.Fatalf("swarm.FromJSON: %v, want no error", err)
	}
	return read
}

// openCustom opens a swarm with a custom cell where the device can, and checks the refusal where it
// cannot.
func openCustom(t *testing.T, d device.Device, spec *swarm.Spec, groups int) *groupState {
	t.Helper()
	s, err := newGroupState(d, nil, spec, allOf(groups))
	if d.Properties().ComputeMajor == 0 {
		var refused *jobs.Error
		if !errors.As(err, &refused) || refused.Code != jobs.CodeDevice || !strings.Contains(err.Error(), "gpuagent "+
			"--device cuda:0 --allow-custom-cells") {
			t.Fatalf("the host device says %v", err)
		}
		t.Skip("the host device compiles nothing, and says so: ", err)
	}
	if err != nil {
		t.Fatalf("newGroupState: %v, want no error", err)
	}
	testkit.Close(t, s)
	return s
}

// TestCustomLeaky: leaky, written as a custom cell, decides as the built-in one on the same device,
// to the bit.
func TestCustomLeaky(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, agents := range []int{7, 256, 1500} {
		t.Run(fmt.Sprint(agents), func(t *testing.T) {
			custom := openCustom(t, d, customSpec(t, celltest.Leaky(20), agents, "weighted"), 20)
			spec := customSpec(t, celltest.Leaky(20), agents, "weighted")
			spec.Cell = swarm.Cell{Kind: "leaky", Params: map[string]float64{"warmup": 20}}
			builtIn, err := newGroupState(d, nil, spec, allOf(20))
			if err != nil {
				t.Fatalf("newGroupState: %v, want no error", err)
			}
			testkit.Close(t, builtIn)
			r := rand.New(rand.NewPCG(uint64(agents), 6))
			for batch := range 4 {
				o := observations(r, 20, 2000, 1)
				want, _, err := builtIn.observe(t.Context(), o)
				if err != nil {
					t.Fatalf("builtIn.observe: %v, want no error", err)
				}
				got, _, err := custom.observe(t.Context(), o)
				if err != nil {
					t.Fatalf("custom.observe: %v, want no error", err)
				}
				if d := diff(want, got); d != "" {
					t.Fatalf("batch %d: %s", batch, d)
				}
			}
		})
	}
}

// TestCustomOscillator: a cell with state of every type decides as its Go twin says, however its
// input is cut.
func TestCustomOscillator(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, rule := range []string{"weighted", "plurality"} {
		for _, agents := range []int{1, 33, 300, 1500} {
			t.Run(fmt.Sprint(rule, agents), func(t *testing.T) {
				const groups = 5
				spec := customSpec(t, celltest.Oscillator(), agents, rule)
				s := openCustom(t, d, spec, groups)
				kernelRule := kernels.RuleWeighted
				if rule == "plurality" {
					kernelRule = kernels.RulePlurality
				}
				var twins [groups]*celltest.OscillatorTwin
				for g := range twins {
					twins[g] = celltest.NewOscillator(agents, spec.Seed, kernelRule, 0)
				}
				r := rand.New(rand.NewPCG(uint64(agents), 7))
				for batch := range 3 {
					o := observations(r, groups, 300, 1)
					got, _, err := s.observe(t.Context(), o)
					if err != nil {
						t.Fatalf("s.observe: %v, want no error", err)
					}
					for n, g := range o.Group {
						want := twins[g].Observe(o.Time[n], o.Features[n:n+1])
						have := celltest.Outcome{
							Score: got.Score[n], Decision: got.Decision[n],
							Leader: uint32(got.Leader[n] - uint64(g)*uint64(agents)),
							Counts: [4]uint32(got.Counts[4*n:]), Round: got.Round[n],
						}
						if have != want {
							t.Fatalf("batch %d, observation %d: %+v, the twin has %+v", batch, n, have, want)
						}
					}
				}
			})
		}
	}
}

// TestCustomDoesNotCompile: a step that is no CUDA C++ is refused with the compiler's words, and
// nothing is left behind.
func TestCustomDoesNotCompile(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	of := celltest.Leaky(20)
	openCustom(t, d, customSpec(t, of, 8, "weighted"), 1)
	of.Step = strings.Replace(of.Step, "a.potential = add(", "a.potential = plus(", 1)
	line := 1 + strings.Count(of.Step[:strings.Index(of.Step, "plus(")], "\n")
	_, err := newGroupState(d, nil, customSpec(t, of, 8, "weighted"), allOf(1))
	var refused *jobs.Error
	if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid {
		t.Fatalf("newGroupState: %v, want code %v", err, jobs.CodeInvalid)
	}
	for _, part := range []string{fmt.Sprintf("step(%d): error", line), `"plus"`, fmt.Sprintf("line %d of the step: "+
		"a.potential = plus(", line)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %s in: %v", part, err)
		}
	}
}

// TestCustomMeaning: pages of one step are not read by another step.
func TestCustomMeaning(t *testing.T) {
	digest := func(change func(*celltest.Cell)) string {
		of := celltest.Leaky(20)
		change(&of)
		spec := customSpec(t, of, 8, "weighted")
		b, err := spec.Bind()
		if err != nil {
			t.Fatalf("spec.Bind: %v, want no error", err)
		}
		l, err := b.Layout(int(spec.PageSize))
		if err != nil {
			t.Fatalf("b.Layout: %v, want no error", err)
		}
		return (&groupState{bound: b, layout: l, groups: 1, inputs: 1, seed: spec.Seed}).digest()
	}
	seen := map[string]string{digest(func(*celltest.Cell) {}): "the cell itself"}
	if _, again := seen[digest(func(*celltest.Cell) {})]; !again {
		t.Error("a cell has two digests")
	}
	for what, change := range map[string]func(*celltest.Cell){
		"a constant of the step": func(c *celltest.Cell) { c.Step = strings.Replace(c.Step, "0.01f", "0.02f", 1) },
		"a parameter":            func(c *celltest.Cell) { c.Params["half"] = 9 },
		"a type":                 func(c *celltest.Cell) { c.State["rate"] = "bf16" },
		"a name":                 func(c *celltest.Cell) { c.State["more"] = "u8" },
		"the candidates":         func(c *celltest.Cell) { c.Candidates = append(c.Candidates, "more") },
	} {
		m := digest(change)
		if other, ok := seen[m]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[m] = what
	}
}

func TestQuoteStep(t *testing.T) {
	log := "step(2): error: identifier \"x\" is undefined\n\n1 error detected"
	if got := quoteStep(log, "a\n  b = x;\r\nc"); got != log+"\nline 2 of the step: b = x;" {
		t.Errorf("%q, want the log and line 2 of the step", got)
	}
	for _, log := range []string{
		"", "step(9): error: e", "step(0): error: e", "step(99999999999999999999): error: e",
		"frame.cu(1): error: e",
	} {
		if got := quoteStep(log, "a\nb"); got != log {
			t.Errorf("%q became %q", log, got)
		}
	}
	if got := quoteStep("step(1): error: "+strings.Repeat("é", maxLog), "a"); len(got) > maxLog+100 ||
		!strings.HasSuffix(got, "…\nline 1 of the step: a") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-40:])
	}
}
