package dashboard

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/leak"
)

func TestMain(m *testing.M) { leak.CheckParallel(m, 4) }
