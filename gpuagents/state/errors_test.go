package state

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestUnknownKind: an entry of a kind that nobody takes is refused by its kind.
func TestUnknownKind(t *testing.T) {
	var refused *jobs.Error
	if err := unknownKind(swarms.Entry{Kind: "odd"}); !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
		refused.Message != `kind "odd": this swarm does not take it` {
		t.Errorf("%v, want code %v for the kind odd", err, jobs.CodeInvalid)
	}
}
