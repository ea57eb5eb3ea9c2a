package dashboard

import "errors"

// Errors of New: the combination of options is not safe or not complete. Each is wrapped with the
// option at fault and the cure.
var (
	// ErrExposed: the address is reachable from other machines, without TLS and without a proxy.
	ErrExposed = errors.New("dashboard: the address is not loopback")
	// ErrToken: the token is too short to be a secret.
	ErrToken = errors.New("dashboard: the token is too short")
	// ErrOptions: an option is missing or contradicts another one.
	ErrOptions = errors.New("dashboard: options")
)

// errBusy is the answer when too many streams are open.
var errBusy = errors.New("too many event streams are open: close other tabs of the dashboard")

// errTicket is the answer to a confirmation whose preview was confirmed before, is too old, or is
// of another user.
var errTicket = errors.New("this preview was confirmed before or is too old: nothing is done; look again")
