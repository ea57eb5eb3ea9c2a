package kernelprocess

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

// Argument is the first argument of the process that executes kernels.
const Argument = "kernel-process"

// request asks for one launch.
type request struct {
	Device, CacheDir string
	Spec             *gpujob.KernelSpec // with all arrays inline
}

// reply has the output or an error with its class.
type reply struct {
	Output  *gpujob.KernelOutput
	Code    jobs.Code
	Message string
	Retry   bool
}

// opener opens the device of a request.
type opener func(ctx context.Context, r request) (device.Device, error)

// Main executes kernels and ends the process if this is a process for that, and returns otherwise.
// The main function of a program that runs a GPU agent calls it first.
func Main() { mainOf(openCUDA) }

// mainOf is Main with another function that opens devices.
func mainOf(open opener) {
	if len(os.Args) < 2 || os.Args[1] != Argument {
		return
	}
	if err := serve(os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, "kernel process:", err)
	}
	end()
}

// end ends this process at once. A normal exit waits for kernels, which may never end.
func end() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// openCUDA opens the device of a request.
func openCUDA(ctx context.Context, r request) (device.Device, error) {
	return cuda.Open(ctx, r.Device, cuda.Options{CacheDir: r.CacheDir})
}

// serve executes requests one at a time until the input ends. It opens the device at the first
// request; all requests of a process are for one device. After an error of the device it returns,
// because the device is of no more use. If the input ends while a kernel runs, the process ends:
// the agent is gone.
func serve(in io.Reader, out io.Writer, open opener) error {
	requests := make(chan request)
	go func() {
		d := gob.NewDecoder(in)
		for {
			var r request
			if d.Decode(&r) != nil {
				end()
			}
			requests <- r
		}
	}()
	replies := gob.NewEncoder(out)
	var h *gpujobs.Handlers
	for r := range requests {
		var answer reply
		var err error
		if h == nil {
			h, err = handlers(r, open)
		}
		if err == nil {
			answer.Output, err = h.Kernel(context.Background(), r.Spec)
		}
		if err != nil {
			class := jobs.AsError(err)
			answer = reply{Code: class.Code, Message: class.Message, Retry: jobs.Retryable(err)}
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

// handlers returns handlers over one device that is opened for a request. The agent has checked the
// bytes of the arrays and watches the time.
func handlers(r request, open opener) (*gpujobs.Handlers, error) {
	d, err := open(context.Background(), r)
	if err != nil {
		return nil, jobs.Retry(jobs.Errorf(jobs.CodeDevice, "open %s for a kernel: %v", r.Device, err))
	}
	return gpujobs.New(gpujobs.Options{
		Place:  func(context.Context, int64) (gpujobs.Place, error) { return place{d}, nil },
		Memory: math.MaxInt64, Timeout: 365 * 24 * time.Hour, AllowKernels: true,
	})
}

// place is the place on the only device of the process.
type place struct{ d device.Device }

func (p place) Device() device.Device { return p.d }
func (p place) Failed(error)          {}
func (p place) Succeeded(int)         {}
func (p place) Release()              {}
