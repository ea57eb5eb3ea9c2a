package pager

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

// errPinned is the error of a page that may not move, because it is pinned in another tier.
var errPinned = fmt.Errorf("pinned: %w", tiers.ErrUnavailable)

// errSettle is the error of a page that is in its tier and has to be saved before it is written.
var errSettle = errors.New("page is being saved")

// errMarking is the error of a dirty page that cannot be put because its writes do not belong to
// the checkpoint that runs.
var errMarking = errors.New("a checkpoint is running")
