// Package gpujobs executes the jobs of pool gpu on the devices of an agent. Package jobs/gpujob is
// their contract.
//
// handlers.go has the life of a job, and task.go its arrays. arrays.go executes the kinds that read
// one array, also many jobs together; reduce.go has what is special to each. The other kinds are in
// allreduce.go, circuit.go, compute.go, device.go, kernel.go and train.go.
package gpujobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// Defaults of Options.
const (
	// DefaultMemory is in bytes. It keeps a job small compared with the page memory of shards.
	DefaultMemory = 256 << 20
	// DefaultCircuitMemory is in bytes: a state of 26 qubits, the largest on the host device, and
	// arrays.
	DefaultCircuitMemory = 1 << 30
	// DefaultTimeout bounds how long a job keeps a place on a device that shards use too.
	DefaultTimeout = time.Minute
	// DefaultTrainTimeout bounds an attempt at a training.
	DefaultTrainTimeout = 24 * time.Hour
	// DefaultTrainCheckpoint is between two checkpoints of a training: what a killed agent loses.
	DefaultTrainCheckpoint = 30 * time.Second
)

// Objects reads and writes the object store of the queue. *objects.Store implements it. Errors wrap
// the errors of package jobs: jobs.ErrNotFound for an object that does not exist or belongs to
// another tenant. The caller of Object closes the reader. PutObject returns the stored bytes.
type Objects interface {
	Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error)
	PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
}

// Slot is the slot of a job on a device. It is a *pool.Slot. A job has it from the end of
// its loading to its end, and calls one method at a time.
type Slot interface {
	Device() device.Device
	// Failed reports an error after which the device must be opened again. It counts against the
	// level of the device, and the pool replaces the device after its last user has left.
	Failed(err error)
	// Succeeded counts an operation that has ended well. halved is the number of batches that were
	// halved for lack of memory; jobs have none.
	Succeeded(halved int)
	// Release gives the place back. It is called once, after all work on the device has ended.
	Release()
}

// Options configure Handlers.
type Options struct {
	// Slot chooses a device with room for bytes of arrays. It is called once for each job, from
	// several goroutines.
	Slot func(ctx context.Context, bytes int64) (Slot, error)
	// AllSlots chooses a slot on each device that works, at least one, with room for bytes, for
	// jobs of kinds allreduce and train; nil: they run on one device.
	AllSlots func(ctx context.Context, bytes int64) ([]Slot, error)
	// Collective opens a collective of the devices of AllSlots, which the handlers close; nil: jobs
	// run on one device.
	Collective func(ctx context.Context, devices []device.Device) (device.Collective, error)
	// Objects holds arrays that are not in messages; nil: jobs that need it fail.
	Objects Objects
	// AllowKernels executes jobs of kind kernel, which run code of their submitters. Without it
	// such jobs wait in the queue for another agent.
	AllowKernels bool
	// Kernels executes a kernel on the device of a name, with all arrays inline, in a separate
	// process: a kernel that faults or never ends then harms no other work of the device. It
	// returns the cause of the end of ctx, when the kernel has ended. nil: kernels run in this
	// process.
	Kernels func(ctx context.Context, device string, s *gpujob.KernelSpec) (*gpujob.KernelOutput, error)
	// Memory is the maximum size of the arrays of one job, inputs and outputs, in bytes; 0:
	// DefaultMemory.
	Memory int64
	// CircuitMemory is the maximum size of the states and the arrays of a job of kind circuit, in
	// bytes, if it is more than Memory; 0: DefaultCircuitMemory.
	CircuitMemory int64
	// Timeout is the longest time of a job; 0: DefaultTimeout.
	Timeout time.Duration
	// Models is the place of models, where jobs of kind train store theirs; nil: such jobs wait in the
	// queue for another agent.
	Models snapshot.Store
	// TrainPrograms executes jobs of kind train_program.
	TrainPrograms bool
	// TrainTimeout is the longest time of an attempt at a training, and TrainCheckpoint the
	// time between two of its checkpoints; 0: DefaultTrainTimeout and DefaultTrainCheckpoint.
	TrainTimeout, TrainCheckpoint time.Duration
	// Logger gets errors of the release of devices; nil: none.
	Logger *slog.Logger
}

// Handlers executes jobs. Its methods may be called from several goroutines.
type Handlers struct {
	o       Options
	closing sync.WaitGroup // releases of launches that nobody waits for any more
	sizing  sizing         // size of batches
}

