package training

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// collective opens a collective of devices.
func collective(t testing.TB, devices []device.Device) device.Collective {
	t.Helper()
	c, err := cuda.OpenCollective(t.Context(), devices, slog.New(slog.DiscardHandler))
	testkit.NoError(t, "OpenCollective", err)
	testkit.Close(t, c)
	return c
}

// spread returns the options for n devices of the tests, and the first of them.
func spread(t testing.TB, n int, o Options) (device.Device, Options) {
	t.Helper()
	all := opentest.Devices(t, n)
	if n > 1 {
		o.Collective = collective(t, all)
	}
	return all[0], o
}

// TestDevices: a training has the same bits on one, two and three devices, with batches cut
// otherwise on each, and behind a checkpoint that goes on with another number of devices.
func TestDevices(t *testing.T) {
	const steps = 12
	for _, s := range []Shape{{Hidden: 8, Inputs: 3, Candidates: 4}, {Hidden: 16, Inputs: 9, Rows: 50, Items: 7}} {
		o := Options{Shape: s, Window: 32, Dropout: 0.3, Clip: 0.5, Seed: 11, Adam: Adam{Rate: 0.01, Decay: 1e-4}}
		one := openTrainer(t, o, nil)
		train(t, one, 0, steps)
		want := sha256.Sum256(checkpoint(t, one))
		for _, n := range []int{2, 3} {
			dev, of := spread(t, n, o)
			tr, err := New(t.Context(), dev, of, nil)
			testkit.NoError(t, "New", err)
			testkit.Close(t, tr)
			for step := range steps / 2 {
				for rank, p := range tr.all {
					p.FeatureExtractor.pace.moments, p.FeatureExtractor.pace.timed = int64(1+40*(step+rank)), 0
				}
				train(t, tr, step, step+1)
			}
			dev, of = spread(t, 4-n, o) // 2, and 1
			again, err := Restore(t.Context(), dev, of, checkpoint(t, tr))
			testkit.NoError(t, "Restore", err)
			testkit.Close(t, again)
			train(t, again, steps/2, steps)
			train(t, tr, steps/2, steps)
			for name, of := range map[string]*Trainer{"all steps": tr, "steps on other devices": again} {
				if got := sha256.Sum256(checkpoint(t, of)); got != want {
					t.Errorf("%d units, %d devices, %s: the training has other bits than on one", s.Hidden, n, name)
				}
			}
			evaluated(t, one, tr)
		}
	}
}

// evaluated compares the losses and predictions of two trainers.
func evaluated(t *testing.T, one, several *Trainer) {
	t.Helper()
	s := one.o.Shape
	b := randomBatch(rand.New(rand.NewPCG(5, 6)), s, 9, 70, 0.5)
	var losses [2]Loss
	var bytes [2][]byte
	for i, tr := range []*Trainer{one, several} {
		predictions, states := make([]float32, 9*70*s.elements()), make([]float32, 9*s.Hidden)
		var err error
		losses[i], err = tr.Evaluate(t.Context(), b, states, predictions)
		testkit.NoError(t, "Evaluate", err)
		bytes[i] = slices.Concat(device.Bytes(predictions), device.Bytes(states))
	}
	if losses[0] != losses[1] || string(bytes[0]) != string(bytes[1]) {
		t.Errorf("%d devices evaluate otherwise than one: %+v, want %+v", len(several.all), losses[1], losses[0])
	}
}

// TestShares: shares are consecutive, have all sequences, and none has more than its part of the
// moments by a sequence.
func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		b, all := Batch{Sequences: 1 + r.IntN(9)}, 0
		for range b.Sequences {
			b.Lengths = append(b.Lengths, r.Int32N(50))
			all += int(b.Lengths[len(b.Lengths)-1])
		}
		n, at := 1+r.IntN(5), 0
		for rank, of := range b.shares(n) {
			moments := 0
			for _, length := range b.Lengths[of.from:of.to] {
				moments += int(length)
			}
			if of.from != at || of.to < of.from || moments > all/n+50 {
				t.Fatalf("lengths %v, share %d of %d is %+v", b.Lengths, rank, n, of)
			}
			at = of.to
		}
		if at != b.Sequences {
			t.Fatalf("lengths %v: %d shares end at %d", b.Lengths, n, at)
		}
	}
}

// TestDeviceFails: a device that fails in a step ends the training with its error, and a checkpoint
// before goes on without the device, with the same bits.
func TestDeviceFails(t *testing.T) {
	o := Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 30, Seed: 2, Dropout: 0.2}
	whole := openTrainer(t, o, nil)
	train(t, whole, 0, 4)
	want := sha256.Sum256(checkpoint(t, whole))
	for _, op := range []faults.Op{faults.Launch, faults.Copy, faults.Wait} {
		for skip := range 12 {
			all := opentest.Devices(t, 3)
			bad := faults.New(all[2])
			all[2] = bad
			of := o
			of.Collective = collective(t, all)
			tr, err := New(t.Context(), all[0], of, nil)
			testkit.NoError(t, "New", err)
			testkit.Close(t, tr)
			train(t, tr, 0, 2)
			before := checkpoint(t, tr)
			bad.Fail(op, skip, 1, fmt.Errorf("the test says so: %w", device.ErrSticky))
			for i := 2; err == nil && i < 20; i++ {
				_, err = tr.TrainStep(t.Context(), stepBatch(tr.o.Shape, i))
			}
			if !errors.Is(err, device.ErrSticky) {
				t.Fatalf("%v %d of a device fails: %v, want its error", op, skip, err)
			}
			if _, err := tr.TrainStep(t.Context(), stepBatch(tr.o.Shape, 3)); !errors.Is(err, device.ErrSticky) {
				t.Errorf("a step behind the failure: %v, want the same error", err)
			}
			bad.Heal() // so that its memory can be released
			of.Collective = collective(t, all[:2])
			again, err := Restore(t.Context(), all[0], of, before)
			testkit.NoError(t, "Restore", err)
			testkit.Close(t, again)
			train(t, again, 2, 4)
			if got := sha256.Sum256(checkpoint(t, again)); got != want {
				t.Errorf("%v %d of a device fails: the training goes on with other bits", op, skip)
			}
		}
	}
}

// TestOtherWeights: no checkpoint is made of devices that do not have the same weights.
func TestOtherWeights(t *testing.T) {
	dev, o := spread(t, 2, Options{Shape: Shape{Hidden: 8, Inputs: 3, Candidates: 2}, Window: 30})
	tr, err := New(t.Context(), dev, o, nil)
	testkit.NoError(t, "New", err)
	testkit.Close(t, tr)
	train(t, tr, 0, 2)
	checkpoint(t, tr)
	testkit.NoError(t, "Write", tr.all[1].Optimizer.mean.Write(0, device.Bytes([]float32{3})))
	if _, err := tr.Checkpoint(t.Context()); !errors.Is(err, device.ErrSticky) {
		t.Errorf("another mean on one device: %v, want an error of the device", err)
	}
	_, err = New(t.Context(), opentest.Device(t), o, nil)
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a device that is not the first of the collective: %v, want ErrInvalid", err)
	}
}
