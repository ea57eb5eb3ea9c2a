package training

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func checkpoint(t testing.TB, tr *Trainer) []byte {
	t.Helper()
	data, err := tr.Checkpoint(t.Context())
	testkit.NoError(t, "Checkpoint", err)
	return data
}

// train makes steps from one number of steps to another, each with a batch of its own.
func train(t testing.TB, tr *Trainer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := tr.TrainStep(t.Context(), stepBatch(tr.o.Shape, i))
		testkit.NoError(t, "TrainStep", err)
	}
}

// stepBatch returns the batch of a step of train.
func stepBatch(s Shape, step int) Batch {
	return randomBatch(rand.New(rand.NewPCG(4, uint64(step))), s, 21, 30, 0.2)
}

// TestSameBits: a training has the same bits for every cut of a batch, every number of blocks and
// of threads of the host device, and with a restored checkpoint in the middle.
func TestSameBits(t *testing.T) {
	const steps = 12
	for _, s := range []Shape{{Hidden: 8, Inputs: 3, Candidates: 4}, {Hidden: 16, Inputs: 9, Rows: 50, Items: 7}} {
		o := Options{Shape: s, Window: 32, Dropout: 0.3, Clip: 0.5, Seed: 11, Adam: Adam{Rate: 0.01, Decay: 1e-4}}
		whole := openTrainer(t, o, nil)
		train(t, whole, 0, steps)
		want := sha256.Sum256(checkpoint(t, whole))
		for name, do := range map[string]func(o Options) *Trainer{
			"batches cut": func(o Options) *Trainer {
				o.BatchBytes = 50_000
				tr := openTrainer(t, o, nil)
				train(t, tr, 0, steps)
				return tr
			},
			"batches cut by time": func(o Options) *Trainer {
				tr := openTrainer(t, o, nil)
				for step := range steps {
					tr.FeatureExtractor.pace.moments, tr.FeatureExtractor.pace.timed = int64(1+step*40), 0
					train(t, tr, step, step+1)
				}
				return tr
			},
			"one block": func(o Options) *Trainer {
				tr := openTrainer(t, o, nil)
				tr.Model.blocks = 1
				train(t, tr, 0, steps)
				return tr
			},
			"one thread": func(o Options) *Trainer {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
				tr := openTrainer(t, o, nil)
				train(t, tr, 0, steps)
				return tr
			},
			"restored": func(o Options) *Trainer {
				tr := openTrainer(t, o, nil)
				train(t, tr, 0, 5)
				again, err := Restore(t.Context(), tr.Model.dev, o, checkpoint(t, tr))
				testkit.NoError(t, "Restore", err)
				testkit.Close(t, again)
				train(t, again, 5, steps)
				return again
			},
		} {
			if got := sha256.Sum256(checkpoint(t, do(o))); got != want {
				t.Errorf("%d units, %s: the training has other bits", s.Hidden, name)
			}
		}
	}
}

// TestPace: parts become smaller where a launch takes long and larger where none does, and stay
// within their bounds.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		moments, timed int64
		took           time.Duration
		want           int64
	}{
		{1000, 1000, launchTime, 1000},
		{1000, 1000, launchTime * 5 / 4, 800},
		{1000, 1000, launchTime * 10, 500},
		{1000, 1000, launchTime * 4 / 5, 1250},
		{1000, 1000, 0, 2000},
		{1000, 1000, launchTime / 100, 2000},
		{4000, 4000, launchTime / 100, 5000}, // the most
		{1000, 300, launchTime / 2, 1000},    // a small part does not say what a large one takes
		{1000, 300, launchTime * 2, 500},
		{1, 2, launchTime * 1000, 1}, // two sequences are the least
	} {
		p := pace{moments: c.moments, timed: c.timed, most: 5000}
		if got := p.after(c.took); got != c.want {
			t.Errorf("parts of %d moments, one whose launch of %d took %v: %d behind it, want %d", c.moments, c.timed,
				c.took, got, c.want)
		}
	}
	for _, c := range []struct {
		moments, most, least int64
		window, want         int
	}{
		{1000, 5000, 4, 100, 10},
		{1000, 5000, 4, 300, 4}, // a launch takes no longer for as many as there are cores
		{1000, 500, 4, 100, 5},  // of the memory
		{1000, 5000, 4, 3000, 2},
		{1, 100, 1, 100, 2},
	} {
		p := pace{moments: c.moments, most: c.most, least: c.least}
		if got, err := p.sequences(c.window); got != c.want || err != nil {
			t.Errorf("%+v: %d sequences, %v", c, got, err)
		}
	}
	tr := openTrainer(t, Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 30}, nil)
	p := &tr.FeatureExtractor.pace
	p.moments = 100
	train(t, tr, 0, 1)
	if p.timed == 0 || p.launches != 4 {
		t.Errorf("the last part of a step: %d moments and %d launches are timed, want 4", p.timed, p.launches)
	}
	if got, err := p.sequences(30); err != nil || got < 1 || p.timed != 0 || p.moments > p.most {
		t.Errorf("behind a step: %d, %v", got, err)
	}
}

