package gpujobs

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// allreduce returns the work of a job of kind allreduce: each device has a consecutive part of the
// arrays. Integers are added on each device, and the partial sums by the collective. Floats are
// gathered on all devices and added there in the order of the arrays, so that their sums do not
// depend on the number of devices.
func (t *task) allreduce(s *gpujob.AllreduceSpec) func() (any, error) {
	inputs := make([]*input, len(s.In))
	for i := range s.In {
		inputs[i] = t.in(fmt.Sprintf("in[%d]", i), &s.In[i])
	}
	t.bytes += s.In[0].Size()
	t.spread = func(device.Properties) int { return math.MaxInt }
	return func() (any, error) {
		out, err := t.reduceOn(s, inputs)
		if err != nil {
			return nil, fmt.Errorf("allreduce over %d devices: %w", len(t.slots), err)
		}
		out.Ran = t.computed()
		return out, t.store([]string{"sum"}, []*gpujob.Array{&out.Sum})
	}
}

type rank struct {
	device.Place
	fold device.Kernel
}

func (t *task) reduceOn(s *gpujob.AllreduceSpec, inputs []*input) (*gpujob.AllreduceOutput, error) {
	slots, e, of := t.slots, arrayset.Element(s.In[0].Type), s.In[0]
	n, _ := of.Shape.Count()
	size := of.Size()
	stride := (size + device.RangeAlign - 1) &^ (device.RangeAlign - 1)
	each := int64((len(inputs) + len(slots) - 1) / len(slots)) // arrays of a device
	ranks := make([]rank, len(slots))
	var c device.Collective
	defer func() { // work of all ranks may use the memory of each, so it goes after all streams
		if c != nil {
			t.left = append(t.left, c)
		}
		for _, r := range ranks {
			if r.Buffer != nil {
				t.left = append(t.left, r.Buffer)
			}
		}
	}()
	for i, p := range slots {
		r := &ranks[i]
		if err := t.rank(r, p.Device(), e, stride*each*int64(len(slots))); err != nil {
			return nil, err
		}
		own := inputs[min(i*int(each), len(inputs)):min((i+1)*int(each), len(inputs))]
		for k, in := range own {
			if err := r.Buffer.Write(stride*(int64(i)*each+int64(k)), in.data); err != nil {
				return nil, fmt.Errorf("copy %d bytes to the device: %w", len(in.data), err)
			}
		}
	}
	out := &gpujob.AllreduceOutput{
		Sum: gpujob.Array{Type: of.Type, Shape: of.Shape, Data: make([]byte, size)}, Devices: len(ranks),
	}
	if len(ranks) > 1 {
		opened, err := t.h.o.Collective(t.ctx, t.devices())
		if err != nil {
			return nil, err
		}
		c = opened
		out.Route = c.Route().Name
	}
	if err := t.addUp(c, ranks, e, n, stride, each, len(inputs)); err != nil {
		return nil, err
	}
	return out, ranks[0].Buffer.Read(0, out.Sum.Data)
}

// rank opens a stream and allocates zeroed memory on a device.
func (t *task) rank(r *rank, d device.Device, e arrayset.Element, bytes int64) (err error) {
	if r.fold, err = d.Kernel(arrayset.Fold(e)); err != nil {
		return err
	}
	if r.Stream, err = t.stream(d); err != nil {
		return err
	}
	if r.Buffer, err = d.Alloc(max(bytes, device.RangeAlign), "gpu job"); err != nil {
		return fmt.Errorf("%d bytes on the device: %w", bytes, err)
	}
	return r.Buffer.Fill(0, r.Buffer.Size(), 0)
}

// addUp adds arrays of n elements; each rank has up to each arrays. The sum is at offset 0 of the
// memory of the first rank.
func (t *task) addUp(c device.Collective, ranks []rank, e arrayset.Element, n, stride, each int64, arrays int) error {
	places := make([]device.Place, len(ranks))
	part := func(i int, off int64, arrays int) error {
		r := ranks[i]
		if n == 0 || arrays < 1 {
			return nil
		}
		g := device.Geometry{Grid: int(min((n+255)/256, 1<<16)), Block: 256}
		bytes := stride * int64(arrays)
		return r.Stream.Launch(r.fold, g, arrayset.FoldArgs{
			In: device.Range(r.Buffer, off, bytes), N: uint64(n), Stride: uint64(stride / e.Bytes()),
			Arrays: uint32(arrays), Out: device.Range(r.Buffer, off, stride),
		}.Args()...)
	}
	if e.Float() || c == nil {
		if c != nil {
			for i, r := range ranks {
				places[i] = device.Place{Stream: r.Stream, Buffer: r.Buffer}
			}
			if err := c.Gather(t.ctx, stride*each, places); err != nil {
				return err
			}
		}
		for i := range ranks {
			if err := part(i, 0, arrays); err != nil {
				return err
			}
		}
		return t.syncAll(ranks)
	}
	for i, r := range ranks {
		off := stride * each * int64(i)
		if err := part(i, off, min(int(each), arrays-i*int(each))); err != nil {
			return err
		}
		places[i] = device.Place{Stream: r.Stream, Buffer: r.Buffer, Off: off}
	}
	kind := device.KindUint32
	if e.Wide() {
		kind = device.KindUint64
	}
	if err := c.Sum(t.ctx, kind, n, places); err != nil {
		return err
	}
	return t.syncAll(ranks)
}

func (t *task) syncAll(ranks []rank) error {
	for _, r := range ranks {
		if err := r.Stream.Sync(t.ctx); err != nil {
			return err
		}
	}
	return nil
}
