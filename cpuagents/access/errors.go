package access

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/exoswarm/exoswarm/jobs"
)

// InputError returns an error of class jobs.CodeInput: the data are at fault, and their owner must
// act. The arguments are as in fmt.Sprintf.
func InputError(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInput, format, args...)
}

// Interrupted marks the error of a wait that ended with its context. Neither the data nor the
// machine is at fault.
type Interrupted struct{ error }

// Interrupt returns err marked as interrupted.
func Interrupt(err error) error { return Interrupted{err} }

// Unwrap returns the cause.
func (i Interrupted) Unwrap() error { return i.error }

// Classified reports whether an error already has a class: it is a jobs.Error, or marked as
// interrupted.
func Classified(err error) bool {
	var typed *jobs.Error
	var ended Interrupted
	return errors.As(err, &typed) || errors.As(err, &ended)
}

// IOError gives a failed operation on a file a class. A missing file and missing rights have class
// jobs.CodeInput, since the user can choose another path. Any other failure has class jobs.CodeIO.
// An error that already has a class is returned as it is. The parameter what is a verb ("open"),
// and name is a path that the user knows.
func IOError(what, name string, err error) error {
	switch {
	case Classified(err):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return InputError("%s %s: there is no such file or folder: check the path", what, name)
	case errors.Is(err, fs.ErrPermission):
		return InputError("%s %s: permission denied: choose another path or change its permissions", what, name)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return jobs.Errorf(
			jobs.CodeIO, "%s %s: no space left on the disk: free some or choose another disk", what, name,
		)
	}
	return &jobs.Error{Code: jobs.CodeIO, Message: fmt.Sprintf("%s %s: %v", what, name, err)}
}

// Quote returns a text in quotes for a message. It escapes what cannot be printed, and keeps the
// first 40 bytes.
func Quote(text string) string {
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return strconv.QuoteToGraphic(text)
}
