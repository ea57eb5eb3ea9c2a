package command

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestMain leaves temporary folders on disk: TestHoldings counts open files, and leaves files in
// /dev out.
func TestMain(m *testing.M) { testkit.CheckLeaks(m) }
