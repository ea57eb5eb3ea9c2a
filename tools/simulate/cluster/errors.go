package cluster

import "errors"

// Errors of configurations and runs.
var (
	// ErrConfig is a configuration that cannot be simulated.
	ErrConfig = errors.New("invalid configuration")
	// ErrLost is a defect of the simulator: entries have no answer, or several.
	ErrLost = errors.New("entries were lost")
)
