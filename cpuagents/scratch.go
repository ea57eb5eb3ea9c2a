package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/internal/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Looks at the scratch folder.
const (
	// scratchProbe is how many bytes must find room in the scratch folder for it to be usable.
	scratchProbe = 256 << 10
	// scratchIdle is the time between two looks at a folder that is usable, scratchRetry at one that is not.
	scratchIdle  = 10 * time.Second
	scratchRetry = time.Second
)

// scratchState is what is known of the scratch folder.
type scratchState struct {
	mu  sync.Mutex
	err error // why it cannot be used; nil: it can
	log *slog.Logger
}

// unfit marks an error of the agent's own scratch folder, which is no fault of the job.
type unfit struct{ error }

// Unwrap returns the error.
func (u unfit) Unwrap() error { return u.error }

// Is reports whether target is jobs.ErrUnfit.
func (u unfit) Is(target error) bool { return target == jobs.ErrUnfit }

// scratchError is ioError of a file in the scratch folder.
func scratchError(what, name string, err error) error {
	if fault.Classified(err) {
		return err
	}
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, os.ErrPermission, os.ErrNotExist} {
		if errors.Is(err, e) {
			return unfit{fault.IO(what, name, err)}
		}
	}
	return fault.IO(what, name, err)
}

// Ready returns an error that is jobs.ErrUnfit while the scratch folder cannot be used, as of the last look or job.
func (f *Files) Ready() error {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	return f.state.err
}

// WatchScratch looks at the scratch folder now, and then until ctx ends, and logs when it becomes unusable and usable.
func (f *Files) WatchScratch(ctx context.Context, log *slog.Logger) {
	f.state.mu.Lock()
	f.state.log = log
	f.state.mu.Unlock()
	for {
		f.lookScratch()
		wait := scratchIdle
		if f.Ready() != nil {
			wait = scratchRetry
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// lookScratch writes a file to the scratch folder and removes it.
func (f *Files) lookScratch() {
	f.setScratch(func() error {
		tmp, err := f.spool()
		if err != nil {
			return err
		}
		defer tmp.Close()
		if _, err := (writeOnly{tmp, f.scratch}).Write(make([]byte, scratchProbe)); err != nil {
			return err
		}
		if err := tmp.Sync(); err != nil { // delayed allocation and errors of the disk show here
			return scratchError("write a temporary file in", f.scratch, err)
		}
		return nil
	}())
}

// noteScratch takes the error of a job: where it is that of the scratch folder, the agent takes no job until a look finds it usable.
func (f *Files) noteScratch(err error) {
	if errors.Is(err, jobs.ErrUnfit) {
		f.setScratch(err)
	}
}

func (f *Files) setScratch(err error) {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	before := f.state.err
	if f.state.err = nil; err != nil {
		f.state.err = unfit{fmt.Errorf("the scratch folder %s cannot be used: %w", f.scratch, err)}
	}
	switch {
	case f.state.log == nil:
	case before == nil && err != nil:
		f.state.log.Error("the scratch folder cannot be used: no job is taken until it can", "folder", f.scratch, "error", err)
	case before != nil && err == nil:
		f.state.log.Info("the scratch folder can be used again: jobs are taken", "folder", f.scratch)
	}
}

// DescribeScratch returns what the registry says of the agent's scratch folder: nothing while it can be used.
func (f *Files) DescribeScratch() string {
	if f.Ready() == nil {
		return ""
	}
	return fmt.Sprintf("no scratch (%s)", f.scratch)
}
