// Package source opens the sources of a job: files, HTTP servers, databases, watched folders and
// object stores, JetStream subjects, topics of Kafka and MQTT, and push endpoints.
//
// A file is read in place. Any other source is read document by document, and each document is
// stored in a journal on the queue before its first row is used. So another attempt of the job
// reads the same rows, whatever the source returns then.
package source

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Resources are what the sources of a job may use. Sources share them, and do not close them.
type Resources struct {
	Queue   Queue
	Files   *files.Files
	Egress  *access.Guard // nil for no network
	Secrets *access.Store // nil for the secrets of the environment
	Owner   jobs.Owner    // of the job
	Logger  *slog.Logger
	// AllowStream returns an error if the job may not read a JetStream stream.
	AllowStream func(stream string) error
	// Endless lets sources have no end. Otherwise a source that never ends is refused.
	Endless bool
}

// ConsumerName returns the name of the consumer that source number i of a job or a detector has on
// a stream, unless the source names one.
func ConsumerName(job string, i int) string { return fmt.Sprintf("exoswarm-%s-%d", job, i) }

// Check checks a source before the first row of a job is read: number i of the job. It reads the
// header of a file, and connects to no remote system. The function remove, which may be nil,
// removes at the end of the job what the source keeps on the queue in addition to its journal.
func (s Resources) Check(
	ctx context.Context, job string, i int, src Series, columns rows.ColumnSpec,
) (remove func(context.Context) error, err error) {
	if IsRemote(src.URI) {
		f, err := s.fetcher(job, i, src, columns)
		if err != nil {
			return nil, err
		}
		_ = f.close()
		if subject, is := f.(*subjectFetcher); is {
			remove = subject.remove
		}
		return remove, nil
	}
	f, format, err := s.file(ctx, src)
	if err != nil {
		return nil, err
	}
	return nil, s.Files.Check(ctx, src.Name, f, format, src.columns(columns))
}

// OpenFile opens a source that is a file. What it decodes is bounded by the memory of the agent's
// inputs. It ends waiting for memory with ctx. The caller closes the reader.
func (s Resources) OpenFile(ctx context.Context, src Series, columns rows.ColumnSpec) (rows.Reader, error) {
	f, format, err := s.file(ctx, src)
	if err != nil {
		return nil, err
	}
	return s.Files.Read(ctx, src.Name, f, format, src.columns(columns))
}

// OpenRemote opens a remote source, number i of a job, whose documents are stored in a journal. The
// end of ctx ends its waiting. Between two documents its reader returns ErrPause. The caller closes
// the reader, which closes the journal's reader and the fetcher.
func (s Resources) OpenRemote(
	ctx context.Context, journal swarms.Log, job string, i int, src Series, columns rows.ColumnSpec,
) (rows.Reader, error) {
	f, err := s.fetcher(job, i, src, columns)
	if err != nil {
		return nil, err
	}
	return s.documents(ctx, journal, 0, src, columns, f)
}

// documents returns the reader of the documents of a fetcher, whose journal is read after an entry.
// After an error the fetcher is closed.
func (s Resources) documents(
	ctx context.Context, journal swarms.Log, after uint64, src Series, columns rows.ColumnSpec, f fetcher,
) (*documentReader, error) {
	j, err := openJournal(ctx, journal, after)
	if err != nil {
		_ = f.close()
		return nil, err
	}
	spec := src.columns(columns)
	spec.Local = rows.NewLocalTimes(spec)
	return &documentReader{ctx: ctx, name: src.Name, spec: spec, files: s.Files, journal: j, src: f}, nil
}

// file opens a source that is a file, and returns its format. The caller closes the file.
func (s Resources) file(ctx context.Context, src Series) (*os.File, rows.Format, error) {
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
