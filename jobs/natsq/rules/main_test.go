package rules_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/internal/tempdir"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.CheckParallel(m, 4)
}
