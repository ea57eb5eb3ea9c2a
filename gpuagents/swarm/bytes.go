package swarm

import "github.com/exoswarm/exoswarm/cuda/kernels"

// PageBytes returns how many bytes the pages of so many groups take; 0 for a specification that
// cannot be laid out in pages.
func (s *Spec) PageBytes(groups int) int64 {
	var layout kernels.Layout
	if s.ByAgent() {
		cell, err := s.Address()
		if err != nil {
			return 0
		}
		if layout, err = cell.Layout(int(s.PageSize)); err != nil {
			return 0
		}
	} else {
		bound, err := s.Bind()
		if err != nil {
			return 0
		}
		if layout, err = bound.Layout(int(s.PageSize)); err != nil {
			return 0
		}
	}
	return int64((groups+layout.Slots-1)/layout.Slots) * int64(layout.PageBytes)
}