// New returns handlers. The caller calls Close after the last job has ended and before it closes
// the devices.
func New(o Options) (*Handlers, error) {
	if o.Slot == nil {
		return nil, errors.New("gpujobs: Options.Slot is missing")
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.CircuitMemory == 0 {
		o.CircuitMemory = DefaultCircuitMemory
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.TrainTimeout == 0 {
		o.TrainTimeout = DefaultTrainTimeout
	}
	if o.TrainCheckpoint == 0 {
		o.TrainCheckpoint = DefaultTrainCheckpoint
	}
	if o.Memory < 0 || o.CircuitMemory < 0 || o.Timeout < 0 {
		return nil, fmt.Errorf("gpujobs: memory %d, of circuits %d, timeout %v: use more than 0", o.Memory,
			o.CircuitMemory, o.Timeout)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handlers{o: o, sizing: sizing{size: gpubatch.NewSize(batchLimits, time.Now())}}, nil
}

// Close waits for launches of jobs that were cancelled. The watchdog of the device bounds the wait.
// No handler may run, nor begin, from here on. A second call returns at once.
func (h *Handlers) Close() { h.closing.Wait() }

// Kinds returns the kinds that the handlers execute, in alphabetical order.
func (h *Handlers) Kinds() []string {
	return slices.DeleteFunc(gpujob.Kinds(), func(kind string) bool {
		// The list is announced in the registry, and the queue delivers jobs of these kinds only.
		return kind == gpujob.KindKernel && !h.o.AllowKernels || kind == gpujob.KindTrain && h.o.Models == nil ||
			kind == gpujob.KindTrainProgram && !h.o.TrainPrograms
	})
}

// Jobs returns the handlers of the kinds whose jobs run one at a time, for a worker of pool gpu. A
// job of kind kernel stays queued for an agent that allows it.
func (h *Handlers) Jobs() map[string]jobs.Handler {
	all := map[string]jobs.Handler{}
	for _, kind := range h.Kinds() {
		if arrayKinds[kind] == nil {
			all[kind] = func(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
				spec, err := parse(job)
				if err != nil {
					return nil, fmt.Errorf("job %s: %w", job.ID, err)
				}
				return h.handle(ctx, job, spec, progress)
			}
		}
	}
	return all
}

// handle executes one attempt of a job of any kind, outside a batch. The error tells the queue what
// to do: an error of jobs.Retry asks for another attempt, any other error is final. An error after
// the end of the context is replaced by the cause of that end, such as the time limit of the agent.
//
// It works in two steps: the method of the kind announces the arrays, so that their bytes are
// known, and returns the work, which task.run calls when the arrays are loaded and a device is
// chosen.
func (h *Handlers) handle(ctx context.Context, job jobs.Job, spec gpujob.Spec, progress func(any)) (any, error) {
	limit, cure := h.o.Timeout, "split it, or raise --gpu-job-timeout"
	if gpujob.Trains(job.Kind) {
		limit, cure = h.o.TrainTimeout, "go on with exoswarm train --continue "+job.ID+", or raise --train-timeout"
	}
	late := fmt.Errorf("job %s took more than %v: %s: %w", job.ID, limit, cure, jobs.ErrDeadline)
	ctx, stop := context.WithTimeoutCause(ctx, limit, late)
	defer stop()
	if ctx.Err() != nil { // a fast device would finish before the deadline is noticed
		return nil, fmt.Errorf("job %s: %w", job.ID, context.Cause(ctx))
	}
	t := &task{h: h, ctx: ctx, job: job, progress: progress}
	out, err := t.run(t.work(spec))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, cause)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, classed(err))
	}
	return out, nil
}

// Kernel executes a kernel whose arrays are all inline, and returns all outputs inline. It is for
// the process that an agent executes kernels in, which has checked the specification.
func (h *Handlers) Kernel(ctx context.Context, s *gpujob.KernelSpec) (*gpujob.KernelOutput, error) {
	t := &task{h: h, ctx: ctx, progress: func(any) {}, inline: true}
	out, err := t.run(t.kernel(s))
	if err != nil {
		return nil, classed(err)
	}
	return out.(*gpujob.KernelOutput), nil
}

// parse returns the checked specification of a job. An unknown field is an error: it is a misspelt
// one.
func parse(job jobs.Job) (gpujob.Spec, error) {
	spec := gpujob.NewSpec(job.Kind)
	if spec == nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "kind %q: use one of %v", job.Kind, gpujob.Kinds())
	}
	d := json.NewDecoder(bytes.NewReader(job.Spec))
	d.DisallowUnknownFields()
	if err := d.Decode(spec); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec: %v: docs/gpu-jobs.md has the fields of kind %s", err, job.Kind)
	}
	return spec, spec.Check()
}

// work announces the arrays of a job and returns its work. parse returns no other type of
// specification.
func (t *task) work(spec gpujob.Spec) func() (any, error) {
	switch s := spec.(type) {
	case *gpujob.AllreduceSpec:
		return t.allreduce(s)
	case *gpujob.TallySpec:
		return t.tally(s)
	case *gpujob.FuseSpec:
		return t.fuse(s)
	case *gpujob.GemmSpec:
		return t.gemm(s)
	case *gpujob.KernelSpec:
		return t.kernel(s)
	case *gpujob.ComputeSpec:
		return t.compute(s)
	case *gpujob.ChainSpec:
		return t.chain(s)
	case *gpujob.CircuitSpec:
		return t.circuit(s)
	case *gpujob.TrainSpec:
		return t.train(s)
	case *gpujob.TrainProgramSpec:
		return t.trainProgram(s)
	}
	return newArrayWork(t, spec).run
}

// classed gives an error of a device its class for the queue. Invalid arguments belong to the job,
// so another attempt would fail in the same way. A launch that the watchdog gave up is not
// repeated: it would block the next device as long. After errors of broken, full and busy devices
// another attempt, here or on another agent, may succeed. Other errors keep their class.
func classed(err error) error {
	var known *jobs.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, device.ErrInvalidArgument), errors.Is(err, device.ErrNotSupported):
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	case errors.Is(err, device.ErrTimeout):
		return jobs.Errorf(jobs.CodeDevice, "%v", err)
	case broken(err), errors.Is(err, device.ErrOutOfMemory), errors.Is(err, device.ErrTransient):
		return jobs.Retry(jobs.Errorf(jobs.CodeDevice, "%v", err))
	}
	return err
}

// broken reports whether a device must be opened again after an error. Work of other users of the
// device fails with the same error.
func broken(err error) bool {
	return errors.Is(err, device.ErrSticky) || errors.Is(err, device.ErrLost) || errors.Is(err, device.ErrClosed)
}
