package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

// Limits of a manifest.
const (
	// maxSeriesBytes bounds one entry in bytes, such as an HTTP source with its headers and query.
	maxSeriesBytes = 256 << 10
	// maxSeriesName bounds the name of a series in bytes. Each row of the output has it.
	maxSeriesName = 1 << 10
	// seriesMemory is the bytes that a job keeps for a series besides the text of its entry: the
	// source, its summary, its places in the spool, and its part of each line of the output.
	seriesMemory = 1 << 10
	// manifestStep is the number of series that are charged to the memory at a time.
	manifestStep = 256
)

// manifest reads the series of a job entry by entry. Their memory stays in h, which lasts as long
// as the job. A mistake in the list is an error of class jobs.CodeInvalid that names the series by
// its number, from 1. The series have the order of the list. The caller releases h.
func (s *Streamer) manifest(ctx context.Context, uri string, h *access.Hold) ([]source.Series, error) {
	r, err := s.Files.Open(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "manifest %s: "+format, append([]any{uri}, args...)...)
	}
	src := &entryReader{r: r}
	dec := json.NewDecoder(src)
	src.decoded = dec.InputOffset
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, bad("it is no JSON list of series")
	}
	var series []source.Series
	kept := int64(0)
	for dec.More() {
		if len(series)%manifestStep == 0 {
			n := seriesMemory*manifestStep + dec.InputOffset() - kept
			if err := h.Keep(n, "its series"); err != nil {
				return nil, err
			}
			kept = dec.InputOffset()
		}
		var one source.Series
		if err := dec.Decode(&one); err != nil {
			if errors.Is(err, errLongEntry) {
				return nil, bad("series %d takes more than %s: shorten it", len(series)+1, memory.Text(maxSeriesBytes))
			}
			return nil, bad("series %d: %v", len(series)+1, err)
		}
		if len(one.Name) > maxSeriesName {
			return nil, bad(
				"series %d has a name of %s, beginning with %s: use at most %s", len(series)+1,
				memory.Text(int64(len(one.Name))), access.Quote(one.Name), memory.Text(maxSeriesName),
			)
		}
		if _, err := one.CSV.Validate(); err != nil {
			return nil, bad("series %d, %s: %v", len(series)+1, access.Quote(one.Name), err)
		}
		series = append(series, one)
	}
	if _, err := dec.Token(); err != nil {
		return nil, bad("its list of series has no end: %v", err)
	}
	if len(series) == 0 {
		return nil, bad("it names no series")
	}
	return series, nil
}

var errLongEntry = errors.New("the entry is too long")

// entryReader reads a JSON list, and fails at an entry of more than maxSeriesBytes, since the
// decoder holds an entry as a whole. One decoder uses it.
type entryReader struct {
	r       io.Reader
	read    int64
	decoded func() int64 // bytes that the decoder is done with
}

// Read implements io.Reader. It counts the bytes that the decoder has not finished with, so a long
// list of short entries passes.
func (e *entryReader) Read(p []byte) (int, error) {
	ahead := int64(0)
	if e.decoded != nil {
		ahead = e.read - e.decoded()
	}
	if ahead > maxSeriesBytes {
		return 0, errLongEntry
	}
	n, err := e.r.Read(p[:min(len(p), maxSeriesBytes)])
	e.read += int64(n)
	return n, err
}
