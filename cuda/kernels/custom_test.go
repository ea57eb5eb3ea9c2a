package kernels

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

const plainStep = StepSignature + " {\n  a.v += x.features[0]; // a comment with \"quotes\", } and \\\n  return " +
	"{0};\n}\n"

func custom(step string) Custom {
	return Custom{
		Vars:   []Var{{Name: "v", Elem: F32, Width: 1}, {Name: "w", Elem: BF16, Width: 3}},
		Params: []string{"half", "rate"}, Candidates: 3, Step: step,
	}
}

// TestCustomSource: the text is an observe kernel, in which the step stands last, under its own
// line numbers, and nothing of the frame's macros is left.
func TestCustomSource(t *testing.T) {
	text, err := custom(plainStep).Source()
	if err != nil {
		t.Fatal(err)
	}
	params, code, err := device.ParseKernel(CustomKernel, text)
	if err != nil || code != text || device.CheckDeclared(CustomKernel, paramsObserve, params) != nil {
		t.Errorf("%v, %v: %v", params, code == text, err)
	}
	frame, step, found := strings.Cut(text, "#line 1 \"step\"\n")
	if !found || !strings.HasPrefix(step, StepSignature+" {\n  a.v += x.features[0];  ") ||
		strings.Contains(step, "quotes") {
		t.Errorf("the step is\n%s", step)
	}
	live := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#(define|undef) (\w+)`).FindAllStringSubmatch(frame, -1) {
		live[m[2]] = m[1] == "define"
	}
	for name, is := range live {
		if is {
			t.Errorf("the step sees the macro %s", name)
		}
	}
	if len(live) < 50 || strings.Contains(text, "#include") || strings.Contains(text, "#pragma once") {
		t.Errorf("%d macros, or directives that are not resolved", len(live))
	}
	for _, part := range []string{
		"  float v;\n  float w[3];\n", "  float half;\n  float rate;\n", "candidates = 3",
		"#define CUSTOM_CANDIDATES 3\n", "element<unsigned short>(s, 5, c, i)",
	} {
		if !strings.Contains(frame, part) {
			t.Errorf("no %q in the frame", part)
		}
	}
}

func TestStepsThatAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"#define X }":                   "line 2: #: a step has no directives",
		"%:define X":                    "line 2: %: means something else",
		"int y = 1;\n%>":                "line 3: %> means something else",
		"a.v = x.round<::candidates;":   "line 2: <: means something else",
		"char c = '}';":                 "line 2: ': a step has no strings",
		"const char *s = \"}\";":        "line 2: \": a step has no strings",
		"a.v = 1; /\\\n/ spliced }":     `line 2: '\\' stands outside`,
		"// what??/\na.v = what??0:1;":  "line 3: ?? means something else",
		"a.é = 1;":                      "line 2: 'é' stands outside",
		"a.v = 1;\x00":                  `line 2: '\x00' stands outside`,
		"a.v = 1;\r ":                   `line 2: '\r' stands outside`,
		"/* }":                          "line 2: /* is never closed",
		"}":                             "line 3: } closes nothing",
		"{":                             "line 1: { is never closed",
		"a.v = (1;":                     "line 3: } closes the ( of line 2",
		"}} namespace exoswarm_cell {{": "line 2: } closes nothing",
		"} __global__ void other() {":   "line 2: __global__: a step does without a kernel of its own",
		"} extern int i; void f() {":    "line 2: extern",
		"static int n;":                 "line 2: static",
		"asm volatile();":               "line 2: asm: a step does without assembly",
		"__shared__ int n;":             "line 2: __shared__",
		"exoswarm_frame::Tally *t;":     "line 2: exoswarm_frame: a step does without a name of the frame",
		"__syncthreads();":              "line 2: __syncthreads: a step does without a wait for other agents",
		"int *p = new int;":             "line 2: new: a step does without the heap",
		"// fine\n/* fine\n*/ a.v = free(1.0e+5);": "line 4: free",
	} {
		_, err := custom(StepSignature + " {\n" + body + "\n  return {0};}").Source()
		if !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\ngot  %v\nwant %s", body, err, want)
		}
	}
	for step, want := range map[string]string{
		"":       "it has no __device__ Ballot step(",
		"\xff":   "it is no UTF-8",
		"int v;": "it has no __device__ Ballot step(",
		"// " + StepSignature + " { return {0}; }":                 "it has no __device__ Ballot step(",
		strings.Replace(plainStep, "Agent &a", "Agent a", 1):       "it has no __device__ Ballot step(",
		plainStep + strings.Repeat("/", MaxStepBytes):              "at most 65536",
		strings.Replace(plainStep, "{0}", "{0x1'0}", 1):            "line 3: ': a step has no strings",
		strings.Replace(plainStep, "// a comment", "/* a //", 1):   "line 2: /* is never closed",
		strings.Replace(plainStep, "x.features[0]", "x.(f[0)]", 1): "line 2: ) closes the [ of line 2",
	} {
		if _, err := custom(step).Source(); !errors.Is(err, ErrStep) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q:\ngot  %v\nwant %s", step, err, want)
		}
	}
}

