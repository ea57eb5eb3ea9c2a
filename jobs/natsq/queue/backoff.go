package queue

import (
	"math/rand/v2"
	"time"
)

// The pauses between the attempts of a job: FirstPause, doubled after each attempt, up to
// lastPause.
const (
	FirstPause = time.Second
	lastPause  = time.Minute
)

// Backoff returns the pause after an attempt; the first attempt is 1. Half of the pause is random,
// so that jobs that failed together do not come back together.
func Backoff(attempt int) time.Duration {
	d := lastPause
	if attempt < 7 {
		d = min(FirstPause<<(attempt-1), lastPause)
	}
	return d/2 + rand.N(d/2)
}
