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

// interrupted marks the error of a wait that has ended with its context. It is no fault of what was being read.
type interrupted struct{ error }

// Unwrap returns the cause.
func (i interrupted) Unwrap() error { return i.error }

// classified reports whether an error says already whose fault it is.
func classified(err error) bool {
	var typed *jobs.Error
	var ended interrupted
	return errors.As(err, &typed) || errors.As(err, &ended)
}

// ioError classes a failure of a file: what the user can mend by another path is their input, the rest is the machine's.
func ioError(what, name string, err error) error {
	switch {
	case classified(err):
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
