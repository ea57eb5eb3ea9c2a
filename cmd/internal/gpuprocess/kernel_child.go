package gpuprocess

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// kernelArgument is the first argument of the process that executes kernels.
const kernelArgument = "kernel-process"

// kernelRequest asks for one launch.
type kernelRequest struct {
	Device, CacheDir string
	Spec             *gpujob.KernelSpec // with all arrays inline
}

// kernelReply has the output or an error with its class.
type kernelReply struct {
	Output  *gpujob.KernelOutput
	Code    jobs.Code
	Message string
	Retry   bool
}

// kernelOpener opens the device of a request.
type kernelOpener func(ctx context.Context, r kernelRequest) (device.Device, error)

// KernelMain executes kernels and ends the process if this is a process for that, and returns
// otherwise. The main function of a program that runs a GPU agent calls it first.
func KernelMain() { kernelMain(openCUDA) }

// kernelMain is KernelMain with another function that opens devices.
func kernelMain(open kernelOpener) {
	if len(os.Args) < 2 || os.Args[1] != kernelArgument {
		return
	}
	if err := serveKernels(os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, "kernel process:", err)
	}
	endNow()
}

// endNow ends this process. A normal exit waits for kernels, which may never end.
func endNow() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// openCUDA opens the device of a request.
func openCUDA(ctx context.Context, r kernelRequest) (device.Device, error) {
	return cuda.Open(ctx, r.Device, cuda.Options{CacheDir: r.CacheDir})
}

// serveKernels executes requests one at a time until the input ends. It opens the device at the
// first request; all requests of a process are for one device. After an error of the device it
// returns, because the device is of no more use. If the input ends while a kernel runs, the process
// ends: the agent is gone.
func serveKernels(in io.Reader, out io.Writer, open kernelOpener) error {
	requests := make(chan kernelRequest)
	go func() {
		d := gob.NewDecoder(in)
		for {
			var r kernelRequest
			if d.Decode(&r) != nil {
				endNow()
			}
			requests <- r
		}
	}()
	replies := gob.NewEncoder(out)
	var h *gpujobs.Handlers
	for r := range requests {
		var answer kernelReply
		var err error
		if h == nil {
			h, err = kernelHandlers(r, open)
		}
		if err == nil {
			answer.Output, err = h.Kernel(context.Background(), r.Spec)
		}
		if err != nil {
			class := jobs.AsError(err)
			answer = kernelReply{Code: class.Code, Message: class.Message, Retry: jobs.Retryable(err)}
		}
		if err := replies.Encode(answer); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		if answer.Code == jobs.CodeDevice {
			return errors.New(answer.Message)
		}
	}
	return nil
}

// kernelHandlers returns handlers over one device that is opened for a request. The agent has
// checked the bytes of the arrays and watches the time.
func kernelHandlers(r kernelRequest, open kernelOpener) (*gpujobs.Handlers, error) {
	d, err := open(context.Background(), r)
	if err != nil {
		return nil, jobs.Retry(jobs.Errorf(jobs.CodeDevice, "open %s for a kernel: %v", r.Device, err))
	}
	return gpujobs.New(gpujobs.Options{
		Slot:   func(context.Context, int64) (gpujobs.Slot, error) { return onlyPlace{d}, nil },
		Memory: math.MaxInt64, Timeout: 365 * 24 * time.Hour, AllowKernels: true,
	})
}

// onlyPlace is the place on the only device of the process.
type onlyPlace struct{ d device.Device }

func (p onlyPlace) Device() device.Device { return p.d }
func (p onlyPlace) Failed(error)          {}
func (p onlyPlace) Succeeded(int)         {}
func (p onlyPlace) Release()              {}
