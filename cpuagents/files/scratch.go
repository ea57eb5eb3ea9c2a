package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Times and sizes of the checks of the scratch folder.
const (
	// scratchProbe is the number of bytes that a usable scratch folder must have room for.
	scratchProbe = 256 << 10
	// scratchIdle is the time between two checks of a usable folder, and scratchRetry of an
	// unusable one.
	scratchIdle  = 10 * time.Second
	scratchRetry = time.Second
)

type scratchState struct {
	mu  sync.Mutex
	err error // why the folder is unusable; nil if it is usable
	log *slog.Logger
}

// unfit marks an error of the agent's own scratch folder. The job is not at fault.
type unfit struct{ error }

func (u unfit) Unwrap() error { return u.error }

func (u unfit) Is(target error) bool { return target == jobs.ErrUnfit }

// ScratchError is fault.IO for a file of the scratch folder. A full, lost or failing folder is
// jobs.ErrUnfit: the job returns to the queue for another agent.
func ScratchError(what, name string, err error) error {
	if access.Classified(err) {
		return err
	}
	for _, e := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, os.ErrPermission,
		os.ErrNotExist,
	} {
		if errors.Is(err, e) {
			return unfit{access.IOError(what, name, err)}
		}
	}
	return access.IOError(what, name, err)
}

// Ready returns an error that is jobs.ErrUnfit while the scratch folder is unusable, as of the last
// check or job.
func (f *Files) Ready() error {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	return f.state.err
}

// WatchScratch checks the scratch folder now, and again until ctx ends. It logs when the folder
// becomes unusable and usable. One goroutine of the process calls it, and it returns only at the
// end of ctx.
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

// CheckScratch writes to the scratch folder now, and returns why that cannot be used. It is called
// before WatchScratch.
func (f *Files) CheckScratch() error {
	f.lookScratch()
	return f.Ready()
}

// lookScratch writes a file to the scratch folder and removes it.
func (f *Files) lookScratch() {
	f.setScratch(func() error {
		tmp, err := f.Spool()
		if err != nil {
			return err
		}
		defer tmp.Close()
		if _, err := (writeOnly{tmp, f.scratch}).Write(make([]byte, scratchProbe)); err != nil {
			return err
		}
		if err := tmp.Sync(); err != nil { // delayed allocation and errors of the disk show here
			return ScratchError("write a temporary file in", f.scratch, err)
		}
		return nil
	}())
}

// NoteScratch takes the error of a job. If it is an error of the scratch folder, Ready fails until
// a check finds the folder usable.
func (f *Files) NoteScratch(err error) {
	if errors.Is(err, jobs.ErrUnfit) {
		f.setScratch(err)
	}
}

// setScratch notes the result of a check, nil for a usable folder, and logs a change. It has no
// effect on jobs that run.
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
		f.state.log.Error(
			"the scratch folder cannot be used: no job is taken until it can", "folder", f.scratch, "error", err,
		)
	case before != nil && err == nil:
		f.state.log.Info("the scratch folder can be used again: jobs are taken", "folder", f.scratch)
	}
}

// DescribeScratch returns the text about the scratch folder in the registry: empty while the folder
// is usable.
func (f *Files) DescribeScratch() string {
	if f.Ready() == nil {
		return ""
	}
	return fmt.Sprintf("no scratch (%s)", f.scratch)
}

// ScratchWriter returns a writer to a file of the scratch folder. It marks failures to write, so
// that a copy to it can tell them from failures to read.
func ScratchWriter(file io.Writer) io.Writer { return writeOnly{file, "the scratch folder"} }

// writeOnly is scratchWriter with the name of the folder.
type writeOnly struct {
	w   io.Writer
	dir string
}

func (w writeOnly) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		err = ScratchError("write a temporary file in", w.dir, err)
	}
	return n, err
}

// Spool opens a temporary file in the scratch folder. It is gone when it is closed, and when the
// process ends. The caller closes it. An error of a full or broken folder is jobs.ErrUnfit.
func (f *Files) Spool() (*os.File, error) {
	tmp, err := os.CreateTemp(f.scratch, "exoswarm-spool-*")
	if err != nil {
		return nil, ScratchError("create a temporary file in", f.scratch, err)
	}
	if err := os.Remove(tmp.Name()); err != nil { // unlinked now, so that not even a kill -9 leaves it behind
		_ = tmp.Close()
		return nil, ScratchError("create a temporary file in", f.scratch, err)
	}
	return tmp, nil
}

// Rewind empties a temporary file, and goes to its beginning. Every attempt to fill the file begins
// with it.
func Rewind(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return ScratchError("empty", "a temporary file", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return ScratchError("empty", "a temporary file", err)
	}
	return nil
}
