package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Conditions of a queue or log that a caller can act on.
var (
	// ErrFenced: another writer has appended since; this one has lost the log and must stop.
	ErrFenced = errors.New("another writer holds this log")
	// ErrNotFound: there is no such log, result, object or lease.
	ErrNotFound = errors.New("not found")
	// ErrExists: a job of that id was submitted before.
	ErrExists = errors.New("exists already")
	// ErrUnavailable: the queue cannot be reached or has no room; the same call may succeed later.
	ErrUnavailable = errors.New("queue is unavailable")
	// ErrFull: the queue has no room for another job; later it may.
	ErrFull = errors.New("queue is full")
	// ErrDenied: the login may not do this; another may.
	ErrDenied = errors.New("not allowed")
	// ErrDeadline is the cancellation cause of a job whose deadline has passed.
	ErrDeadline = errors.New("deadline has passed")
	// ErrUnfit is returned by a handler whose agent cannot do jobs for now, through no fault of the
	// job: its scratch folder is full, for one. The job goes back to the queue. After twice its
	// attempts it fails with the last reason.
	ErrUnfit = errors.New("the agent cannot do jobs for now")
	// ErrDrain is the cancellation cause of work whose agent process ends: it stops between two
	// steps, and another worker continues it.
	ErrDrain = errors.New("the agent drains")
	// ErrFinish is the cancellation cause of a job that shall finish early: it takes no new input,
	// finishes what it holds, and its result says how far it came.
	ErrFinish = errors.New("asked to finish early")
	// ErrCancelled is the cancellation cause of a job whose submitter no longer wants it.
	ErrCancelled = errors.New("job was cancelled")
)

// Code is the stable class of an error that crosses the queue.
type Code string

// The codes.
const (
	CodeInput    Code = "input"    // the data is at fault: its owner must act
	CodeInvalid  Code = "invalid"  // the job or spec is at fault
	CodeVersion  Code = "version"  // the sides speak different protocol versions
	CodeIO       Code = "io"       // a file, disk or network of the agent failed
	CodeDevice   Code = "device"   // the accelerator failed
	CodeCanceled Code = "canceled" // the submitter cancelled
	CodeDeadline Code = "deadline" // the job was not done by its deadline
	CodeParent   Code = "parent"   // a job that it waited for was not done; the message names it
	CodeSkipped  Code = "skipped"  // the same, of a job that is to be skipped then
	CodeRound    Code = "round"    // the round of a vote is over: a later one is right
	CodeInternal Code = "internal" // a defect of Exoswarm
)

// Error is a failure as it travels in a result: a class and one sentence that names the place and
// the cure.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error of a class.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError finds the Error inside err, or classes err: a cancelled context is CodeCanceled, anything
// else CodeInternal.
func AsError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return &Error{Code: e.Code, Message: err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, ErrCancelled):
		return &Error{Code: CodeCanceled, Message: err.Error()}
	case errors.Is(err, ErrDeadline):
		return &Error{Code: CodeDeadline, Message: err.Error()}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

// Retry marks err as one after which the same job may succeed, here or elsewhere.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return retryable{err}
}

// Retryable reports whether err was marked by Retry or is an unavailable queue.
func Retryable(err error) bool {
	var r retryable
	return errors.As(err, &r) || errors.Is(err, ErrUnavailable)
}

type later struct {
	error
	after time.Duration
}

func (l later) Unwrap() error { return l.error }

// Later marks err with how long to wait before the same call is made again.
func Later(err error, after time.Duration) error { return later{err, after} }

// RetryAfter is how long to wait before the call that failed with err is made again, as far as the
// queue can tell; 0 when it cannot.
func RetryAfter(err error) time.Duration {
	var l later
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}
