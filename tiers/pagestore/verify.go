package pagestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Report is what Verify found.
type Report struct {
	// Pages and Bytes count the records that were read.
	Pages int
	Bytes int64
	// Bad are the pages that cannot be served, in ascending order.
	Bad []uint64
	// Problems has an error for every bad page and for every file that is damaged, whether or not a
	// copy makes it good.
	Problems []error
}

// Verify reads every record of every page and checks it as Get would, the index, and both copies of
// its superblock and of the segment headers. bytesPerSecond bounds its reading, 0 for no bound: a
// background scrub runs it slowly, again and again. Damage is in the report and no error. Pages
// that are written meanwhile are checked with their new content.
func (s *Store) Verify(ctx context.Context, bytesPerSecond int64) (Report, error) {
	return s.VerifyWith(ctx, bytesPerSecond, nil)
}

// VerifyWith is Verify that calls progress, when not nil, after each page with what was read so far
// and how many pages there were to read.
func (s *Store) VerifyWith(ctx context.Context, bytesPerSecond int64, progress func(r *Report, total int)) (Report,
	error,
) {
	var r Report
	if err := s.enter(ctx, 0); err != nil {
		return r, err
	}
	defer s.life.RUnlock()
	s.commitMu.Lock()
	if err := s.index.Verify(); err != nil {
		r.Problems = append(r.Problems, err)
	}
	s.commitMu.Unlock()
	for _, d := range s.records.dirs {
		if err := d.VerifyHeaders(); err != nil {
			r.Problems = append(r.Problems, fmt.Errorf("tier %s: %w", d.name, err))
		}
	}
	start := time.Now()
	pages := s.Pages()
	for _, page := range pages {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		e, _, err := s.read(ctx, page, nil)
		if errors.Is(err, tiers.ErrNotFound) {
			continue // Deleted meanwhile.
		}
		r.Pages++
		r.Bytes += int64(e.loc().Blocks) * vfs.BlockSize
		if err != nil {
			r.Bad = append(r.Bad, page)
			r.Problems = append(r.Problems, fmt.Errorf("page %d: %w", page, err))
		}
		if progress != nil {
			progress(&r, len(pages))
		}
		if bytesPerSecond > 0 {
			due := time.Duration(float64(r.Bytes) / float64(bytesPerSecond) * float64(time.Second))
			if retry.Sleep(ctx, due-time.Since(start)) != nil {
				return r, ctx.Err()
			}
		}
	}
	slices.Sort(r.Bad)
	return r, nil
}
