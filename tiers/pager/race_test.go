//go:build race

package pager_test

// raceEnabled: the race detector allocates, and makes sync.Pool forget at random.
const raceEnabled = true
