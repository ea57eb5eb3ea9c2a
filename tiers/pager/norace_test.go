//go:build !race

package pager_test

// raceEnabled: see race_test.go.
const raceEnabled = false
