package swarm

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/jobs"
)

const stepText = kernels.StepSignature + " { a.v = p.rate; return {0}; }\n"

// ofCustom is a spec with a custom cell; more lines follow it from line 6 on.
func ofCustom(lines string) string {
	return "name: x\nvote: {candidates: [a, b]}\ncell:\n  kind: custom\n  params: {rate: 0.5}\n" + lines
}

// TestCustomSpec: a step from a file becomes the step of the spec, and the record holds all of it.
func TestCustomSpec(t *testing.T) {
	const state = "  state: {v: f32, hits: u8, past: 'f32[4]'}\n"
	inline, err := Parse("a.yaml", []byte(ofCustom(state+"  step: |\n    "+stepText)))
	if err != nil {
		t.Fatalf("Parse: %v, want no error", err)
	}
	files := fstest.MapFS{
		"steps/a.cu": {Data: []byte(stepText)}, "empty.cu": {},
		"large.cu": {Data: make([]byte, kernels.MaxStepBytes+9)},
	}
	named, err := ParseIn(files, "a.yaml", []byte(ofCustom(state+"  step_file: steps/a.cu\n")))
	if err != nil {
		t.Fatalf("ParseIn: %v, want no error", err)
	}
	if d := cmp.Diff(inline, named); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	back := throughJSON(t, named)
	if d := cmp.Diff(named, back); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	b, err := back.Bind()
	if err != nil {
		t.Fatalf("back.Bind: %v, want no error", err)
	}
	agent, group := b.StateBytes()
	if agent != 4+1+16 || group != 8+4+4+8 || !strings.Contains(b.Cell.Text(), "a.v = p.rate;") ||
		b.Value("rate") != 0.5 || b.Value("half") != 1 {
		t.Errorf("%d bytes an agent, %d a group", agent, group)
	}
	for lines, want := range map[string]string{
		"  step_file: missing.cu": "a.yaml:6: step_file: open missing.cu: file does not exist: name a file below " +
			"the spec's own folder",
		"  step_file: ../a.cu":  "a.yaml:6: step_file: open ../a.cu: ",
		"  step_file: empty.cu": `a.yaml:6: step_file "empty.cu": it is empty`,
		"  step_file: large.cu": "a.yaml:3: invalid step: 65537 bytes, at most 65536",
		"  step_file: steps":    "a.yaml:6: step_file",

		"  step_file: steps/a.cu\n  step: |\n    " +
			stepText: `a.yaml:6: step_file "steps/a.cu": the step stands in the spec too`,
		"  step_file: steps/a.cu\n  state: {v: f64}": `a.yaml:7: invalid cell state: v: type "f64", want f32, bf16, ` +
			`u32, u8 or u64`,
		"  step_file: steps/a.cu\n  state: {v: f32, n: u8}\n  embedding: [n]": `a.yaml:8: invalid cell ` +
			`embedding: "n" is no variable of f32 or bf16; those there are: ["v"]`,
		"  step_file: steps/a.cu\n  state: {v: bf16}\n  embedding: [v, v]": `a.yaml:8: invalid cell embedding: ` +
			`"v" is named twice`,
		"  step_file: steps/a.cu\n  state: {v: 'f32[0]'}": "a.yaml:7: invalid cell state: v: 0 " +
			"elements, want 1 to 256",

		"  step_file: steps/a.cu\n  state: {v: 'u64[256]', w: 'u64[257]'}": "a.yaml:7: invalid cell " +
			"state: w: 257 elements",
		"  step_file: steps/a.cu\n  state: {u: 'u64[256]', v: 'u64[256]', w: 'u64[256]'}": "a.yaml:7: invalid cell " +
			"state: 6144 bytes an agent, want 4096 at most",
		"  step_file: steps/a.cu\n  state: {for: f32}": `a.yaml:7: invalid cell state: name "for": it has a meaning ` +
			`of its own`,

		"  step_file: steps/a.cu\nagents_per_group: 4096\npage_size: 64KiB\n  ": "",
	} {
		_, err := ParseIn(files, "a.yaml", []byte(ofCustom(lines)))
		if want == "" {
			if err != nil {
				t.Errorf("%v, want no error", err)
			}
			continue
		}
		checkSpecError(t, lines, err, want)
	}
}

