package cpuagents

import (
	"testing"

	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // of databases and object stores
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, 8)
}
