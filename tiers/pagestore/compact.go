package pagestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

// sparse is the part of its slots in use under which Compact empties a segment: moving a page then
// frees more than it writes.
const sparse = 0.5

// fewMarks is how much the index may remember of stale records without Compact sweeping them away.
const fewMarks = 256

// Compact moves pages out of segments of which less than half is in use, and out of those retired
// after a failed sync, and deletes the files. It returns how many bytes shorter the files are
// together. Pages whose medium does not read them, or for which there is no room, stay. It may run
// beside everything else.
func (s *Store) Compact(ctx context.Context) (freed int64, err error) {
	if err := s.enter(ctx, 0); err != nil {
		return 0, err
	}
	defer s.life.RUnlock()
	var errs []error
	drained := make([]map[uint32]bool, len(s.records.dirs))
	for i, d := range s.records.dirs {
		freed += d.Usage().FileBytes
		drained[i] = d.Drain(sparse)
	}
	for _, page := range s.Pages() {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		e, err := s.table.lookup(page)
		if err != nil || !drained[e.tier()][e.loc().Segment] {
			continue
		}
		err = s.rewrite(ctx, page, e.tier())
		if err != nil && !errors.Is(err, tiers.ErrNotFound) && !errors.Is(err, tiers.ErrFull) {
			errs = append(errs, err)
		}
	}
	if _, err := s.commit(ctx, nil, true); err != nil {
		errs = append(errs, fmt.Errorf("compact: %w", err))
	}
	for _, d := range s.records.dirs {
		errs = append(errs, d.Undrain())
		freed -= d.Usage().FileBytes
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := errors.Join(errs...); err != nil || s.index.Broken() || s.index.Marks() < fewMarks {
		return freed, err
	}
	return freed, s.sweep()
}