func TestStepsThatAreTaken(t *testing.T) {
	for _, step := range []string{
		plainStep, strings.ReplaceAll(plainStep, "\n", "\r\n"), "__device__ inline Ballot step ( Agent&a,const " +
			"Params & p ,\n const Observation&x ){ return {0}; }",
		StepSignature + " { a.v = 1e5f + 0x1p-3f + .5e-3f; int news = 1, renew = 2; return {news < renew ? 0u : 1u}; }",
		"template <class T> struct V { T v; };\nusing W = V<V<float>>;\n" + plainStep,
		"/**//***/ /* é } */ // é }\n" + plainStep,
	} {
		if _, err := custom(step).Source(); err != nil {
			t.Errorf("%q: %v", step, err)
		}
	}
}

func TestCustomName(t *testing.T) {
	for _, name := range []string{"v", "a1_b", strings.Repeat("x", 63), "LARGEST"} {
		if err := CustomName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", "1a", "_a", "a__b", "a b", "é", "float", "index", "uniform", "exoswarm_x", "new",
		"free", "asm", strings.Repeat("x", 64), "a;b", "a\n",
	} {
		if err := CustomName(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// FuzzStep: whatever the step is, it is refused, or the frame before it is the same as of any other
// step, what stands in its place is its text without comments, and its braces close inside of it.
func FuzzStep(f *testing.F) {
	for _, step := range []string{
		plainStep, "}" + plainStep + "{", "/*" + plainStep, plainStep + "#if 0",
		plainStep + "//\\", plainStep + "\"/*\"", "%:" + plainStep, plainStep + "??>", plainStep + "}} void f() {{",
	} {
		f.Add(step)
	}
	frame, _, _ := strings.Cut(mustSource(f, plainStep), "#line 1 \"step\"\n")
	f.Fuzz(func(t *testing.T, step string) {
		text, err := custom(step).Source()
		if err != nil {
			if !errors.Is(err, ErrStep) {
				t.Error(err)
			}
			return
		}
		before, rest, _ := strings.Cut(text, "#line 1 \"step\"\n")
		inside, end := strings.CutSuffix(rest, "\n}\n")
		if before != frame || !end || strings.ContainsAny(inside, "#\"'\\") || strings.Contains(inside, "/*") ||
			strings.Contains(inside, "//") {
			t.Fatalf("%q became %q", step, rest)
		}
		if given := strings.ReplaceAll(step, "\r\n", "\n"); strings.Count(given, "\n") != strings.Count(inside, "\n") {
			t.Errorf("%q: the lines moved", step)
		}
		depth := 0
		for _, c := range inside {
			depth += map[rune]int{'{': 1, '}': -1}[c]
			if depth < 0 {
				t.Fatalf("%q leaves its namespace", step)
			}
		}
		if depth != 0 {
			t.Fatalf("%q is open at its end", step)
		}
	})
}

func mustSource(t testing.TB, step string) string {
	t.Helper()
	text, err := custom(step).Source()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPublished: what a step may call is in the frame.
func TestPublished(t *testing.T) {
	for _, name := range published {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(customFrame) {
			t.Errorf("the frame has no %s", name)
		}
	}
}
