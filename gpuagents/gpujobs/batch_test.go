package gpujobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// together executes jobs as a worker executes a batch, and returns their outputs as JSON without
// where they ran.
func (r rig) together(t testing.TB, all []jobs.Job) []string {
	t.Helper()
	outs, err := r.Batches()[all[0].Kind](t.Context(), all, func(int, any) {})
	if err != nil || len(outs) != len(all) {
		t.Fatalf("a batch of %d: %d outcomes, %v", len(all), len(outs), err)
	}
	texts := make([]string, len(outs))
	for i, o := range outs {
		if o.Err != nil {
			texts[i] = "error " + string(jobs.AsError(o.Err).Code)
			continue
		}
		var fields map[string]any
		data, err := json.Marshal(o.Output)
		if err == nil {
			err = json.Unmarshal(data, &fields)
		}
		if err != nil {
			t.Fatalf("output %+v: %v", o.Output, err)
		}
		delete(fields, "seconds")
		data, _ = json.Marshal(fields)
		texts[i] = string(data)
	}
	return texts
}

// mixed returns n jobs of a kind with arrays of all types and of several sizes; some are wrong.
func mixed(t testing.TB, kind string, n int) (all []jobs.Job) {
	t.Helper()
	r := rand.New(rand.NewPCG(9, 10))
	for i := range n {
		size := []int{1, 7, 300, 3000, 1, 7, 300, 3000, 1, 7, 300, 40_000}[r.IntN(12)]
		ints, floats := make([]int32, size), make([]float64, size)
		for k := range ints {
			ints[k], floats[k] = r.Int32()-1<<30, r.NormFloat64()
		}
		in := gpujob.From(floats)
		if i%3 == 0 {
			in = gpujob.From(ints)
		}
		var s gpujob.Spec
		switch kind {
		case gpujob.KindReduce:
			s = &gpujob.ReduceSpec{Op: []string{"sum", "min", "max", "mean"}[i%4], In: in}
		case gpujob.KindSort:
			s = &gpujob.SortSpec{In: in, Descending: i%2 == 0, Indices: i%5 == 0}
		default:
			s = &gpujob.HistogramSpec{In: in, Bins: 1 + i, Min: -1, Max: 3}
		}
		j, err := gpujob.NewJob(fmt.Sprint("j", i), s)
		if err != nil {
			t.Fatalf("NewJob: %v", err)
		}
		switch i % 17 {
		case 11:
			j.Spec = json.RawMessage(`{"in":{"type":"f32","shape":[3],"values":[1,2]},"op":"sum","bins":1,"max":1}`)
		case 13:
			j.Spec = json.RawMessage(strings.Replace(string(j.Spec), `"data"`, `"object":"x","datum"`, 1))
		}
		all = append(all, j)
	}
	return all
}

// TestBatch: jobs that run together have the outputs that each has by itself, and wrong jobs fail
// alone.
func TestBatch(t *testing.T) {
	r := start(t, gpujobs.Options{})
	for kind := range r.Batches() {
		all := mixed(t, kind, 100)
		failed := 0
		for i, got := range r.together(t, all) {
			want := r.together(t, all[i:i+1])[0]
			if got != want {
				t.Errorf("%s %d: %.200s; by itself %.200s", kind, i, got, want)
			}
			if strings.HasPrefix(got, "error") {
				failed++
			}
		}
		if failed != 12 {
			t.Errorf("%s: %d jobs failed, want 12", kind, failed)
		}
	}
}

// TestBatchOneSet: a batch of small jobs takes one slot on a device.
func TestBatchOneSet(t *testing.T) {
	r := start(t, gpujobs.Options{})
	all := make([]jobs.Job, 200)
	for i := range all {
		j, err := gpujob.NewJob(fmt.Sprint("j", i), &gpujob.ReduceSpec{
			Op: "sum", In: gpujob.From([]float32{1, float32(i)}),
		})
		if err != nil {
			t.Fatalf("NewJob: %v", err)
		}
		all[i] = j
	}
	before := r.places.Load()
	for i, out := range r.together(t, all) {
		if !strings.Contains(out, fmt.Sprintf(`"text":"%d"`, i+1)) {
			t.Errorf("sum %d: %s", i, out)
		}
	}
	if n := r.places.Load() - before; n != 1 {
		t.Errorf("200 small jobs took %d places, want 1", n)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrCancelled)
	outs, err := r.Batches()[gpujob.KindReduce](ctx, all[:3], func(int, any) {})
	for _, o := range outs {
		if err == nil && o.Err == nil {
			t.Errorf("a batch that is cancelled has the output %v", o.Output)
		}
	}
}

// BenchmarkBatch measures what a small job costs beyond the queue in a batch of 1,000.
func BenchmarkBatch(b *testing.B) {
	r := start(b, gpujobs.Options{})
	const n = 1000
	for kind, spec := range map[string]gpujob.Spec{
		"reduce":    &gpujob.ReduceSpec{Op: "sum", In: gpujob.From(make([]float32, 64))},
		"sort":      &gpujob.SortSpec{In: gpujob.From(make([]float32, 64))},
		"histogram": &gpujob.HistogramSpec{In: gpujob.From(make([]float32, 64)), Bins: 10, Max: 1},
	} {
		all := make([]jobs.Job, n)
		for i := range all {
			j, err := gpujob.NewJob(fmt.Sprint("j", i), spec)
			if err != nil {
				b.Fatalf("NewJob: %v", err)
			}
			all[i] = j
		}
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				outs, err := r.Batches()[kind](b.Context(), all, func(int, any) {})
				if err != nil || outs[n-1].Err != nil {
					b.Fatalf("%v, %v", err, outs[n-1].Err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "us/job")
		})
	}
}
