package gpujobs

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// kernel returns the work of a job of kind kernel: it copies the arrays to the device, launches the
// kernel once, waits for its end, and reads the outputs. The kernel is code of the submitter. It
// runs in a separate process if there is one. In this process, a kernel that writes outside its
// buffers breaks the device for the shards on it too. After a kernel that does not end, which the
// watchdog gives up with device.ErrTimeout, the driver may block other work.
func (t *task) kernel(s *gpujob.KernelSpec) func() (any, error) {
	inputs := make([]*input, len(s.Args))
	for i := range s.Args {
		a := &s.Args[i]
		switch {
		case a.Array != nil:
			inputs[i] = t.in(fmt.Sprintf("args[%d].array", i), a.Array)
		case a.Out != nil:
			n, _ := a.Out.Shape.Count()
			t.bytes += n * a.Out.Type.Bytes()
		}
	}
	return func() (any, error) {
		// The host device has no compiler, and says so.
		if p := t.slot.Device().Properties(); t.h.o.Kernels != nil && p.ComputeMajor > 0 {
			return t.apart(s, inputs, p.Name)
		}
		k, err := t.compile(s)
		if err != nil {
			return nil, err
		}
		stream, err := t.stream(t.slot.Device())
		if err != nil {
			return nil, err
		}
		args := make([]device.Arg, len(s.Args))
		buffers := make([]device.Buffer, len(s.Args))
		for i := range s.Args {
			if args[i], buffers[i], err = t.argument(&s.Args[i], inputs[i]); err != nil {
				return nil, fmt.Errorf("spec.args[%d]: %w", i, err)
			}
		}
		g := device.Geometry{Grid: s.Grid[0], Block: s.Block[0], Shared: s.Shared}
		// A dimension of 0 means 1 to the device.
		g.GridY, g.GridZ = dims(s.Grid)
		g.BlockY, g.BlockZ = dims(s.Block)
		// Launch checks the arguments against the parameters of the source, and the geometry
		// against the limits of the device.
		if err := stream.Launch(k, g, args...); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", s.Entry, err)
		}
		if err := stream.Sync(t.ctx); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", s.Entry, err)
		}
		return t.results(s, buffers)
	}
}

// apart executes the kernel in a separate process. The task keeps its slot meanwhile, because the
// process uses the memory of the device.
func (t *task) apart(s *gpujob.KernelSpec, inputs []*input, name string) (any, error) {
	whole := *s
	whole.Args = slices.Clone(s.Args)
	for i, in := range inputs {
		if in == nil {
			continue
		}
		a := gpujob.Array{Type: in.of.Type, Shape: in.of.Shape, Data: in.data}
		if len(a.Data) == 0 {
			a.Values = json.RawMessage("[]")
		}
		whole.Args[i].Array = &a
	}
	out, err := t.h.o.Kernels(t.ctx, name, &whole)
	if err != nil {
		return nil, err
	}
	t.ran.Seconds = out.Seconds // without the start of the process
	out.Ran = t.ran
	return out, t.storeMap(out.Arrays)
}

// compile returns the kernel of the source. The device caches compiled kernels. An error of the
// source is device.ErrInvalidArgument with the messages of the compiler; the error of a device
// without a compiler says where the job can run.
func (t *task) compile(s *gpujob.KernelSpec) (device.Kernel, error) {
	d := t.slot.Device()
	field := "source"
	var k device.Kernel
	var err error
	switch {
	case s.PTX != "":
		field = "ptx"
		k, err = d.CompilePTX(s.Entry, s.PTX, params(s)...)
	case s.Exact:
		k, err = d.CompileExact(s.Entry, s.Source)
	default:
		k, err = d.Compile(s.Entry, s.Source)
	}
	if errors.Is(err, device.ErrNotSupported) {
		return nil, jobs.Errorf(jobs.CodeInvalid, "kernel %s: device %s compiles no kernels: submit it to an agent "+
			"with a GPU and the CUDA compiler (gpuagent --device cuda:0): %v", s.Entry, d.Properties().Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %w", field, err)
	}
	return k, nil
}

var kinds = map[gpujob.Type]device.Kind{
	gpujob.F32: device.KindFloat32, gpujob.I32: device.KindInt32, gpujob.U32: device.KindUint32,
	gpujob.I64: device.KindUint64, gpujob.U64: device.KindUint64,
}

func params(s *gpujob.KernelSpec) []device.Param {
	all := make([]device.Param, len(s.Args))
	for i := range s.Args {
		if all[i] = (device.Param{Name: s.Args[i].Label(i), Kind: device.KindBuffer}); s.Args[i].Type != "" {
			all[i].Kind = kinds[s.Args[i].Type]
		}
	}
	return all
}

// dims returns the second and the third dimension; 0: there is none.
func dims(all []int) (y, z int) {
	if len(all) > 1 {
		y = all[1]
	}
	if len(all) > 2 {
		z = all[2]
	}
	return y, z
}

// argument returns an argument of the launch, and its buffer if it is an array. Outputs are zeroed,
// so that a kernel that does not write every element shows no memory of an earlier job.
func (t *task) argument(a *gpujob.Arg, in *input) (device.Arg, device.Buffer, error) {
	switch {
	// Data of an array goes to the device as it is: both are little-endian.
	case in != nil:
		b, err := t.upload(in.data)
		return device.Ptr(b), b, err
	case a.Out != nil:
		n, _ := a.Out.Shape.Count()
		b, err := t.alloc(n * a.Out.Type.Bytes())
		if err == nil {
			err = b.Fill(0, b.Size(), 0)
		}
		return device.Ptr(b), b, err
	}
	// Check has compared the value with its type, so an error here is one of the agent.
	data, err := a.Bits()
	if err != nil {
		return device.Arg{}, nil, err
	}
	switch le := binary.LittleEndian; a.Type {
	case gpujob.F32:
		return device.Float32(math.Float32frombits(le.Uint32(data))), nil, nil
	case gpujob.I32:
		return device.Int32(int32(le.Uint32(data))), nil, nil
	case gpujob.U32:
		return device.Uint32(le.Uint32(data)), nil, nil
	default:
		return device.Uint64(le.Uint64(data)), nil, nil
	}
}

// results reads the output arrays from the device: the outputs, and the inputs that the job wants
// back. Each is stored under the label of its argument.
func (t *task) results(s *gpujob.KernelSpec, buffers []device.Buffer) (any, error) {
	arrays := map[string]gpujob.Array{}
	for i := range s.Args {
		// The specification of an output has its type and shape, and no bytes.
		var array gpujob.Array
		switch a := &s.Args[i]; {
		case a.Out != nil:
			array = gpujob.Array{Type: a.Out.Type, Shape: a.Out.Shape}
		case a.Array != nil && a.Return:
			array = gpujob.Array{Type: a.Array.Type, Shape: a.Array.Shape}
		default:
			continue
		}
		array.Data = make([]byte, array.Size())
		if err := buffers[i].Read(0, array.Data); err != nil {
			return nil, fmt.Errorf("spec.args[%d]: %w", i, err)
		}
		arrays[s.Args[i].Label(i)] = array
	}
	out := &gpujob.KernelOutput{Arrays: arrays, Ran: t.computed()}
	return out, t.storeMap(out.Arrays)
}
