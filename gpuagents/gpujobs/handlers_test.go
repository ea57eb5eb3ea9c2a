package gpujobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

var deviceName = flag.String("device", "host", "device of the tests: host or cuda:0")

// store is an object store in memory.
type store struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (s *store) Object(_ context.Context, name string, of jobs.Owner) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.all[of.Named(name)]
	if !ok {
		return nil, fmt.Errorf("object %s: %w", name, jobs.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (s *store) PutObject(_ context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	data, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[of.Named(name)] = data
	return int64(len(data)), err
}

// slot is a slot on the device of the tests, and counts the slots that are not released.
type slot struct {
	dev  device.Device
	open *sync.WaitGroup
}

func (p slot) Device() device.Device { return p.dev }
func (p slot) Failed(error)          {}
func (p slot) Succeeded(int)         {}
func (p slot) Release()              { p.open.Done() }

// rig is handlers over one device.
type rig struct {
	*gpujobs.Handlers
	store  *store
	places *atomic.Int64 // that were taken
}

// start returns handlers whose places and buffers must be released by the end of the test.
func start(t testing.TB, o gpujobs.Options) rig {
	t.Helper()
	return startOn(t, cuda.Options{}, o)
}

// startOn is start with a device of some options.
func startOn(t testing.TB, device cuda.Options, o gpujobs.Options) rig {
	t.Helper()
	device.Poison = true
	dev, err := cuda.Open(t.Context(), *deviceName, device)
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	var open sync.WaitGroup
	var places atomic.Int64
	o.Slot = func(context.Context, int64) (gpujobs.Slot, error) {
		places.Add(1)
		open.Add(1)
		return slot{dev, &open}, nil
	}
	s := &store{all: map[string][]byte{}}
	o.Objects = s
	h, err := gpujobs.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		h.Close()
		open.Wait()
		if err := dev.Close(); err != nil { // also reports what is left open
			t.Errorf("close the device: %v", err)
		}
	})
	return rig{h, s, &places}
}

// try executes a job as a worker does.
func (r rig) try(ctx context.Context, j jobs.Job) (any, error) {
	if handler := r.Jobs()[j.Kind]; handler != nil {
		return handler(ctx, j, func(any) {})
	}
	handler := r.Batches()[j.Kind]
	if handler == nil {
		return nil, errors.New("no handler of this kind")
	}
	outs, err := handler(ctx, []jobs.Job{j}, func(int, any) {})
	if err != nil {
		return nil, err
	}
	return outs[0].Output, outs[0].Err
}

