// Package remote reaches the HTTP servers, object stores and databases that jobs name. Every
// connection goes through the guard of the agent, takes its credentials from references to secrets,
// and has bounds for time and size.
package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Limits bound the requests of a job to a system outside the cluster. The zero value of a field
// means its default. Errors have the names of the fields in specifications. Times are in seconds as
// in specifications, and sizes in bytes.
type Limits struct {
	Polls    int     // how often the system is asked in all, 1 to 1,000,000; default 1
	Every    float64 // seconds between the starts of two polls, 0.1 to 86,400; default 60
	MaxBytes int64   // of a document, 1 to 1 GiB; default 64 MiB
	Timeout  float64 // of a request with its answer, in seconds, 0.1 to 3,600; default 60
	Rate     float64 // requests a second, 0.001 to 1,000; default 5
	Tries    int     // of a request, 1 to 20; default 5
	Backoff  float64 // seconds before the second try, 0.001 to 60; default 0.5
}

// WithDefaults returns the limits with their defaults, and an error that joins all faults. The
// receiver is not changed. Each fault names a field of a specification, its value and its range.
func (l Limits) WithDefaults() (Limits, error) {
	var errs []error
	check := func(what string, v *float64, missing, low, high float64) {
		if *v == 0 {
			*v = missing
		}
		if !(*v >= low && *v <= high) {
			errs = append(errs, fmt.Errorf("%s %v: use %v to %v", what, *v, low, high))
		}
	}
	count := func(what string, v *int, missing, high int) {
		f := float64(*v)
		check(what, &f, float64(missing), 1, float64(high))
		*v = int(f)
	}
	count("polls", &l.Polls, 1, 1_000_000)
	count("tries", &l.Tries, 5, 20)
	check("every_s", &l.Every, 60, 0.1, 86_400)
	check("timeout_s", &l.Timeout, 60, 0.1, 3_600)
	check("rate", &l.Rate, 5, 0.001, 1_000)
	check("backoff_s", &l.Backoff, 0.5, 0.001, 60)
	if l.MaxBytes == 0 {
		l.MaxBytes = 64 << 20
	}
	if l.MaxBytes < 1 || l.MaxBytes > 1<<30 {
		errs = append(errs, fmt.Errorf("max_bytes %d: use 1 to %d", l.MaxBytes, 1<<30))
	}
	return l, errors.Join(errs...)
}

// Retry returns how a request is repeated: Tries times, with a growing pause that begins at
// Backoff. An error after the last try is marked with jobs.Retry, because the queue may retry the
// job. The receiver is a result of WithDefaults.
func (l Limits) Retry() retry.Policy {
	return retry.Policy{Tries: l.Tries, Base: seconds(l.Backoff), Exhausted: jobs.Retry}
}

// RequestTimeout returns the bound of a request. It covers one try with its answer, and not the
// pauses between tries.
func (l Limits) RequestTimeout() time.Duration { return seconds(l.Timeout) }

// UntilPoll returns the time that is left until the next poll, when the last one began at begun. It
// is negative if the poll took longer than Every, and the next one then begins at once.
func (l Limits) UntilPoll(begun time.Time) time.Duration {
	return time.Until(begun.Add(seconds(l.Every)))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