func checkSpecError(t *testing.T, text string, err error, want string) {
	t.Helper()
	var e *jobs.Error
	if !errors.As(err, &e) || e.Code != jobs.CodeInput || !strings.HasPrefix(e.Message, want) {
		t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
	}
}

func TestCustomErrors(t *testing.T) {
	step := "  step: |\n    " + stepText
	for text, want := range map[string]string{
		ofCustom(""): "a.yaml:3: cell kind custom: its step is missing: write " +
			"step: |",
		ofCustom("  step_file: a.cu"): `a.yaml:6: step_file "a.cu": only a spec that is read from a folder`,
		ofCustom("  step: 'int v;'"):  "a.yaml:6: invalid step: it has no __device__ Ballot step(",
		ofCustom("  step: |\n    #include <x>"): "a.yaml:6: invalid step: line 1: #: a step has no " +
			"directives",
		"name: x\ncell: {kind: leaky, embedding: [usual]}": "a.yaml:2: embedding: the cell leaky has its own: use " +
			"the kind custom",
		"name: x\ncell: {kind: leaky, step: a}": "a.yaml:2: step: the cell leaky has its own: use the " +
			"kind custom",
		"name: x\ncell: {kind: leaky, state: {v: f32}}": "a.yaml:2: state: the cell leaky has its own: use the " +
			"kind custom",
		"name: x\ncell:\n  kind: custom\n" + step: "a.yaml: 0 candidates: name 2 to 16",
		"name: x\ncell:\n  kind: custom\n  params: {half: 0}\n" + step +
			"vote: {candidates: [a, b]}": "a.yaml:4: invalid cell parameter: custom: half = 0, want 1e-06 to 1e+06",
		"name: x\ncell:\n  kind: custom\n  params: {1a: 0}\n" + step +
			"vote: {candidates: [a, b]}": `a.yaml:4: invalid cell parameter: name "1a": use 1 to 63 letters`,
		"name: x\ncell:\n  kind: custom\n  params: {a: 1.0e+300}\n" + step +
			"vote: {candidates: [a, b]}": "a.yaml:4: invalid cell parameter: custom: a = 1e+300, want",
		byAgent("cell:\n  kind: custom\n" + step): "a.yaml:5: neighbours: agents of a custom cell that are addressed " +
			"are on a grid or a graph: write neighbours: {width: 512, height: 512, periodic: true}",
	} {
		_, err := Parse("a.yaml", []byte(text))
		checkSpecError(t, text, err, want)
	}
}

// FuzzCustomSpec: a spec with a custom cell is refused in words, or its kernel can be written and
// its state fits its page.
func FuzzCustomSpec(f *testing.F) {
	f.Add("v", "f32", "rate", 0.5, stepText)
	f.Add("past", "bf16[3]", "half", -1.0, "}"+stepText)
	f.Fuzz(func(t *testing.T, name, typ, param string, value float64, step string) {
		s := &Spec{
			Name: "x", Cell: Cell{
				Kind: "custom", State: map[string]string{name: typ},
				Params: map[string]float64{param: value}, Step: step,
			},
			Vote: Vote{Candidates: []string{"a", "b"}},
		}
		s.ensureDefaults()
		if _, err := s.validate(); err != nil {
			return
		}
		b, err := s.Bind()
		if err != nil {
			t.Fatalf("s.Bind: %v, want no error", err)
		}
		l, err := b.Layout(int(s.PageSize))
		if err != nil || l.Slots < 1 || len(l.Vars) != kernels.CustomVarAgents+1 {
			t.Errorf("%+v, error %v; want slots and %d variables", l, err, kernels.CustomVarAgents+1)
		}
		if words := len(b.ParamBlock()); words != kernels.CustomWords+len(b.Cell.Params) ||
			!strings.Contains(b.Cell.Text(), kernels.CustomKernel) {
			t.Errorf("a block of %d words", words)
		}
	})
}