// TestEvaluate: predictions are the same for every cut of a batch in time, and the loss is theirs.
func TestEvaluate(t *testing.T) {
	for _, s := range shapes(12) {
		o := Options{Shape: s, Window: 64, Seed: 3}
		tr := openTrainer(t, o, nil)
		o.Window, o.BatchBytes = 5, 20_000
		cut := openTrainer(t, o, nil)
		b := randomBatch(rand.New(rand.NewPCG(5, 6)), s, 9, 40, 0.5)
		n := b.Sequences * b.Moments * s.elements()
		want, got := make([]float32, n), make([]float32, n)
		states, ends := make([]float32, b.Sequences*s.Hidden), make([]float32, b.Sequences*s.Hidden)
		loss, err := tr.Evaluate(t.Context(), b, states, want)
		testkit.NoError(t, "Evaluate", err)
		again, err := cut.Evaluate(t.Context(), b, ends, got)
		testkit.NoError(t, "Evaluate", err)
		if string(device.Bytes(got)) != string(device.Bytes(want)) || loss.Sum != again.Sum {
			t.Errorf("predictions differ with another window; the losses are %v and %v", loss, again)
		}
		if string(device.Bytes(states)) != string(device.Bytes(ends)) {
			t.Error("states differ with another window")
		}
		w, err := tr.Weights(t.Context())
		testkit.NoError(t, "Weights", err)
		ref := newReference(s, &w)
		sum, count := ref.loss(&b, false)
		if int(loss.Count) != count || math.Abs(loss.Sum-sum) > 1e-3*sum {
			t.Errorf("the loss is %v, want %v of %d", loss, sum, count)
		}
		if _, err := tr.Evaluate(t.Context(), b, nil, nil); err != nil {
			t.Errorf("Evaluate without predictions: %v", err)
		}
	}
}

// TestXor learns the exclusive or of two inputs that are 20 steps apart. Units remember at first.
func TestXor(t *testing.T) {
	const apart, T, N = 20, 21, 64
	o := Options{
		Shape: Shape{Hidden: 8, Inputs: 1, Candidates: 2}, Window: T, Clip: 1, Seed: 2, Adam: Adam{Rate: 0.01},
	}
	batch := func(r *rand.Rand) Batch {
		b := Batch{Sequences: N, Moments: T, Inputs: make([]float32, N*T), Targets: make([]int32, N*T)}
		for i := range b.Targets {
			b.Targets[i] = -1
		}
		for n := range N {
			x, y := r.IntN(2), r.IntN(2)
			b.Lengths = append(b.Lengths, T)
			b.Inputs[n], b.Inputs[apart*N+n] = float32(2*x-1), float32(2*y-1)
			b.Targets[apart*N+n] = int32(x ^ y)
		}
		return b
	}
	w := o.draw(o.Seed)
	for j := range o.Hidden {
		w.InputBias[o.Hidden+j] += 3
	}
	tr := openTrainer(t, o, &w)
	right, r := 0.0, rand.New(rand.NewPCG(8, 9))
	steps := 0
	for ; steps < 3000 && right <= 0.99; steps += 20 {
		for range 20 {
			_, err := tr.TrainStep(t.Context(), batch(r))
			testkit.NoError(t, "TrainStep", err)
		}
		b := batch(r)
		p := make([]float32, 2*N*T)
		_, err := tr.Evaluate(t.Context(), b, nil, p)
		testkit.NoError(t, "Evaluate", err)
		hits := 0
		for i, target := range b.Targets {
			if target >= 0 && p[2*i+int(target)] > 0.5 {
				hits++
			}
		}
		right = float64(hits) / N
	}
	t.Logf("%.3f of the answers are right after %d steps", right, steps)
	if right <= 0.99 {
		t.Errorf("%.3f of the answers are right after %d steps, want more than 0.99", right, steps)
	}
}

