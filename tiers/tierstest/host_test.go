package tierstest_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func TestHostFrames(t *testing.T) {
	tierstest.Frames(t, tierstest.NewHostFrames(tierstest.Count, tierstest.PageSize))
}
