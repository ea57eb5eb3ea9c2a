package programs

import "errors"

// ErrBusy is wrapped by the errors for requests beyond what the server does at a time.
var ErrBusy = errors.New("too many requests of programs at a time")
