package tiers_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/framestest"
)

func TestHostFrames(t *testing.T) {
	framestest.Frames(t, tiers.NewHostFrames(framestest.Count, framestest.PageSize))
}