// do executes a job of a specification and returns its output, which has been JSON meanwhile.
func do[T any](t testing.TB, r rig, s gpujob.Spec) (out T) {
	t.Helper()
	j, err := gpujob.NewJob("j", s)
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	got, err := r.try(t.Context(), j)
	if err != nil {
		t.Fatalf("job of kind %s: %v, want no error", j.Kind, err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatalf("encode the output of %s: %v", j.Kind, err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("decode the output of %s: %v", j.Kind, err)
	}
	return out
}

// TestReduce: each operation over each type, with numbers that need all bits and with numbers that
// are not finite.
func TestReduce(t *testing.T) {
	r := start(t, gpujobs.Options{})
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	values := func(t gpujob.Type, text string, n int64) gpujob.Array {
		return gpujob.Array{Type: t, Shape: gpujob.Shape{n}, Values: json.RawMessage(text)}
	}
	for _, c := range []struct {
		op   string
		in   gpujob.Array
		want string
	}{
		{"sum", values("f32", "[1,2,3.5]", 3), "6.5"},
		{"mean", values("f64", "[1,2,6]", 3), "3"},
		{"min", gpujob.From([]float32{2, -0.1, 3}), "-0.1"},
		{"max", gpujob.From([]float32{2, inf}), "+Inf"},
		{"max", gpujob.From([]float32{2, nan, 5}), "NaN"},
		{"sum", gpujob.From([]float32{nan, 5}), "NaN"},
		{"sum", gpujob.From([]float32{}), "0"},
		{"sum", gpujob.From([]int64{math.MaxInt64, math.MaxInt64}), "18446744073709551614"},
		{"sum", gpujob.From([]int32{-5, 3}), "-2"},
		{"min", gpujob.From([]int64{math.MinInt64, 3}), "-9223372036854775808"},
		{"max", gpujob.From([]uint32{7, math.MaxUint32}), "4294967295"},
		{"mean", gpujob.From([]int32{-5, 4}), "-0.5"},
	} {
		out := do[gpujob.ReduceOutput](t, r, &gpujob.ReduceSpec{Op: c.op, In: c.in})
		if out.Text != c.want {
			t.Errorf("%s of %s: %s, want %s", c.op, c.in.Type, out.Text, c.want)
		}
		if value := string(out.Value); value != out.Text && (value != "null" || !strings.ContainsAny(out.Text, "NI")) {
			t.Errorf("%s of %s: value %s, text %s", c.op, c.in.Type, out.Value, out.Text)
		}
		if out.Device != *deviceName {
			t.Errorf("executed on %q, want %s", out.Device, *deviceName)
		}
	}
	// A long array, whose sum in float32 would be far off.
	ones := make([]float32, 3<<20+5)
	for i := range ones {
		ones[i] = 0.1
	}
	sum := 0.0
	for _, v := range ones {
		sum += float64(v)
	}
	var got float64
	out := do[gpujob.ReduceOutput](t, r, &gpujob.ReduceSpec{Op: "sum", In: gpujob.From(ones)})
	if err := json.Unmarshal(out.Value, &got); err != nil || math.Abs(got-sum) > 1e-6*sum {
		t.Errorf("sum %v, error %v; want %v", got, err, sum)
	}
}

// TestSort: the order equals slices.SortStableFunc with NaN last, and the indices name where each
// element was.
func TestSort(t *testing.T) {
	r := start(t, gpujobs.Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, descending := range []bool{false, true} {
		for _, n := range []int{0, 1, 2, 1000} {
			in := make([]float32, n)
			for i := range in {
				if in[i] = float32(rnd.IntN(50)) - 25; rnd.IntN(20) == 0 {
					in[i] = float32(math.NaN())
				}
			}
			out := do[gpujob.SortOutput](t, r,
				&gpujob.SortSpec{In: gpujob.From(in), Descending: descending, Indices: true})
			want := make([]uint32, n)
			for i := range want {
				want[i] = uint32(i)
			}
			slices.SortStableFunc(want, func(a, b uint32) int {
				x, y := in[a], in[b]
				switch {
				case x != x && y != y || x == y:
					return 0
				case x != x:
					return 1
				case y != y:
					return -1
				case (x < y) != descending:
					return -1
				}
				return 1
			})
			if got := gpujob.Decode[uint32](out.Indices.Data); !slices.Equal(got, want) {
				t.Errorf("%d elements, descending %v: indices %v, want %v", n, descending, got, want)
			}
		}
	}
	ints := do[gpujob.SortOutput](t, r, &gpujob.SortSpec{In: gpujob.From([]int64{5, -3, math.MinInt64, math.MaxInt64})})
	if got := gpujob.Decode[int64](ints.Sorted.Data); !slices.Equal(got, []int64{math.MinInt64, -3, 5, math.MaxInt64}) {
		t.Errorf("sorted %v", got)
	}
}

// TestHistogram: bins, both ends, and what is in none.
func TestHistogram(t *testing.T) {
	r := start(t, gpujobs.Options{})
	out := do[gpujob.HistogramOutput](t, r, &gpujob.HistogramSpec{
		In:   gpujob.From([]float64{0, 0.5, 1, 1.5, 2, -0.1, 2.1, math.NaN(), math.Inf(1)}),
		Bins: 2, Min: 0, Max: 2,
	})
	if got := gpujob.Decode[uint64](out.Counts.Data); !slices.Equal(got, []uint64{2, 3}) || out.Below != 1 ||
		out.Above != 2 || out.NaN != 1 {
		t.Errorf("counts %v: %+v; want 2 and 3, 1 below, 2 above, 1 NaN", got, out)
	}
}

// TestTally: the outcome equals package consensus.
func TestTally(t *testing.T) {
	r := start(t, gpujobs.Options{})
	ballots := []uint8{0, 1, 1, 2, consensus.Abstain, 7}
	priorities, weights := gpujob.From([]uint32{1, 5, 2, 9, 3, 4}), gpujob.From([]uint8{9, 1, 1, 1, 1, 1})
	spec := gpujob.TallySpec{
		Ballots: gpujob.From(ballots), Candidates: 3, Rule: "quorum 1/2", Priorities: &priorities,
	}
	out := do[gpujob.TallyOutput](t, r, &spec)
	if out.Winner == nil || *out.Winner != 1 || !slices.Equal(out.Counts, []uint64{1, 2, 1}) || out.Abstentions != 1 ||
		out.Invalid != 1 || out.Leader == nil || *out.Leader != 3 || out.Priority != 9 {
		t.Errorf("tally: %+v", out)
	}
	spec.Weights = &weights
	if out := do[gpujob.TallyOutput](t, r, &spec); out.Winner == nil || *out.Winner != 0 || out.Counts[0] != 9 {
		t.Errorf("weighted tally: %+v", out)
	}
	spec.Rule, spec.Weights = "unanimous", nil
	if out := do[gpujob.TallyOutput](t, r, &spec); out.Winner != nil || out.QuorumMet {
		t.Errorf("unanimous tally: %+v; want no winner", out)
	}
}

// TestFuse: the nodes equal package fusion, bit for bit.
func TestFuse(t *testing.T) {
	r := start(t, gpujobs.Options{})
	const agents, dim, nodes = 1000, 16, 7
	rnd := rand.New(rand.NewPCG(3, 4))
	embeddings, members, weights := make([]float32, agents*dim), make([]uint32, agents), make([]uint32, agents)
	for i := range embeddings {
		embeddings[i] = rnd.Float32() - 0.5
	}
	for i := range members {
		members[i], weights[i] = rnd.Uint32N(nodes), rnd.Uint32N(3<<16)
	}
	members[4], members[5] = fusion.None, nodes
	want, err := fusion.NewNodes(nodes, dim)
	if err != nil {
		t.Fatalf("NewNodes: %v", err)
	}
	report, err := want.Accumulate(members, embeddings, weights)
	if err != nil {
		t.Fatalf("Accumulate: %v", err)
	}
	means := make([]float32, nodes*dim)
	if err := want.Means(means); err != nil {
		t.Fatalf("Means: %v", err)
	}
	w := gpujob.From(weights)
	out := do[gpujob.FuseOutput](t, r, &gpujob.FuseSpec{
		Embeddings: gpujob.From(embeddings, agents, dim), Members: gpujob.From(members), Nodes: nodes, Weights: &w,
	})
	if !slices.Equal(gpujob.Decode[float32](out.Means.Data), means) ||
		!slices.Equal(gpujob.Decode[uint64](out.Counts.Data), want.Counts) ||
		!slices.Equal(gpujob.Decode[uint64](out.Weights.Data), want.Weights) {
		t.Error("the nodes differ from the nodes of package fusion")
	}
	if out.Fused != report.Fused || out.Nobody != 1 || out.Invalid != 1 {
		t.Errorf("fused %d, nobody %d, invalid %d; want %d, 1, 1", out.Fused, out.Nobody, out.Invalid, report.Fused)
	}
}

// TestGemm: the product of whole numbers is exact, with and without transposed factors.
func TestGemm(t *testing.T) {
	r := start(t, gpujobs.Options{})
	want := []float32{58, 64, 139, 154}
	for _, s := range []gpujob.GemmSpec{
		{A: gpujob.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3), B: gpujob.From([]float32{7, 8, 9, 10, 11, 12}, 3, 2)},
		{
			A: gpujob.From([]float32{1, 4, 2, 5, 3, 6}, 3, 2), TA: true,
			B: gpujob.From([]float32{7, 9, 11, 8, 10, 12}, 2, 3), TB: true,
		},
	} {
		out := do[gpujob.GemmOutput](t, r, &s)
		if got := gpujob.Decode[float32](out.C.Data); !slices.Equal(got, want) ||
			!slices.Equal(out.C.Shape, gpujob.Shape{2, 2}) {
			t.Errorf("product %v of shape %v, want %v", got, out.C.Shape, want)
		}
	}
	out := do[gpujob.GemmOutput](t, r, &gpujob.GemmSpec{
		A: gpujob.From([]float32{}, 2, 0), B: gpujob.From([]float32{}, 0, 2),
	})
	if got := gpujob.Decode[float32](out.C.Data); !slices.Equal(got, make([]float32, 4)) {
		t.Errorf("product of empty matrices: %v, want zeros", got)
	}
}

const scale = `__global__ void scale(const float *x, float *y, float by, unsigned long long n) {
	unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
	if (i < n) y[i] = by * x[i];
}`

// scaled returns a job of kind kernel for n elements.
func scaled(n int) *gpujob.KernelSpec {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	in := gpujob.From(x)
	return &gpujob.KernelSpec{
		Source: scale, Entry: "scale", Grid: []int{(n + 255) / 256}, Block: []int{256}, Args: []gpujob.Arg{
			{Array: &in},
			{Name: "y", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{int64(n)}}},
			{Type: gpujob.F32, Value: "2"},
			{Type: gpujob.U64, Value: json.Number(fmt.Sprint(n))},
		},
	}
}

// TestKernel: a GPU launches the kernel of a submitter, and the host device refuses it.
func TestKernel(t *testing.T) {
	if start(t, gpujobs.Options{}).Jobs()[gpujob.KindKernel] != nil {
		t.Error("kernels are executed though nobody has allowed it")
	}
	r := start(t, gpujobs.Options{AllowKernels: true})
	if *deviceName != "host" {
		out := do[gpujob.KernelOutput](t, r, scaled(1000))
		y := out.Arrays["y"]
		if got := gpujob.Decode[float32](y.Data); len(got) != 1000 || got[7] != 14 || got[999] != 1998 {
			t.Errorf("%d elements, want 1000 that are doubled", len(got))
		}
		wrong := scaled(10)
		wrong.Args = wrong.Args[:3]
		refused(t, r, wrong, jobs.CodeInvalid, "4 parameters")
		wrong = scaled(10)
		wrong.Source = strings.Replace(scale, "by * x[i]", "by * z[i]", 1)
		refused(t, r, wrong, jobs.CodeInvalid, "spec.source")
		wrong = scaled(10)
		wrong.Entry = "missing"
		refused(t, r, wrong, jobs.CodeInvalid, "__global__ void missing")
		return
	}
	refused(t, r, scaled(10), jobs.CodeInvalid, "device host compiles no kernels")
}

// refused executes a job that must fail with a code and a text.
func refused(t *testing.T, r rig, s gpujob.Spec, code jobs.Code, text string) {
	t.Helper()
	j, err := gpujob.NewJob("j", s)
	if err == nil {
		_, err = r.try(t.Context(), j)
	}
	if err == nil || jobs.AsError(err).Code != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want code %s and %q", s.Kind(), err, code, text)
	}
}

