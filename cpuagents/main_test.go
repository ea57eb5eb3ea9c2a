package cpuagents

import (
	"testing"

	_ "github.com/exoswarm/exoswarm/cpuagents/remote/cloud"  // s3:// and gs://
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/sqlite" // sqlite:
	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, 8)
}
