package command

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/leak"
)

// TestMain leaves temporary folders on disk: TestHoldings counts open files, and not those of /dev.
func TestMain(m *testing.M) { leak.Check(m) }
