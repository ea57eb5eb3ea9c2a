package gpujobs_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// several returns options for handlers over n devices, and their number: host devices, or as many
// of the GPUs of the machine as there are.
func several(t *testing.T, n int) (gpujobs.Options, int) {
	t.Helper()
	var open sync.WaitGroup
	var devices []device.Device
	for i := range n {
		name := *deviceName
		if name != "host" {
			name = "cuda:" + string(rune('0'+i))
		}
		d, err := cuda.Open(t.Context(), name, cuda.Options{Poison: true})
		if err != nil && i > 0 {
			t.Logf("%d GPUs: %s: %v", i, name, err)
			break
		}
		if err != nil {
			t.Fatalf("cuda.Open %s: %v", name, err)
		}
		t.Cleanup(func() {
			open.Wait()
			if err := d.Close(); err != nil {
				t.Errorf("close a device: %v", err)
			}
		})
		devices = append(devices, d)
	}
	return gpujobs.Options{
		AllSlots: func(context.Context, int64) (all []gpujobs.Slot, err error) {
			for _, d := range devices {
				open.Add(1)
				all = append(all, slot{d, &open})
			}
			return all, nil
		},
		Collective: func(ctx context.Context, devices []device.Device) (device.Collective, error) {
			return cuda.OpenCollective(ctx, devices, slog.New(slog.DiscardHandler))
		},
	}, len(devices)
}

// TestAllreduce: the sums equal a loop in the order of the arrays, with the same bits on one and on
// several devices.
func TestAllreduce(t *testing.T) {
	options, number := several(t, 3)
	one, three := start(t, gpujobs.Options{}), start(t, options)
	r := rand.New(rand.NewPCG(11, 12))
	for _, arrays := range []int{1, 2, 3, 4, 7} {
		for _, n := range []int{0, 1, 5, 70_001} {
			if n > 5 && arrays != 3 && !testkit.Long() {
				continue // several seconds
			}
			var floats, wide, ints, longs []gpujob.Array
			sum32, sum64 := make([]float64, n), make([]float64, n)
			sumInt, sumLong := make([]int32, n), make([]uint64, n)
			for range arrays {
				f, w, i, l := make([]float32, n), make([]float64, n), make([]int32, n), make([]uint64, n)
				for k := range n {
					f[k], w[k] = float32(r.NormFloat64()*1e6), r.NormFloat64()
					i[k], l[k] = int32(r.Uint32()), r.Uint64()
					sum32[k] += float64(f[k])
					sum64[k] += w[k]
					sumInt[k] += i[k]
					sumLong[k] += l[k]
				}
				floats, wide = append(floats, gpujob.From(f)), append(wide, gpujob.From(w))
				ints, longs = append(ints, gpujob.From(i)), append(longs, gpujob.From(l))
			}
			rounded := make([]float32, n)
			for k, v := range sum32 {
				rounded[k] = float32(v)
			}
			for _, c := range []struct {
				in   []gpujob.Array
				want gpujob.Array
			}{
				{floats, gpujob.From(rounded)},
				{wide, gpujob.From(sum64)},
				{ints, gpujob.From(sumInt)},
				{longs, gpujob.From(sumLong)},
			} {
				for _, on := range []struct {
					devices int
					rig     rig
				}{{1, one}, {number, three}} {
					devices, rig := on.devices, on.rig
					out := do[gpujob.AllreduceOutput](t, rig, &gpujob.AllreduceSpec{In: c.in})
					data := out.Sum.Data
					if out.Sum.Object != "" {
						data = rig.store.all["gpu-j-sum"]
						if data == nil {
							data = rig.store.all["default/gpu-j-sum"]
						}
					}
					if !bytes.Equal(data, c.want.Data) || out.Devices != devices ||
						(out.Route == "") != (devices == 1) || !slices.Equal(out.Sum.Shape, c.want.Shape) {
						t.Errorf("%d arrays of %d %s on %d devices: %d bytes %+v, want the sums", arrays, n,
							c.want.Type, devices, len(data), out.Sum.Shape)
					}
				}
			}
		}
	}
	x, y := gpujob.From([]float32{1, 2}), gpujob.From([]float32{1})
	refused(t, one, &gpujob.AllreduceSpec{}, jobs.CodeInvalid, "0 arrays")
	refused(t, one, &gpujob.AllreduceSpec{In: []gpujob.Array{x, y}}, jobs.CodeInvalid, "of the first")
	small := gpujob.From([]uint8{1})
	refused(t, one, &gpujob.AllreduceSpec{In: []gpujob.Array{small}}, jobs.CodeInvalid, "spec.in[0].type")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrCancelled)
	j, err := gpujob.NewJob("j", &gpujob.AllreduceSpec{In: []gpujob.Array{x, x}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := three.try(ctx, j); err == nil {
		t.Error("a cancelled job has an output")
	}
}
