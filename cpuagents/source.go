package cpuagents

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// remote says whether a source is read document by document, and what was read kept on the queue.
func (s *Streamer) remote(uri string) bool {
	for _, p := range []string{"http://", "https://", "sqlite:", "postgres://", "watch:", "s3://", "gs://", "nats:", "push:", SubmitterURI} {
		if strings.HasPrefix(uri, p) {
			return true
		}
	}
	return false
}

// fetcher makes the fetcher of a remote source, number i of a job.
func (s *Streamer) fetcher(job string, i int, src SeriesSource, columns rows.ColumnSpec) (fetcher, error) {
	if err := cmp.Or(src.Format, "csv").Check(); err != nil {
		return nil, fmt.Errorf("series %s: %w", src.Name, err)
	}
	switch {
	case strings.HasPrefix(src.URI, "watch:"):
		return newWatchFetcher(src.URI, src.Format, src.Watch, s.Files)
	case strings.HasPrefix(src.URI, "nats:"):
		return newSubjectFetcher(src.URI, src.Format, src.NATS, fmt.Sprintf("exoswarm-%s-%d", job, i), s)
	case src.URI == SubmitterURI:
		return newSubmittedFetcher(job, src.Format, s)
	case strings.HasPrefix(src.URI, "push:"):
		return newPushFetcher(src.URI, src.Format, src.Push, s)
	case remote.IsObject(src.URI):
		return newObjectFetcher(src.URI, src.Format, src.Object, s.Egress, s.Secrets)
	case strings.HasPrefix(src.URI, "http"):
		return newHTTPFetcher(src.URI, src.Format, src.HTTP, s.Egress, s.Secrets)
	}
	return newSQLFetcher(src.URI, src.SQL, columns, s.Files, s.Egress, s.Secrets)
}

// openRemote opens a remote source for the reader of series number i. ctx ends its waiting.
func (s *stream) openRemote(ctx context.Context, i int) (rows.Reader, error) {
	f, err := s.fetcher(s.id, i, s.series[i], s.spec.Columns)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(ctx, s.log(1+i, jobs.In))
	if err != nil {
		_ = f.close()
		return nil, err
	}
	return &remoteReader{ctx: ctx, name: s.series[i].Name, spec: s.series[i].columns(s.spec.Columns), files: s.Files, journal: j, src: f}, nil
}

// open opens a source that is a file. What it decodes is bounded by the memory of the agent's inputs.
func (s *Streamer) open(ctx context.Context, src SeriesSource, spec rows.ColumnSpec) (rows.Reader, error) {
	f, format, err := s.file(ctx, src)
	if err != nil {
		return nil, err
	}
	return s.Files.Read(ctx, src.Name, f, format, src.columns(spec))
}

// check opens a source that is a file, reads its header and closes it.
func (s *Streamer) check(ctx context.Context, src SeriesSource, spec rows.ColumnSpec) error {
	f, format, err := s.file(ctx, src)
	if err != nil {
		return err
	}
	return s.Files.Check(ctx, src.Name, f, format, src.columns(spec))
}

func (s *Streamer) file(ctx context.Context, src SeriesSource) (*os.File, rows.Format, error) {
	format := src.Format
	if format == "" {
		format, _ = rows.FormatOf(src.URI, "csv")
	}
	if err := format.Check(); err != nil {
		return nil, "", fmt.Errorf("series %s: %w", src.Name, err)
	}
	f, err := s.Files.Open(ctx, src.URI)
	return f, format, err
}
