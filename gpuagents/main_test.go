package gpuagents

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, 8)
}

// noLogs is a queue without shards.
type noLogs struct{}

// Log implements Queue.
func (noLogs) Log(string, int, swarms.Direction) swarms.Log { return nil }
