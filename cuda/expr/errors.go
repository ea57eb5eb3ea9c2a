package expr

import (
	"errors"
	"fmt"
)

// The classes of error of this package. Errors of a device keep their own classes.
var (
	// ErrType: an operation got operands of types or shapes that it does not have.
	ErrType = errors.New("wrong type or shape")
	// ErrLimit: a program or a text is larger or deeper than the limits allow.
	ErrLimit = errors.New("beyond a limit")
	// ErrArgs: the arrays of a run do not fit the program.
	ErrArgs = errors.New("arguments do not fit the program")
)

// SyntaxError is an error in a text, at a byte offset from 0.
type SyntaxError struct {
	Offset int
	Text   string // what is wrong
	Err    error  // the class, or nil for a text that does not follow the grammar
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("expression, column %d: %s", e.Offset+1, e.Text)
}

// Unwrap returns the class.
func (e *SyntaxError) Unwrap() error { return e.Err }
