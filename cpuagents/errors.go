package cpuagents

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/exoswarm/exoswarm/jobs"
)

// inputError is a fault of the data: its owner must act.
func inputError(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInput, format, args...)
}

// ioError classes a failure of a file: what the user can mend by another path is their input, the rest is the machine's.
func ioError(what, name string, err error) error {
	var typed *jobs.Error
	switch {
	case errors.As(err, &typed):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return inputError("%s %s: there is no such file or folder: check the path", what, name)
	case errors.Is(err, fs.ErrPermission):
		return inputError("%s %s: permission denied: choose another path or change its permissions", what, name)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return jobs.Errorf(jobs.CodeIO, "%s %s: no space left on the disk: free some or choose another disk", what, name)
	}
	return &jobs.Error{Code: jobs.CodeIO, Message: fmt.Sprintf("%s %s: %v", what, name, err)}
}
