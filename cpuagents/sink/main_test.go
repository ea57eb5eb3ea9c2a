package sink

import (
	"testing"

	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // of databases and object stores
	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, 8)
}