// TestObjects: an array may be an object, and a large output is one. Tenants do not see each
// other's objects.
func TestObjects(t *testing.T) {
	r := start(t, gpujobs.Options{})
	in := make([]float64, 100_000)
	for i := range in {
		in[i] = float64(len(in) - i)
	}
	data := gpujob.From(in)
	r.store.all["acme/in"] = data.Data
	spec := &gpujob.SortSpec{In: gpujob.Array{Type: gpujob.F64, Shape: data.Shape, Object: "in"}}
	j, err := gpujob.NewJob("j", spec)
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	if _, err := r.try(t.Context(), j); err == nil || jobs.AsError(err).Code != jobs.CodeInput {
		t.Errorf("another tenant's object: %v; want code input", err)
	}
	j.Tenant = "acme"
	out, err := r.try(t.Context(), j)
	if err != nil {
		t.Fatalf("sort: %v", err)
	}
	sorted := out.(*gpujob.SortOutput).Sorted
	if sorted.Object != "gpu-j-sorted" || sorted.Data != nil {
		t.Fatalf("object %q and %d bytes inline; want an object", sorted.Object, len(sorted.Data))
	}
	if got := gpujob.Decode[float64](r.store.all["acme/gpu-j-sorted"]); len(got) != len(in) || !slices.IsSorted(got) {
		t.Error("the object does not hold the sorted elements")
	}
	for _, n := range []int64{10, 1_000_000} {
		spec.In.Shape = gpujob.Shape{n}
		if j, err = gpujob.NewJob("j", spec); err != nil {
			t.Fatalf("NewJob: %v", err)
		}
		j.Tenant = "acme"
		if _, err := r.try(t.Context(), j); err == nil || jobs.AsError(err).Code != jobs.CodeInput {
			t.Errorf("an object of another length than %d elements: %v; want code input", n, err)
		}
	}
}

