package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/command"
)

// destination is where a run writes. Decisions and rejects are collected in files first; those for
// a stream are in a temporary folder, and deliver writes them out.
type destination struct {
	output, rejects, report place
	format                  rows.Format
	hasRejects, hasReport   bool
	decisions, rejected     string      // the files that decisions and rejects are collected in
	temp                    string      // empty for none
	live                    *live       // has written rows to the output as they came; nil for none
	flow                    *streamFile // what live writes to, when that is not standard output; nil for none
	labels                  []report.Label
	labelFile               string // of the labels, for errors
	begun                   time.Time
}

// newDestination checks, before any work, that everything can be written. The caller closes the
// result.
func newDestination(output, rejects, page string) (d *destination, err error) {
	d = &destination{begun: time.Now()}
	if d.output, err = newPlace("--output", output); err != nil {
		return nil, err
	}
	if d.format, err = rows.OutputFormat(output); d.output.stream() && err != nil {
		d.format, err = "ndjson", nil
	}
	if err != nil {
		return nil, command.Usage("--output %s: %v", output, err)
	}
	if rejects == "" && !d.output.stream() {
		rejects = rejectsOf(output)
	}
	if d.hasRejects = rejects != ""; d.hasRejects {
		if d.rejects, err = newPlace("--rejects", rejects); err != nil {
			return nil, err
		}
	}
	if d.hasReport = page != ""; d.hasReport {
		if d.format != "ndjson" {
			return nil, command.Usage("--report: it is made from decisions in plain NDJSON: name an --output that " +
				"ends with .ndjson")
		}
		if d.report, err = newPlace("--report", page); err != nil {
			return nil, err
		}
	}
	if err := d.apart(); err != nil {
		return nil, err
	}
	d.decisions, d.rejected = d.output.file, d.rejects.file
	if d.decisions == "" || d.rejected == "" {
		if d.temp, err = os.MkdirTemp("", "exoswarm-output-"); err != nil {
			return nil, fmt.Errorf("temporary folder: %w", err)
		}
	}
	if d.decisions == "" {
		d.decisions = filepath.Join(d.temp, "decisions")
	}
	if d.rejected == "" {
		d.rejected = filepath.Join(d.temp, "rejects")
	}
	return d, nil
}

// rejectsOf is where the rejects of an output go unless the user says otherwise: beside it, under a
// name that the outputs of other runs do not have.
func rejectsOf(output string) string {
	base := filepath.Base(output)
	if stem, ok := rows.CutFormat(base); ok {
		base = stem
	}
	return filepath.Join(filepath.Dir(output), base+files.RejectsSuffix)
}

// apart refuses two places that are one.
func (d *destination) apart() error {
	named := map[string]string{}
	for _, p := range []struct {
		flag string
		place
		given bool
	}{{"--output", d.output, true}, {"--rejects", d.rejects, d.hasRejects}, {"--report", d.report, d.hasReport}} {
		key := p.file
		switch {
		case !p.given:
			continue
		case p.stdout():
			key = "-"
		case p.stream():
			key = p.name
		default:
			if abs, err := filepath.Abs(key); err == nil {
				key = abs
			}
		}
		if other := named[key]; other != "" && key != os.DevNull {
			return command.Usage("%s and %s are both %s: name another file", other, p.flag, p.name)
		}
		named[key] = p.flag
	}
	return nil
}

// files are the regular files that the run writes.
func (d *destination) files() []string { return []string{d.output.file, d.rejects.file, d.report.file} }

// usesStdout reports whether anything goes to standard output, which then takes nothing else.
func (d *destination) usesStdout() bool {
	return d.output.stdout() || d.hasRejects && d.rejects.stdout() || d.hasReport && d.report.stdout()
}

// wrote reports whether the rejects were written by this run.
func (d *destination) wrote() bool {
	info, err := os.Stat(d.rejected)
	return err == nil && info.Size() > 0 && !info.ModTime().Before(d.begun.Truncate(time.Second))
}

// streams reports whether decisions can be written as they are made.
func (d *destination) streams() bool { return d.output.stream() && d.format == "ndjson" }

// goLive has rows written as they come. closed is called when their reader has gone away. ctx
// bounds the wait for the reader of a FIFO.
func (d *destination) goLive(ctx context.Context, stdout io.Writer, closed func()) {
	if !d.output.stdout() {
		d.flow = &streamFile{open: func() (*os.File, error) { return openStream(ctx, d.output.name) }}
		stdout = d.flow
	}
	d.live = newLive(stdout, closed)
}

// streamFile is a FIFO or device that is opened by the first write, and open until the run ends:
// its reader sees one file.
type streamFile struct {
	open func() (*os.File, error)
	file *os.File
}

// Write implements io.Writer. One goroutine at a time calls it.
func (f *streamFile) Write(p []byte) (int, error) {
	if f.file == nil {
		var err error
		if f.file, err = f.open(); err != nil {
			return 0, err
		}
	}
	return f.file.Write(p)
}

func (f *streamFile) close() error {
	if f == nil || f.file == nil {
		return nil
	}
	return f.file.Close()
}

// deliver writes the report, and what goes to streams.
func (d *destination) deliver(ctx context.Context, stdout io.Writer, h report.Header,
	series []cpuagents.SeriesSummary,
) error {
	if d.hasReport {
		err := d.report.fill(ctx, stdout, func(w io.Writer) error {
			decisions, err := os.Open(d.decisions)
			if err != nil {
				return err
			}
			defer decisions.Close()
			return report.Write(w, h, decisions, series)
		})
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if d.hasRejects {
		if err := d.pour(ctx, stdout, d.rejects, d.rejected); err != nil {
			return err
		}
	}
	return d.pour(ctx, stdout, d.output, d.decisions)
}

// pour copies a collected file to its place when that is a stream.
func (d *destination) pour(ctx context.Context, stdout io.Writer, to place, file string) error {
	if !to.stream() {
		return nil
	}
	write := func(w io.Writer) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if d.live != nil && file == d.decisions {
			return d.live.rest(onlyWriter{w}, f)
		}
		_, err = io.Copy(onlyWriter{w}, f)
		return err
	}
	if d.flow != nil && file == d.decisions {
		if err := write(d.flow); err != nil && !errors.Is(err, syscall.EPIPE) {
			return fmt.Errorf("write %s: %w", to.name, err)
		}
		return nil
	}
	return to.fill(ctx, stdout, write)
}

// onlyWriter hides everything but Write: a copy then reads the error of the writer as it is.
type onlyWriter struct{ io.Writer }

// close removes what was only collected.
func (d *destination) close() error {
	err := d.flow.close()
	if d.temp != "" {
		err = errors.Join(err, os.RemoveAll(d.temp))
	}
	return err
}

// explain adds where the reasons are to an error of the input, when this run has written them.
func (d *destination) explain(err error) error {
	if !d.hasRejects || d.rejects.stream() || !d.wrote() || !strings.Contains(err.Error(), "no valid row") {
		return err
	}
	return fmt.Errorf("%w (all reasons are in %s)", err, d.rejects.name)
}