// TestNotFinite: a weight or gradient that is no number ends the training with the step, and leaves
// checkpoints of the steps before as they are.
func TestNotFinite(t *testing.T) {
	nan := func(b device.Buffer) { testkit.NoError(t, "Write", b.Write(0, []byte{0, 0, 0xc0, 0x7f})) }
	for what, spoil := range map[string]func(tr *Trainer){
		"weight":   func(tr *Trainer) { nan(tr.Optimizer.weights) },
		"a weight": func(tr *Trainer) { nan(tr.Optimizer.mean) },
		"gradient": func(tr *Trainer) { tr.Optimizer.keep = float32(math.Inf(1)) },
	} {
		t.Run(what, func(t *testing.T) {
			o := Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 30}
			tr := openTrainer(t, o, nil)
			train(t, tr, 0, 2)
			data := checkpoint(t, tr)
			spoil(tr)
			b := randomBatch(rand.New(rand.NewPCG(1, 1)), o.Shape, 4, 10, 0)
			_, err := tr.TrainStep(t.Context(), b)
			if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "step 3") ||
				!strings.Contains(err.Error(), what) {
				t.Errorf("TrainStep: %v, want %v with the step", err, ErrNotFinite)
			}
			if _, err := tr.TrainStep(t.Context(), b); !errors.Is(err, ErrNotFinite) {
				t.Errorf("the next TrainStep: %v, want %v", err, ErrNotFinite)
			}
			if _, err := tr.Checkpoint(t.Context()); !errors.Is(err, ErrNotFinite) {
				t.Errorf("Checkpoint: %v, want %v", err, ErrNotFinite)
			}
			again, err := Restore(t.Context(), tr.Model.dev, o, data)
			testkit.NoError(t, "Restore", err)
			testkit.Close(t, again)
			train(t, again, 2, 3)
		})
	}
	// A gradient that is not finite changes no weight.
	tr := openTrainer(t, Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 8}, nil)
	before := checkpoint(t, tr)
	words := make([]uint32, trainset.ControlWords)
	words[trainset.ControlNorm] = math.Float32bits(float32(math.Inf(1)))
	testkit.NoError(t, "Write", tr.Optimizer.control.Write(0, device.Bytes(words)))
	testkit.NoError(t, "step", tr.Optimizer.step(1))
	if string(checkpoint(t, tr)) != string(before) {
		t.Error("a gradient that is not finite changes weights")
	}
}

// TestCancelled: a step whose context has ended is an error, and the trainer is of no more use.
func TestCancelled(t *testing.T) {
	tr := openTrainer(t, Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 8}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := randomBatch(rand.New(rand.NewPCG(1, 1)), tr.o.Shape, 4, 8, 0)
	if _, err := tr.TrainStep(ctx, b); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("TrainStep: %v", err)
	} else if err != nil {
		if _, err := tr.TrainStep(t.Context(), b); !errors.Is(err, context.Canceled) {
			t.Errorf("the next TrainStep: %v, want %v", err, context.Canceled)
		}
	}
}

