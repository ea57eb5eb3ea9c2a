package action

import "errors"

// ErrNoOperator reports that the login may not act. Only operators may.
var ErrNoOperator = errors.New("actions need the login of an operator")

// ErrChanged reports that the preview of an action has changed since it was shown. It is wrapped in
// a *ChangedError.
var ErrChanged = errors.New("what the action affects has changed since it was shown: nothing is done; look again")

// ChangedError is ErrChanged with the new preview.
type ChangedError struct{ Preview Preview }

func (e *ChangedError) Error() string { return ErrChanged.Error() }
func (e *ChangedError) Unwrap() error { return ErrChanged }
