package natsconn

import "errors"

// ErrNoConsumer is the error of a pull from a consumer that does not exist, or has been deleted.
var ErrNoConsumer = errors.New("no consumer answers")
