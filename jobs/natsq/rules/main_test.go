package rules_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/leak"
	"github.com/exoswarm/exoswarm/internal/base/tempdir"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, 4)
}
