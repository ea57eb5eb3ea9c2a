package device

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestParseKernel(t *testing.T) {
	for _, c := range []struct{ source, want, code string }{
		{
			"__global__ void k(const float *a, float* b, int n) {}", "[{a buffer} {b buffer} {n int32}]",
			`extern "C" __global__ void k(`,
		},
		{"extern \"C\" __global__ void k(unsigned int n)\n{}", "[{n uint32}]", `extern "C" __global__ void k(`},
		{"extern \"C\" {\n__global__ void k() {}\n}", "[]", "{\n__global__ void k("},
		{"extern \"C\" { int x; }\n__global__ void k(void) {}", "[]", `extern "C" __global__ void k(`},
		{
			"// __global__ void k(double d)\n__global__ void __launch_bounds__(256, 2) k(const unsigned long long * " +
				"__restrict__ p, /* the * count */ size_t n, float x)", "[{p buffer} {n uint64} {x float32}]",
			`extern "C" __global__ void __launch_bounds__`,
		},
		{
			"__global__ void kk(int a) {}\n__global__ __launch_bounds__(64) void k(unsigned a, uint64_t, float v[])",
			"[{a uint32} { uint64} {v buffer}]", "}\nextern \"C\" __global__",
		},
		{
			"__global__\nvoid\nk(\n  float\n  *x,\n  const int n\n)\n{}", "[{x buffer} {n int32}]",
			`extern "C" __global__`,
		},
	} {
		params, code, err := ParseKernel("k", c.source)
		if err != nil || fmt.Sprint(params) != c.want || !strings.Contains(code, c.code) ||
			strings.Count(code, "extern") != max(1,
				strings.Count(c.source, "extern \"C\" __")+strings.Count(c.source, "extern \"C\" {")) &&
				!strings.Contains(c.source, "int x;") {
			t.Errorf("%q: %v %q %v", c.source, params, code, err)
		}
		if strings.Count(code, "\n") != strings.Count(c.source, "\n") {
			t.Errorf("%q: the lines moved", c.source)
		}
	}
	for _, source := range []string{
		"", "void k(int n) {}", "__global__ void other(int n) {}", "__global__ void k(double d) {}",
		"__global__ void k(float **p) {}",
		"__global__ void k(float4 v) {}", "template <typename T> __global__ void k(T *p) {}", "__global__ void k(int n",
		"__global__ void k(,) {}",
	} {
		if _, _, err := ParseKernel("k", source); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: %v", source, err)
		}
	}
	for _, name := range []string{"", "a b", "1k", "k(", "k\x00"} {
		if _, _, err := ParseKernel(name, "__global__ void k(int n) {}"); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParseKernel(f *testing.F) {
	f.Add("k", "__global__ void k(const float *a, int n) {}")
	f.Add("k", "extern \"C\" __global__ void k(float v[], unsigned)")
	f.Fuzz(func(t *testing.T, name, source string) {
		params, code, err := ParseKernel(name, source)
		if err != nil {
			return
		}
		if strings.Replace(code, `extern "C" `, "", 1) != source && code != source {
			t.Errorf("%q became %q", source, code)
		}
		again, same, err := ParseKernel(name, code)
		if err != nil || len(again) != len(params) || same != code {
			t.Errorf("%q does not parse to itself: %v", code, err)
		}
	})
}

func TestCheckDeclared(t *testing.T) {
	source := []Param{{"a", KindBuffer}, {"n", KindInt32}}
	if err := CheckDeclared("k", []Param{{"x", KindBuffer}, {"y", KindInt32}}, source); err != nil {
		t.Error(err)
	}
	for _, declared := range [][]Param{
		nil, source[:1],
		{{"a", KindBuffer}, {"n", KindUint32}},
		{{"n", KindInt32}, {"a", KindBuffer}},
	} {
		if err := CheckDeclared("k", declared, source); !errors.Is(err, ErrInvalidArgument) {
			t.Error(declared, err)
		}
	}
}

func TestCover(t *testing.T) {
	for _, n := range []int64{1, 127, 128, 129, 9_999, 10_000, 1_000_000, 1 << 33} {
		g := Cover(n, TableBlock(n))
		if threads := int64(g.Grid) * int64(g.Block); threads < n || threads >= n+int64(g.Block) {
			t.Errorf("%d: %+v", n, g)
		}
	}
}

// FuzzFindHead: the head of a kernel is where a regular expression over the whole source finds it,
// which is the definition, but takes milliseconds.
func FuzzFindHead(f *testing.F) {
	comments := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	expression := regexp.MustCompile(`(extern\s*"C"\s*)?__global__\s+(?:(?:static|inline|` + attribute +
		`)\s+)*void\s+(?:` + attribute + `\s*)*k\s*\(([^)]*)\)`)
	for _, seed := range []string{
		"__global__ void k(int n) {}", "__global__ void kk(int a) {} extern \"C\"\n__global__ void k(float *x)",
		"__global__ __global__ void k()", "/*/ __global__ void k(int n) */ __global__ static void k(unsigned u)",
		"// a\n__global__ void __launch_bounds__(3) __cluster_dims__(2) k (int /* n */ n)", "a / b /", "/* __global__",
		"template <int N> extern \"C\" __global__ void k(int n)", "extern C\" __global__ void k()",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		want := comments.ReplaceAllStringFunc(source, func(c string) string {
			return string(slices.Repeat([]byte{' '}, len(c)))
		})
		plain := blankComments(source)
		if plain != want {
			t.Fatalf("%q without comments is %q, want %q", source, plain, want)
		}
		at, parts := findHead(plain, "k")
		m := expression.FindStringSubmatchIndex(want)
		if (m == nil) != (parts == nil) {
			t.Fatalf("%q: head %v, want %v", source, parts, m)
		}
		if m == nil {
			return
		}
		before, declared := cutLinkage(plain[:at])
		if declared != (m[2] >= 0) || parts[2] != want[m[4]:m[5]] || before != strings.TrimSpace(want[:m[0]]) {
			t.Errorf("%q: %q, declared %v, before it %q, want %v", source, parts[2], declared, before, m)
		}
	})
}