// TestWrong: wrong options, weights, batches and checkpoints are errors that name the place and the
// cure.
func TestWrong(t *testing.T) {
	good := func() Options { return Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 8} }
	for want, change := range map[string]func(o *Options){
		"hidden 33: use 1 to 32":      func(o *Options) { o.Hidden = 33 },
		"inputs 9: use 1 to 8":        func(o *Options) { o.Inputs = 9 },
		"rows -1: use 0 to 1048576":   func(o *Options) { o.Rows = -1 },
		"items 65537: use 0 to 65536": func(o *Options) { o.Items, o.Candidates = 65537, 0 },
		"candidates 2: use 0 to 0":    func(o *Options) { o.Items = 5 },
		"candidates 17: use 2 to 16":  func(o *Options) { o.Candidates = 17 },
		"window 0: use 1 to 4096":     func(o *Options) { o.Window = 0 },
		"bytes of a batch -1":         func(o *Options) { o.BatchBytes = -1 },
		"rate NaN: use":               func(o *Options) { o.Adam.Rate = float32(math.NaN()) },
		"beta1 1: use":                func(o *Options) { o.Adam.Beta1 = 1 },
		"epsilon -1: use":             func(o *Options) { o.Adam.Epsilon = -1 },
		"decay 2: use":                func(o *Options) { o.Adam.Decay = 2 },
		"clip +Inf: use":              func(o *Options) { o.Clip = float32(math.Inf(1)) },
		"dropout 0.95: use 0 to 0.9":  func(o *Options) { o.Dropout = 0.95 },
	} {
		o := good()
		change(&o)
		_, err := New(t.Context(), nil, o, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	o := good()
	for want, change := range map[string]func(w *Weights){
		"bias_hh has 23 values, want 24 x 1":        func(w *Weights) { w.HiddenBias = w.HiddenBias[:23] },
		"embed.weight has 3 values, want 0 x 3":     func(w *Weights) { w.Embed = make([]float32, 3) },
		"readout.weight[5] is 129: use 128 at most": func(w *Weights) { w.Readout[5] = 129 },
		"weight_ih[0] is NaN: use 128 at most":      func(w *Weights) { w.InputHidden[0] = float32(math.NaN()) },
	} {
		w := o.draw(1)
		change(&w)
		if _, err := New(t.Context(), nil, o, &w); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	tr := openTrainer(t, o, nil)
	items := o
	items.Shape = Shape{Hidden: 8, Inputs: 3, Rows: 5, Items: 4}
	byItem := openTrainer(t, items, nil)
	before := checkpoint(t, tr)
	for _, c := range []struct {
		tr     *Trainer
		want   string
		change func(b *Batch)
	}{
		{tr, "a batch of 0 sequences", func(b *Batch) { b.Sequences = 0 }},
		{tr, "and 9 moments: use 1 sequence and more, and 1 to 8 moments", func(b *Batch) { b.Moments = 9 }},
		{tr, "has 2 lengths, want 3", func(b *Batch) { b.Lengths = b.Lengths[:2] }},
		{tr, "has 71 inputs, want 72", func(b *Batch) { b.Inputs = b.Inputs[:71] }},
		{tr, "has 1 numbers, want 0", func(b *Batch) { b.Numbers = make([]int32, 1) }},
		{tr, "has 23 targets, want 24", func(b *Batch) { b.Targets = b.Targets[:23] }},
		{tr, "has 24 items, want 0", func(b *Batch) { b.Items = make([]int32, 24) }},
		{tr, "sequence 1 has 9 moments: use 0 to 8", func(b *Batch) { b.Lengths[1] = 9 }},
		{tr, "the target of moment 0 of sequence 2 is 2: use 0 to 1, or -1", func(b *Batch) { b.Targets[2] = 2 }},
		{tr, "feature 1 of moment 0 of sequence 0 is NaN", func(b *Batch) { b.Inputs[1] = float32(math.NaN()) }},
		{byItem, "the row of moment 0 of sequence 0 is 5: use 0 to 4", func(b *Batch) { b.Numbers[0] = 5 }},
		{byItem, "the item of moment 0 of sequence 1 is 4: use 0 to 3, or -1", func(b *Batch) { b.Items[1] = 4 }},
		{byItem, "is -1: use an item, because there is a target", func(b *Batch) { b.Items[1], b.Targets[1] = -1, 1 }},
		{byItem, "the target of moment 0 of sequence 0 is 2: use 0 to 1", func(b *Batch) { b.Targets[0] = 2 }},
	} {
		b := randomBatch(rand.New(rand.NewPCG(1, 1)), c.tr.o.Shape, 3, 8, 0)
		c.change(&b)
		_, err := c.tr.TrainStep(t.Context(), b)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("TrainStep: %v, want %q", err, c.want)
		}
	}
	b := randomBatch(rand.New(rand.NewPCG(1, 1)), o.Shape, 3, 8, 0)
	if _, err := tr.Evaluate(t.Context(), b, make([]float32, 5), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("Evaluate with 5 states: %v, want %v", err, ErrInvalid)
	}
	if string(checkpoint(t, tr)) != string(before) {
		t.Error("a wrong batch changes the trainer")
	}
	for i := range b.Targets {
		b.Targets[i] = -1
	}
	if loss, err := tr.TrainStep(t.Context(), b); err != nil || loss != (Loss{}) || tr.Steps() != 0 {
		t.Errorf("a batch without targets: %v, %v, %d steps", loss, err, tr.Steps())
	}
}

// TestRestoreWrong: a checkpoint that is damaged, or of other options, is refused.
func TestRestoreWrong(t *testing.T) {
	o := Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 8, Seed: 4}
	tr := openTrainer(t, o, nil)
	data := checkpoint(t, tr)
	for name, change := range map[string]func(o *Options, d []byte) []byte{
		"empty":        func(_ *Options, d []byte) []byte { return nil },
		"short":        func(_ *Options, d []byte) []byte { return d[:len(d)-1] },
		"long":         func(_ *Options, d []byte) []byte { return append(d, 0) },
		"a bit":        func(_ *Options, d []byte) []byte { d[200] ^= 1; return d },
		"another seed": func(o *Options, d []byte) []byte { o.Seed++; return d },
		"more units":   func(o *Options, d []byte) []byte { o.Hidden = 7; return d },
		"a window":     func(o *Options, d []byte) []byte { o.Window = 7; return d },
	} {
		other, changed := o, append([]byte(nil), data...)
		changed = change(&other, changed)
		if _, err := Restore(t.Context(), tr.Model.dev, other, changed); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: %v, want %v", name, err, ErrCheckpoint)
		}
	}
}

