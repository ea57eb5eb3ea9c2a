package tiers_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func TestHostFrames(t *testing.T) {
	tierstest.Frames(t, tiers.NewHostFrames(tierstest.Count, tierstest.PageSize))
}
