package natsconn

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// errElected ends a request to a stream leader that has been replaced and may never answer.
var errElected = errors.New("a stream has another leader")

// errRemade ends a watch of a bucket that was made again or lost its last records. The client's
// watch continues after the last record that it has seen, so it would miss the records of the new
// bucket.
var errRemade = errors.New("the bucket was made anew, or put back to an earlier state")

// errReconnected ends a watch whose connection was down. The server may have replaced its last
// records in that time.
var errReconnected = errors.New("the connection was away")

var errLags = errors.New("the replica of the bucket lags behind")

// errLost tells what to do about a server that was lost.
var errLost = errors.New("start it again, or wait longer for it with --patience")

// ErrNoStreams is returned to a login that may not make the streams of the cluster while they are
// missing. It wraps jobs.ErrDenied.
var ErrNoStreams = fmt.Errorf("the streams are not made yet: an operator makes them with exoswarm init --yes: %w",
	jobs.ErrDenied)

var errNoSpace = errors.New("the server has no room")

// ErrNoConsumer is the error of a pull from a consumer that does not exist, or has been deleted.
var ErrNoConsumer = errors.New("no consumer answers")
