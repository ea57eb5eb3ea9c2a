//go:build !race

package server

import "time"

// fastSync is how often a server with Options.Fast syncs its files.
const fastSync = 100 * time.Millisecond