// TestRefused: a specification that is not valid, and a job above a limit, fail with a class, the
// field and the cure.
func TestRefused(t *testing.T) {
	r := start(t, gpujobs.Options{Memory: 1 << 20})
	for kind, cases := range map[string][][2]string{
		"reduce": {
			{`{"op":"sum","in":{"type":"f32","shape":[2],"values":[1]}}`, "spec.in.values: 1 numbers"},
			{`{"op":"product","in":{"type":"f32","shape":[1],"values":[1]}}`, "spec.op"},
			{`{"op":"min","in":{"type":"f32","shape":[0]}}`, "an empty array has no min"},
			{`{"op":"sum","in":{"type":"u8","shape":[1],"values":[1]}}`, "spec.in.type"},
			{`{"op":"sum","in":{"type":"f32","shape":[1],"values":["x"]}}`, "spec.in.values"},
			{`{"op":"sum","in":{"type":"i32","shape":[1],"values":[1.5]}}`, "1.5 is no i32"},
			{`{"op":"sum","in":{"type":"f32","shape":[1],"data":"AAAA"}}`, "3 bytes for 1 elements"},
			{`{"op":"sum","in":{"type":"f32","shape":[1]}}`, "elements are missing"},
			{`{"op":"sum","in":{"type":"f32","shape":[1],"object":"x","values":[1]}}`, "use one of"},
			{`{"op":"sum","in":{"type":"f32","shape":[-1]}}`, "spec.in.shape"},
			{`{"op":"sum","in":{"type":"f32","shape":[3000000000000000000,4],"object":"x"}}`, "at most 2^40"},
			{`{"op":"sum","in":{"type":"f64","shape":[1000000],"object":"x"}}`, "--gpu-job-memory"},
			{`{"op":"sum","inn":{}}`, "unknown field"},
			{`null`, "spec.op"},
			{`[]`, "spec"},
		},
		"gemm": {
			{
				`{"a":{"type":"f32","shape":[1,2],"values":[1,2]},"b":{"type":"f32","shape":[1,2],"values":[1,2]}}`,
				"inner",
			},
			{
				`{"a":{"type":"f32","shape":[2147483647,0]},"b":{"type":"f32","shape":[0,2147483647]}}`,
				"--gpu-job-memory",
			},
		},
		"histogram": {{`{"bins":2,"min":1,"max":1,"in":{"type":"f32","shape":[0]}}`, "spec.min"}},
		"tally": {
			{`{"candidates":2,"rule":"most","ballots":{"type":"u8","shape":[1],"values":[1]}}`, "spec.rule"},
			{`{"candidates":300,"ballots":{"type":"u8","shape":[1],"values":[1]}}`, "spec.candidates"},
		},
		"fuse": {{`{"nodes":1,"embeddings":{"type":"f32","shape":[1,7]},"members":{}}`, "spec.embeddings"}},
	} {
		for _, c := range cases {
			j := jobs.Job{ID: "j", Kind: kind, Spec: json.RawMessage(c[0])}
			_, err := r.try(t.Context(), j)
			if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || !strings.Contains(err.Error(), c[1]) {
				t.Errorf("%s %s: %v; want code invalid and %q", kind, c[0], err, c[1])
			}
		}
	}
}

