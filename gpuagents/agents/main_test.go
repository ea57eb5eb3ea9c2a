package agents

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// onDevice is the index of the device among the tiers of memory of a pager.
const onDevice = 0

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }
