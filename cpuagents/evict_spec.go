package cpuagents

import (
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

const maxEvictAfter = 100 * 365 * 24 * time.Hour

// EvictSpec lets the entities of a detector give their groups to others. An entity that has lost
// its group continues with its state when it has a row again.
type EvictSpec struct {
	// AfterSeconds is the time without a row, by the times of rows, after which an entity loses its
	// group. An entity also loses it when another one needs a group and none is free: then the one
	// whose last row came first.
	AfterSeconds float64 `json:"after_s"`
	// StateBytes is the size of the state of a group, at most MaxEvictedState.
	StateBytes int `json:"state_bytes"`
}

func (e *EvictSpec) after() time.Duration {
	return time.Duration(e.AfterSeconds * float64(time.Second))
}

// check returns an error that says what is wrong with the specification, and the cure.
func (e *EvictSpec) check(columns rows.ColumnSpec) error {
	switch {
	case len(columns.Key) == 0:
		return errors.New("it is for rows with a key: name its columns, or leave it out")
	case e.AfterSeconds <= 0 || e.AfterSeconds > maxEvictAfter.Seconds():
		return fmt.Errorf("after_s %v: use more than 0, and at most %v", e.AfterSeconds, maxEvictAfter.Seconds())
	case e.StateBytes < 1 || e.StateBytes > MaxEvictedState:
		return fmt.Errorf("a group has a state of %d bytes, and at most %d can be evicted: use fewer agents_per_group",
			e.StateBytes, MaxEvictedState)
	}
	return nil
}

// MaxEvictedState is the largest state of a group that can be evicted, in bytes: a state must fit
// into a message, as text.
const MaxEvictedState = 512 << 10
