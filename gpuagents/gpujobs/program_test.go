package gpujobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// squeeze is a training of rows of 6 through 2.
func squeeze(steps int) *gpujob.TrainProgramSpec {
	r := rand.New(rand.NewPCG(4, 4))
	draw := func(rows, width int64, scale float64) *gpujob.Array {
		v := make([]float32, rows*width)
		for i := range v {
			v[i] = float32(r.NormFloat64() * scale)
		}
		a := gpujob.From(v, rows, width)
		return &a
	}
	x := draw(500, 6, 1)
	values := gpujob.Decode[float32](x.Data)
	for i := range 500 { // four of six columns follow from two
		row := values[6*i : 6*i+6]
		row[2], row[3], row[4], row[5] = row[0]+row[1], row[0]-row[1], row[0]/2, -row[1]
	}
	data := gpujob.From(values, 500, 6)
	return &gpujob.TrainProgramSpec{
		Expr: "h := tanh(matmul(x, w) * s + b); y := matmul(h, z) + c; mean(square(y - x))",
		In:   map[string]*gpujob.Array{"x": &data}, Numbers: map[string]float32{"s": 0.5},
		Weights: map[string]*gpujob.Array{
			"w": draw(6, 2, 0.4), "b": draw(1, 2, 0), "z": draw(2, 6, 0.7), "c": draw(1, 6, 0),
		},
		Steps: steps, Rate: 0.02,
	}
}

// weights returns the bytes of the weights and the losses of an output.
func weights(t *testing.T, out gpujob.TrainProgramOutput) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"": out.Losses.Data}
	for name, a := range out.Weights {
		all[name] = a.Data
	}
	return all
}

