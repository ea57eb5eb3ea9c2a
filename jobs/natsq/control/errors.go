package control

import "errors"

// ErrSlotLost ends the jobs of a tenant whose slots another worker may have taken by now.
var ErrSlotLost = errors.New("the tenant's slot was lost: the server was not reached in time")
