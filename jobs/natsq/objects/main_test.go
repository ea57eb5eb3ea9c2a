package objects_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/leak"
)

func TestMain(m *testing.M) { leak.CheckParallel(m, 8) }
