//go:build race

package server

import "time"

// fastSync is longer than a test: nats-server 2.15.2 writes the field syncTmr of a new file store
// without its lock, and the race detector reports that where the timer fires within the next
// microseconds.
const fastSync = time.Hour
