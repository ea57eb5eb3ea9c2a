//go:build cuda

package driver

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
)

// compileCustom compiles a custom cell with the NVRTC of this machine, which needs no GPU.
func compileCustom(t *testing.T, of celltest.Cell) error {
	t.Helper()
	compiler := findNVRTC(nvrtcNames)
	if compiler == nil {
		t.Skip("no NVRTC on this machine: custom cells are not compiled")
	}
	c, err := cells.Custom(of.State, of.Params, of.Step, of.Candidates)
	if err != nil {
		t.Fatal(err)
	}
	params, code, err := device.ParseKernel(c.Kernel, c.Source)
	if err != nil || code != c.Source {
		t.Fatalf("the text is not a kernel: %v", err)
	}
	observe, _ := kernels.Lookup("leaky_observe")
	if err := device.CheckDeclared(c.Kernel, observe.Params, params); err != nil {
		t.Fatal(err)
	}
	src := kernels.Source{Name: c.Kernel, Params: params, File: c.Kernel + ".cu", Code: code}
	for _, chip := range []string{"sm_70", "sm_90"} {
		image, cerr := compiler.compile(src, append([]string{
			"--gpu-architecture=" + chip, "--std=c++17",
			"--generate-line-info",
		}, src.Options()...))
		if errors.Is(cerr, device.ErrNotSupported) { // a chip that this version has forgotten, or does not know yet
			continue
		}
		if cerr == nil && len(image) == 0 {
			t.Error("an empty image")
		}
		err = cerr
	}
	return err
}

// TestCustomCellsCompile: cells with every type of state are CUDA C++ to NVRTC.
func TestCustomCellsCompile(t *testing.T) {
	for name, c := range map[string]celltest.Cell{
		"leaky": celltest.Leaky(20), "lif": celltest.Lif(20),
		"oscillator": celltest.Oscillator(),
	} {
		if err := compileCustom(t, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCustomCellsThatDoNotCompile: the compiler's words name the lines of the step as its author
// counts them.
func TestCustomCellsThatDoNotCompile(t *testing.T) {
	for what, c := range map[string]struct{ body, want string }{
		"an unknown name":     {"\n  a.v = other;\n  return {0};", `^step\(3\): error:.*"other" is undefined`},
		"an unknown variable": {" return {0, a.w}; ", `^step\(2\): error:.*"w"`},
		"no such parameter":   {"\n\n  return {p.unknown > 0 ? 1u : 0u};", `^step\(4\): error:.*"unknown"`},
		"a macro of ours":     {" return {MAX_FEATURES}; ", `^step\(2\): error:.*"MAX_FEATURES" is undefined`},
		"a struct of ours":    {" Tally t; return {0}; ", `^step\(2\): error:.*"Tally" is undefined`},
		"the frame's own": {
			" return {0}; }\nstruct Agent { int v; };\n__device__ void more() {",
			`^step\(3\): error:.*Agent"`,
		},
		"nothing returned": {"\n  return 5;", `^step\(3\): error`},
		"no semicolon":     {"\n  a.v = 1\n  return {0};", `^step\(4\): error: expected a ";"`},
	} {
		err := compileCustom(t, celltest.Cell{
			State: map[string]string{"v": "f32"}, Candidates: []string{"a", "b"},
			Step: "// a comment\n" + kernels.StepSignature + " {" + c.body + "}\n",
		})
		var refused *device.SourceError
		if !errors.As(err, &refused) || !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !regexp.MustCompile(`(?m)` + c.want).MatchString(refused.Log) {
			t.Errorf("%s: want %s in:\n%s", what, c.want, refused.Log)
		}
		if strings.Contains(refused.Log, "custom_observe.cu: ") {
			t.Errorf("%s: a line of the frame is quoted:\n%s", what, refused.Log)
		}
	}
}