// FuzzRestore: bytes are a checkpoint, which has the same bytes again, or an ErrCheckpoint.
func FuzzRestore(f *testing.F) {
	o, err := Options{Shape: Shape{Hidden: 2, Inputs: 1, Candidates: 2}, Window: 8}.check()
	testkit.NoError(f, "check", err)
	n := o.size()
	s := &state{9, make([]float32, n), make([]float32, n), make([]float32, n), make([]int32, 1)}
	f.Add(o.bytes(s), false)
	f.Add([]byte(checkpointMagic), true)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		if sign { // past the digest
			sum := sha256.Sum256(data)
			data = append(data[:len(data):len(data)], sum[:]...)
		}
		s, err := o.parse(data)
		switch {
		case err == nil && string(o.bytes(s)) != string(data):
			t.Error("a checkpoint has other bytes when it is written again")
		case err != nil && !errors.Is(err, ErrCheckpoint):
			t.Errorf("parse: %v, want %v", err, ErrCheckpoint)
		}
	})
}

// TestPack: batches have every moment once, in an order that is a function of seed and epoch.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	shape := Shape{Hidden: 8, Inputs: 2, Candidates: 3}
	var d Sequences
	var all []int
	for n := range 100 {
		length := r.IntN(40)
		d.Lengths, all = append(d.Lengths, int32(length)), append(all, n)
		for range length {
			d.Inputs = append(d.Inputs, float32(len(d.Targets)), 0)
			d.Targets = append(d.Targets, int32(len(d.Targets)%3))
		}
	}
	b, err := NewBatcher(shape, &d)
	testkit.NoError(t, "NewBatcher", err)
	order := func(seed uint64, epoch int) (batches [][]Window, text string) {
		batches = Shuffle(d.Windows(all, 16), 8, seed, epoch)
		return batches, fmt.Sprint(batches)
	}
	batches, text := order(1, 2)
	if _, same := order(1, 2); same != text {
		t.Error("the order of an epoch differs from itself")
	}
	for _, other := range [][2]uint64{{1, 3}, {2, 2}} {
		if _, o := order(other[0], int(other[1])); o == text {
			t.Errorf("the order of seed %d and epoch %d is the one of another", other[0], other[1])
		}
	}
	for name, of := range map[string][][]Window{"shuffled": batches, "whole": d.Whole(all, 8, math.MaxInt)} {
		seen := make([]int, len(d.Targets))
		for _, windows := range of {
			batch := b.Batch(windows)
			_, err := shape.check(&batch, 64)
			testkit.NoError(t, "check", err)
			for n, length := range batch.Lengths {
				for at := range int(length) {
					i := at*batch.Sequences + n
					moment := int(batch.Inputs[2*i])
					seen[moment]++
					if batch.Targets[i] != int32(moment%3) {
						t.Fatalf("%s: moment %d has the target %d", name, moment, batch.Targets[i])
					}
				}
			}
		}
		for moment, n := range seen {
			if n != 1 {
				t.Fatalf("%s: moment %d is there %d times", name, moment, n)
			}
		}
	}
	d.Targets = d.Targets[1:]
	if _, err := NewBatcher(shape, &d); !errors.Is(err, ErrInvalid) {
		t.Errorf("NewBatcher without a target: %v, want %v", err, ErrInvalid)
	}
}