// TestCancel: a cancelled job ends with the cause, and one that takes too long with a deadline.
func TestCancel(t *testing.T) {
	r := start(t, gpujobs.Options{})
	j, err := gpujob.NewJob("j", &gpujob.SortSpec{In: gpujob.From(make([]float32, 1000))})
	if err != nil {
		t.Fatalf("NewJob: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrCancelled)
	if _, err := r.try(ctx, j); !errors.Is(err, jobs.ErrCancelled) {
		t.Errorf("cancelled: %v", err)
	}
	r = start(t, gpujobs.Options{Timeout: time.Nanosecond})
	if _, err := r.try(t.Context(), j); jobs.AsError(err).Code != jobs.CodeDeadline {
		t.Errorf("out of time: %v; want code deadline", err)
	}
}

// FuzzSpec: whatever the specification is, a job ends with an output or an error of a class that is
// not internal.
func FuzzSpec(f *testing.F) {
	r := start(f, gpujobs.Options{
		Memory: 1 << 16, Timeout: 10 * time.Second, AllowKernels: true, Models: models(f),
		TrainPrograms: true, TrainTimeout: 10 * time.Second,
	})
	kinds := gpujob.Kinds()
	f.Add(0, []byte(`{"op":"sum","in":{"type":"f32","shape":[2],"values":[1,2]}}`))
	for kind := range kinds {
		f.Add(kind, []byte(`{"in":{"type":"f32","shape":[2],"values":[1,2]},"bins":3,"min":0,"max":1}`))
	}
	f.Fuzz(func(t *testing.T, kind int, spec []byte) {
		if kind < 0 || kind >= len(kinds) {
			return
		}
		if _, err := r.try(t.Context(), jobs.Job{ID: "j", Kind: kinds[kind], Spec: spec}); err != nil &&
			jobs.AsError(err).Code == jobs.CodeInternal {
			t.Errorf("%s %s: %v, want an error with a class of its own", kinds[kind], spec, err)
		}
	})
}
