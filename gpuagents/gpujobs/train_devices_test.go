package gpujobs_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// large is a training whose batches all devices share.
func large() *gpujob.TrainSpec {
	s := sequences(1)
	s.Batch, s.Epochs, s.Patience = gpujob.MaxTrainBatch, 12, 12
	return s
}

// trainOnOne returns the output of the training on one device.
func trainOnOne(t *testing.T, lines *bytes.Buffer) *gpujob.TrainOutput {
	t.Helper()
	out, err := startTraining(t).attempt(t, "whole", large(), 0, nil, lines)
	testkit.NoError(t, "train", err)
	if out.Devices != 1 || out.Route != "" {
		t.Errorf("one device: %d by %q", out.Devices, out.Route)
	}
	return out
}

// TestTrainDevices: a training on two and three devices has the model and predictions of one on one
// device, also if it is cut off again and again. A small batch has one device.
func TestTrainDevices(t *testing.T) {
	var lines bytes.Buffer
	want := trainOnOne(t, &lines)
	for _, n := range []int{2, 3} {
		o, devices := several(t, n)
		b := models(t)
		o.Models, o.TrainCheckpoint = b, 1
		r := trainer{start(t, o), b}
		got, cut := r.cut(t, large(), &lines)
		sameOutput(t, got, want)
		if cut < 3 || got.Devices != devices || (got.Route == "") != (devices == 1) {
			t.Errorf("%d attempts were cut off; the last one had %d devices by %q, want %d", cut, got.Devices,
				got.Route, devices)
		}
		small := named(sequences(1), "small")
		small.Batch = 1
		if got, err := r.attempt(t, "small", small, 0, nil, &lines); err != nil || got.Devices != 1 {
			t.Errorf("batches of one sequence: %+v, %v; want one device", got, err)
		}
	}
}

// judged is a slot that counts the failures of its device.
type judged struct {
	gpujobs.Slot
	dev    device.Device
	failed *int
}

func (p judged) Device() device.Device { return p.dev }
func (p judged) Failed(error)          { *p.failed++ }

// TestTrainDeviceFails: a device that fails in the middle of a training is reported, and the next
// attempt goes on without it, from the checkpoint, with the same model.
func TestTrainDeviceFails(t *testing.T) {
	var lines bytes.Buffer
	want := trainOnOne(t, &lines)
	o, devices := several(t, 3)
	if devices < 2 {
		t.Skip("two devices are needed")
	}
	b, all, attempts, failures := models(t), o.AllSlots, 0, [3]int{}
	o.Models, o.TrainCheckpoint = b, 1
	o.AllSlots = func(ctx context.Context, bytes int64) ([]gpujobs.Slot, error) {
		slots, err := all(ctx, bytes)
		attempts++
		if attempts > 1 {
			slots[1].Release()
			return append(slots[:1], slots[2:]...), err
		}
		for i, s := range slots {
			dev := s.Device()
			if i == 1 {
				bad := faults.New(dev)
				bad.Fail(faults.Launch, 60, 1, fmt.Errorf("the test says so: %w", device.ErrSticky))
				dev = bad
			}
			slots[i] = judged{s, dev, &failures[i]}
		}
		return slots, err
	}
	r := trainer{start(t, o), b}
	_, err := r.attempt(t, "j", large(), 0, nil, &lines)
	if err == nil || !jobs.Retryable(err) {
		t.Fatalf("an attempt with a device that fails: %v, want another attempt", err)
	}
	if failures != [3]int{0, 1, 0} {
		t.Errorf("failures by device: %v, want one of the second", failures)
	}
	got, err := r.attempt(t, "j", large(), 0, nil, &lines)
	testkit.NoError(t, "another attempt", err)
	sameOutput(t, got, want)
	if got.Devices != devices-1 || !bytes.Contains(lines.Bytes(), []byte("training goes on from a checkpoint")) {
		t.Errorf("the other attempt had %d devices, want %d and a checkpoint: %s", got.Devices, devices-1,
			lines.String())
	}
}