func equalWeights(a, b map[string][]byte) bool {
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestTrainProgram: a job learns, and has the bits of steps that the interpreter executes one by
// one.
func TestTrainProgram(t *testing.T) {
	r := start(t, gpujobs.Options{TrainPrograms: true})
	s := squeeze(300)
	out := do[gpujob.TrainProgramOutput](t, r, s)
	losses := gpujob.Decode[float32](out.Losses.Data)
	if len(losses) != 300 || losses[0] < 0.5 || out.Loss > losses[0]/10 || out.Loss != losses[299] {
		t.Errorf("%d losses from %v to %v", len(losses), losses[0], out.Loss)
	}
	if shape := out.Weights["z"].Shape; !slices.Equal(shape, gpujob.Shape{2, 6}) || out.Device != *deviceName {
		t.Errorf("z has shape %v, trained on %s", shape, out.Device)
	}
	sources := []expr.Source{{Name: "s", Type: ir.F32, Scalar: true}, {Name: "x", Type: ir.F32, Rows: 500, Width: 6}}
	in := map[string]expr.Array{
		"s": expr.Scalar(0.5), "x": {Data: s.In["x"].Data, Rows: 500}, "": {Rows: 500},
	}
	for name, a := range s.Weights {
		sources = append(sources, expr.Source{Name: name, Type: ir.F32, Rows: a.Shape[0], Width: a.Shape[1]})
		m, v := expr.Moments(name)
		in[name] = expr.Array{Data: a.Data, Rows: a.Shape[0]}
		in[m] = expr.Array{Data: make([]byte, len(a.Data)), Rows: a.Shape[0]}
		in[v] = in[m]
	}
	adam := expr.DefaultAdam
	adam.Rate = s.Rate
	step, err := expr.ParseTraining(s.Expr, s.Names(), adam, false, sources...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Steps {
		for name, v := range step.Step(int64(i + 1)) {
			in[name] = expr.Scalar(v)
		}
		next, err := expr.Interpret(t.Context(), step.Program, in)
		if err != nil {
			t.Fatal(err)
		}
		if got := device.Of[float32](next[step.Loss].Data)[0]; got != losses[i] {
			t.Fatalf("step %d: loss %v, the interpreter has %v", i+1, losses[i], got)
		}
		for name := range in {
			if a, found := next[name]; found {
				in[name] = a
			}
		}
	}
	for name, a := range out.Weights {
		if !bytes.Equal(a.Data, in[name].Data) {
			t.Errorf("weight %s has other bits than the interpreter's", name)
		}
	}
}

// TestTrainProgramResumes: attempts that end early, at any step, give the bits of one attempt. So
// does a job that goes on from another one. A damaged checkpoint is not used.
func TestTrainProgramResumes(t *testing.T) {
	o := gpujobs.Options{TrainPrograms: true, TrainCheckpoint: 1}
	r := start(t, o)
	s := squeeze(200)
	want := weights(t, do[gpujob.TrainProgramOutput](t, r, s))
	j, err := gpujob.NewJob("resumed", s)
	if err != nil {
		t.Fatal(err)
	}
	name := jobs.OwnerOf(j).Named("train-resumed-checkpoint")
	attempt := func(ends func(gpujob.TrainProgramProgress) bool, cause error) (any, error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		return r.Jobs()[j.Kind](ctx, j, func(v any) {
			if p, is := v.(gpujob.TrainProgramProgress); is && ends(p) {
				cancel(cause)
			}
		})
	}
	gone := errors.New("the agent goes away")
	begun := 0
	for range 100 {
		out, err := attempt(func(p gpujob.TrainProgramProgress) bool {
			if p.Resumed < begun {
				t.Errorf("an attempt began at step %d, the one before at %d", p.Resumed, begun)
			}
			begun = p.Resumed
			return p.Step > p.Resumed+20
		}, gone)
		if err == nil {
			data, _ := json.Marshal(out)
			var got gpujob.TrainProgramOutput
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if !equalWeights(weights(t, got), want) {
				t.Error("attempts that ended early give other bits")
			}
			break
		}
		if !errors.Is(err, gone) {
			t.Fatalf("an attempt: %v", err)
		}
	}
	if begun == 0 {
		t.Error("no attempt went on from a checkpoint")
	}
	r.store.mu.Lock()
	saved := slices.Clone(r.store.all[name])
	r.store.mu.Unlock()
	for i, damaged := range [][]byte{
		nil, saved[:10], saved[:len(saved)-1], append(slices.Clone(saved), 0), append([]byte("x"), saved[1:]...),
		slices.Concat(saved[:20], []byte{saved[20] ^ 1}, saved[21:]),
		slices.Concat(saved[:43], bytes.Repeat([]byte{0xff}, 8), saved[51:]),
	} {
		r.store.all[name] = damaged
		out, err := attempt(func(p gpujob.TrainProgramProgress) bool {
			if p.Resumed > 0 {
				t.Errorf("damaged checkpoint %d was used", i)
			}
			return false
		}, nil)
		if err != nil || !bytes.Equal(out.(*gpujob.TrainProgramOutput).Losses.Data, want[""]) {
			t.Errorf("damaged checkpoint %d: %v", i, err)
		}
	}
	// Half of the steps, and another job for the rest.
	half := squeeze(100)
	do[gpujob.TrainProgramOutput](t, r, half)
	rest := squeeze(200)
	rest.Continue = "j"
	j, err = gpujob.NewJob("rest", rest)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.try(t.Context(), j)
	if err != nil || !bytes.Equal(out.(*gpujob.TrainProgramOutput).Losses.Data, want[""]) {
		t.Errorf("a job that goes on: %v", err)
	}
	rest.Rate = 0.5
	if j, err = gpujob.NewJob("other", rest); err != nil {
		t.Fatal(err)
	}
	if _, err := r.try(t.Context(), j); err == nil || !strings.Contains(err.Error(), "spec.continue j") {
		t.Errorf("a job of another rate that goes on: %v", err)
	}
	// A job that is asked to finish has the weights of that moment.
	if j, err = gpujob.NewJob("finished", squeeze(1_000_000)); err != nil {
		t.Fatal(err)
	}
	out, err = attempt(func(p gpujob.TrainProgramProgress) bool { return p.Step > 30 }, jobs.ErrFinish)
	if err != nil || len(out.(*gpujob.TrainProgramOutput).Losses.Data) > 4*999_999 {
		t.Errorf("a job that is asked to finish: %v", err)
	}
}

// TestTrainProgramErrors: each error has the field and the cure.
func TestTrainProgramErrors(t *testing.T) {
	r := start(t, gpujobs.Options{TrainPrograms: true})
	for want, change := range map[string]func(*gpujob.TrainProgramSpec){
		"spec.expr, column 17: there is no array": func(s *gpujob.TrainProgramSpec) { s.Expr = "mean(square(x * w2))" },
		"spec.weights: 0 weights: use 1 to 20":    func(s *gpujob.TrainProgramSpec) { s.Weights = nil },
		"spec.weights.x: spec.in has it too":      func(s *gpujob.TrainProgramSpec) { s.Weights["x"] = s.In["x"] },
		"spec.steps 0: use 1 to":                  func(s *gpujob.TrainProgramSpec) { s.Steps = 0 },
		"spec.rate 0: use a number above 0":       func(s *gpujob.TrainProgramSpec) { s.Rate = 0 },
		"spec.rate NaN":                           func(s *gpujob.TrainProgramSpec) { s.Rate = math.NaN() },
		"spec.decay 2: use 0 to 1":                func(s *gpujob.TrainProgramSpec) { s.Decay = 2 },
		`weight "b": use an array that the text`: func(s *gpujob.TrainProgramSpec) {
			s.Expr = "mean(square(matmul(matmul(x, w), z) - x))"
		},
		"use one output, the loss": func(s *gpujob.TrainProgramSpec) { s.Expr += "; k = sum(x)" },
		"the loss is f32 with rows of 6": func(s *gpujob.TrainProgramSpec) {
			s.Expr = "matmul(tanh(matmul(x, w) + b), z) + c - x"
		},
		"has no fixed order": func(s *gpujob.TrainProgramSpec) {
			values := make([]float32, 420)
			w, b, z := gpujob.From(values, 6, 70), gpujob.From(values[:70], 1, 70), gpujob.From(values, 70, 6)
			s.Weights["w"], s.Weights["b"], s.Weights["z"] = &w, &b, &z
		},
		"8 rows, other inputs have 500: arguments do not fit the program: give all arrays as many rows": func(
			s *gpujob.TrainProgramSpec,
		) {
			w := gpujob.From(make([]float32, 8), 8, 1)
			s.Weights, s.Expr = map[string]*gpujob.Array{"w": &w}, "mean(square(row_sum(x) * w))"
		},
		"cumsum has no derivative here": func(s *gpujob.TrainProgramSpec) {
			s.Expr = "sum(cumsum(row_sum(matmul(tanh(matmul(x, w) + b), z) + c)))"
		},
		"step 1: the loss is NaN: use a lower rate": func(s *gpujob.TrainProgramSpec) {
			s.Numbers["s"] = 1e30
			s.Expr = strings.ReplaceAll(s.Expr, "tanh", "exp")
		},
	} {
		s := squeeze(3)
		change(s)
		j, err := gpujob.NewJob("j", s)
		if err == nil {
			_, err = r.try(t.Context(), j)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestTrainProgramNotFinite: weights that are not finite end the training, and are in no checkpoint.
func TestTrainProgramNotFinite(t *testing.T) {
	r := start(t, gpujobs.Options{TrainPrograms: true, TrainCheckpoint: 1})
	x, w := gpujob.From([]float32{3e38, 3e38}), gpujob.From([]float32{0, 0}, 1, 2)
	s := &gpujob.TrainProgramSpec{ // the loss is 0, and its derivative infinite
		Expr: "sum(row_sum(w * x))", In: map[string]*gpujob.Array{"x": &x}, Weights: map[string]*gpujob.Array{"w": &w},
		Steps: 1, Rate: 0.1,
	}
	j, err := gpujob.NewJob("j", s)
	testkit.NoError(t, "NewJob", err)
	_, err = r.try(t.Context(), j)
	if err == nil || jobs.AsError(err).Code != jobs.CodeInput || jobs.Retryable(err) ||
		!strings.Contains(err.Error(), "step 1: weight w is not finite: use a lower rate") {
		t.Errorf("a training with an infinite derivative: %v", err)
	}
	if n := len(r.store.all); n != 0 {
		t.Errorf("%d objects are stored, want no checkpoint", n)
	}
}

// TestTrainProgramLarge: arrays beyond a message come from the object store and go there.
func TestTrainProgramLarge(t *testing.T) {
	r := start(t, gpujobs.Options{TrainPrograms: true})
	values := make([]float32, 100_000)
	for i := range values {
		values[i] = float32(i%7) / 7
	}
	x, w := gpujob.From(values), gpujob.From(make([]float32, 100_000))
	r.store.all[jobs.Owner{Tenant: jobs.DefaultTenant}.Named("big")] = x.Data
	out := do[gpujob.TrainProgramOutput](t, r, &gpujob.TrainProgramSpec{
		Expr: "sum(square(w - x))", Steps: 30, Rate: 0.05,
		In:      map[string]*gpujob.Array{"x": {Type: gpujob.F32, Shape: x.Shape, Object: "big"}},
		Weights: map[string]*gpujob.Array{"w": &w},
	})
	if a := out.Weights["w"]; a.Object != "gpu-j-weight-w" || out.Loss > 4000 {
		t.Errorf("the weights are %q with %d bytes, the loss is %v", a.Object, len(a.Data), out.Loss)
	}
	name := jobs.Owner{Tenant: jobs.DefaultTenant}.Named("gpu-j-weight-w")
	if got := len(r.store.all[name]); got != 400_000 {
		t.Errorf("the object has %d bytes", got)
	}
}
