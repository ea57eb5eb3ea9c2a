package gpu

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var deviceName = flag.String("device", "host", "device of the agent: host or cuda:0")

func TestMain(m *testing.M) {
	gpuprocess.KernelMain()
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// agent starts a server and a GPU agent in this process, with more arguments, and returns the URL
// of the server.
func agent(t *testing.T, args ...string) string {
	t.Helper()
	s := jobstest.Start(t, server.Options{})
	cmd := gpuprocess.Command()
	cmd.SetArgs(append([]string{
		"--nats", s.URL(), "--device", *deviceName, "--allow-kernels", "--log-level", "error", "--memory", "1073741824",
	}, args...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, command.ErrInterrupted) {
			t.Errorf("gpuagent: %v", err)
		}
	})
	return s.URL()
}

// run runs exoswarm gpu against a server, and returns its output.
func run(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage = true
	cmd.SetArgs(append(args, "--nats", url))
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// save writes a .npy file and returns its name.
func save[T gpujob.Element](t *testing.T, name string, values []T, shape ...int64) string {
	t.Helper()
	a := gpujob.From(values, shape...)
	var b bytes.Buffer
	for descr, of := range fromNumPy {
		if of == a.Type {
			if err := numpy.Write(&b, &numpy.Array{Type: descr, Shape: a.Shape, Data: a.Data}); err != nil {
				t.Fatalf("numpy.Write: %v", err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// saved reads the elements of a .npy file.
func saved[T gpujob.Element](t *testing.T, file string) []T {
	t.Helper()
	a, err := readArray("file", file)
	if err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	return gpujob.Decode[T](a.Data)
}

// TestCommands: each command submits its job, an agent executes it, and the arrays of the result
// are in files.
func TestCommands(t *testing.T) {
	url := agent(t)
	a := save(t, "a.npy", []float32{3, 1, 2})
	out := filepath.Join(t.TempDir(), "out.npy")
	ok := func(want string, args ...string) {
		t.Helper()
		text, err := run(t, url, args...)
		if err != nil || !strings.Contains(text, want) {
			t.Fatalf("gpu %s: %q, error %v; want %q", strings.Join(args, " "), text, err, want)
		}
	}
	ok("6 ", "reduce", "--in", a, "--op", "sum")
	ok(`"text":"2"`, "reduce", "--in", a, "--op", "mean", "-o", "json")
	ok(*deviceName, "sort", "--in", a, "--out", out, "--descending")
	if got := saved[float32](t, out); !slices.Equal(got, []float32{3, 2, 1}) {
		t.Errorf("sorted %v", got)
	}
	ok(*deviceName, "histogram", "--in", a, "--bins", "3", "--min", "0", "--max", "3", "--out", out)
	if got := saved[uint64](t, out); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("counts %v", got)
	}
	ok("1 ", "tally", "--in", save(t, "b.npy", []uint8{0, 1, 1}), "--candidates", "2", "--rule", "majority")
	ok("2 ", "fuse", "--in", save(t, "e.npy", make([]float32, 16), 2, 8), "--members",
		save(t, "m.npy", []uint32{0, 0}), "--nodes", "1", "--out", out)
	ok("[2 2]", "gemm", "--a", save(t, "x.npy", []float32{1, 2, 3, 4}, 2, 2), "--b",
		save(t, "y.npy", []float32{5, 6, 7, 8}, 2, 2), "--out", out)
	if got := saved[float32](t, out); !slices.Equal(got, []float32{19, 22, 43, 50}) {
		t.Errorf("product %v", got)
	}
	ok("1 ", "allreduce", "--in", a, "--in", a, "--out", out)
	if got := saved[float32](t, out); !slices.Equal(got, []float32{6, 2, 4}) {
		t.Errorf("sums %v", got)
	}
	// An output that is an object of the store.
	big := make([]float64, 100_000)
	for i := range big {
		big[i] = float64(i)
	}
	ok("100000 ", "sort", "--in", save(t, "big.npy", big), "--out", out)
	if got := saved[float64](t, out); !slices.Equal(got, big) {
		t.Errorf("%d elements of an object are not sorted", len(got))
	}
	source := filepath.Join(t.TempDir(), "add.cu")
	if err := os.WriteFile(source, []byte(add), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := run(t, url, "run", source, "--in", a, "--in", a, "--out", out)
	switch {
	case *deviceName == "host":
		if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || !strings.Contains(err.Error(), "--device cuda") {
			t.Errorf("gpu run on the host device: %q, error %v; want a refusal with the cure", text, err)
		}
	case err != nil || !slices.Equal(saved[float32](t, out), []float32{6, 2, 4}):
		t.Errorf("gpu run: %q, error %v; want 6, 2, 4", text, err)
	}
}

const add = `__global__ void add(const float *a, const float *b, float *c, unsigned long long n) {
	unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}`

// TestLaunch: the flags of exoswarm gpu run and the parameters of the source make the arguments.
func TestLaunch(t *testing.T) {
	a := save(t, "a.npy", make([]float32, 1000), 10, 100)
	l := launch{block: []int{256}, in: []string{a, a}, out: []string{"c.npy"}}
	s, files, err := l.spec(add)
	if err != nil {
		t.Fatalf("spec: %v", err)
	}
	if s.Entry != "add" || !slices.Equal(s.Grid, []int{4}) || len(s.Args) != 4 || files["arg2"] != "c.npy" ||
		!slices.Equal(s.Args[2].Out.Shape, gpujob.Shape{10, 100}) || s.Args[3].Value != "1000" {
		t.Errorf("spec %+v, files %v", s, files)
	}
	l.out = []string{"c:x.npy:u8:2x3"}
	if s, files, err = l.spec(add); err != nil || files["arg2"] != "c:x.npy" || s.Args[2].Out.Type != gpujob.U64 ||
		!slices.Equal(s.Args[2].Out.Shape, gpujob.Shape{2, 3}) {
		t.Errorf("spec %+v, files %v, error %v", s, files, err)
	}
	for want, l := range map[string]launch{
		"3 pointers":  {block: []int{1}, in: []string{a}},
		"use f4":      {block: []int{1}, in: []string{a, a}, out: []string{"c:f2:1"}},
		"use for":     {block: []int{1}, in: []string{a, a}, out: []string{"c:f4:x"}},
		"no scalar":   {block: []int{1}, in: []string{a, a}, out: []string{"c"}, set: map[string]string{"m": "1"}},
		"is no u64":   {block: []int{1}, in: []string{a, a}, out: []string{"c"}, set: map[string]string{"n": "x"}},
		"__global__":  {block: []int{1}, entry: "sub"},
		"no such fil": {block: []int{1}, in: []string{"missing.npy"}},
	} {
		if _, _, err := l.spec(add); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", l, err, want)
		}
	}
	if _, _, err := (&launch{}).spec(add + fmt.Sprintln() + strings.Replace(add, "add", "more", 1)); err == nil ||
		!strings.Contains(err.Error(), "2 kernels") {
		t.Errorf("two kernels: %v", err)
	}
}

const ptxAdd = `.version 7.8
.target sm_70
.address_size 64
.visible .entry add(
	.param .u64 add_param_0, // a
	.param .u64 .ptr .global .align 4 add_param_1,
	.param .u64 add_param_2,
	.param .u32 add_param_3,
	.param .b32 add_param_4
) { ret; }`

// TestLaunchPTX: parameters of 64 bits are the files in their order, and --set has all numbers, by
// the number or the name of the parameter.
func TestLaunchPTX(t *testing.T) {
	a := save(t, "a.npy", make([]float32, 1000), 10, 100)
	set := map[string]string{"3": "1000", "add_param_4": "2.5"}
	l := launch{block: []int{256}, in: []string{a, a}, out: []string{"c.npy"}, set: set}
	s, files, err := l.ptxSpec(ptxAdd)
	if err != nil {
		t.Fatal(err)
	}
	if s.Entry != "add" || s.PTX != ptxAdd || s.Source != "" || !slices.Equal(s.Grid, []int{4}) || len(s.Args) != 5 ||
		files["arg2"] != "c.npy" || s.Args[3].Type != gpujob.U32 || s.Args[4].Type != gpujob.F32 {
		t.Errorf("spec %+v, files %v", s, files)
	}
	l = launch{block: []int{1}, in: []string{a}, out: []string{"c.npy"}, set: map[string]string{
		"0": "-7", "3": "-1", "4": "3",
	}}
	if s, files, err = l.ptxSpec(ptxAdd); err != nil || s.Args[0].Type != gpujob.I64 || s.Args[3].Type != gpujob.I32 ||
		s.Args[4].Type != gpujob.U32 || files["arg2"] != "c.npy" {
		t.Errorf("numbers: spec %+v, files %v, error %v", s, files, err)
	}
	with := func(name, value string) map[string]string {
		m := maps.Clone(set)
		m[name] = value
		return m
	}
	for want, l := range map[string]launch{
		"3 pointers":            {in: []string{a}, set: set},
		"use --set 3=VALUE":     {in: []string{a, a}, out: []string{"c"}},
		"is a pointer":          {in: []string{a, a}, out: []string{"c"}, set: with("1", "5")},
		"is no u32":             {in: []string{a, a}, out: []string{"c"}, set: with("3", "x")},
		"no parameter of one":   {in: []string{a, a}, out: []string{"c"}, set: with("n", "5")},
		"no such .entry":        {entry: "sub"},
		"missing.npy: no such ": {in: []string{"missing.npy"}, set: set},
	} {
		if _, _, err := l.ptxSpec(ptxAdd); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", l, err, want)
		}
	}
	for want, text := range map[string]string{
		"2 entries": ptxAdd + strings.Replace(ptxAdd, "add(", "more(", 1),
		"is it PTX": ".entry add(.param .u64 a)",
		"0 entries": "", "a struct": strings.Replace(ptxAdd, "add_param_4", "add_param_4[8]", 1),
	} {
		if _, _, err := (&launch{}).ptxSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v; want %q", text, err, want)
		}
	}
}

// TestBeforeConnection: what is wrong with files, flags and specifications is found before a
// command connects.
func TestBeforeConnection(t *testing.T) {
	a := save(t, "a.npy", []float32{1, 2, 3})
	source := filepath.Join(t.TempDir(), "k.ptx")
	if err := os.WriteFile(source, []byte(ptxAdd), 0o600); err != nil {
		t.Fatal(err)
	}
	// A command that connects fails, since its context is cancelled.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	connected := context.Canceled
	execute := func(text string) error {
		cmd := Command()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(strings.Fields(strings.NewReplacer("A.npy", a, "K.ptx", source).Replace(text)))
		return cmd.ExecuteContext(ctx)
	}
	for _, text := range []string{
		"reduce", "reduce --in none.npy", "reduce --in A.npy --op median", "sort --in none.npy", "sort",
		"histogram --in A.npy --bins 0", "tally --in A.npy", "tally --in A.npy --weights none.npy", "fuse --in A.npy",
		"gemm --a A.npy --b none.npy", "gemm --a A.npy --b A.npy", "allreduce --in none.npy", "chain --in A.npy",
		"compute x --in x=none.npy", "run none.cu", "run K.ptx --in A.npy", "run K.ptx --in none.npy",
	} {
		if err := execute(text); err == nil || errors.Is(err, connected) {
			t.Errorf("gpu %s: %v, want an error before the connection", text, err)
		}
	}
	for _, text := range []string{
		"reduce --in A.npy", "sort --in A.npy", "histogram --in A.npy", "allreduce --in A.npy",
		"compute x --in x=A.npy", "run K.ptx --in A.npy --in A.npy --out c.npy --set 3=3 --set 4=1",
	} {
		if err := execute(text); !errors.Is(err, connected) {
			t.Errorf("gpu %s: %v, want a connection", text, err)
		}
	}
}
