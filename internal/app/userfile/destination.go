package userfile

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

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// Destination has the places of one run. Decisions and rejects are collected in files first; those
// for a stream are in a temporary folder until Deliver copies them. One goroutine uses it, except
// for Take and Failed.
type Destination struct {
	output, rejects, report place
	anomalies               place
	format                  rows.Format
	hasOutput, hasRejects   bool
	hasReport, hasAnomalies bool
	incidentFormat          rows.Format // of the incidents
	decisions, rejected     string      // the files that decisions and rejects are collected in
	incidents               string      // the same of incidents; empty for none
	temp                    string      // empty for none
	live                    *live       // writes rows to the output as they come; nil for none
	flow                    *streamFile // the stream of live unless that is standard output; nil for none
	begun                   time.Time
}

// Paths are the places of a run as its user named them. Empty ones are not written.
type Paths struct {
	// Output is for the decisions, and may be empty with Anomalies.
	Output string
	// Anomalies is for the records of incidents, as NDJSON or CSV.
	Anomalies string
	// Rejects is for invalid rows; empty: in the folder of a regular output.
	Rejects string
	// Report is for the page.
	Report string
}

// NewDestination returns the destination of a run, and checks before any work that every place can
// be written. The extension of the output gives the format; a stream takes NDJSON. Errors of the
// paths are of usage. The caller closes the result.
func NewDestination(p Paths) (d *Destination, err error) {
	output, rejects, page := p.Output, p.Rejects, p.Report
	d = &Destination{begun: time.Now(), hasOutput: output != "" || p.Anomalies == ""}
	if err := d.takeAnomalies(p.Anomalies); err != nil {
		return nil, err
	}
	if !d.hasOutput {
		d.format = "ndjson"
	} else {
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
	}
	if d.hasRejects = rejects != ""; d.hasRejects {
		if d.rejects, err = newPlace("--rejects", rejects); err != nil {
			return nil, err
		}
	}
	if d.hasReport = page != ""; d.hasReport {
		if d.format != "ndjson" || !d.hasOutput {
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
	// Only the files for streams are in a temporary folder.
	d.decisions, d.rejected = d.output.file, d.rejects.file
	d.incidents = d.anomalies.file
	if d.decisions == "" || d.rejected == "" || d.hasAnomalies && d.incidents == "" {
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
	if d.hasAnomalies && d.incidents == "" {
		d.incidents = filepath.Join(d.temp, "incidents")
	}
	return d, nil
}

// takeAnomalies sets the place of the incidents and their format; an empty name is none.
func (d *Destination) takeAnomalies(name string) (err error) {
	if d.hasAnomalies = name != ""; !d.hasAnomalies {
		return nil
	}
	if d.anomalies, err = newPlace("--anomalies", name); err != nil {
		return err
	}
	d.incidentFormat, err = rows.OutputFormat(name)
	switch {
	case d.anomalies.stream() && err != nil:
		d.incidentFormat = "ndjson"
	case err != nil:
		return command.Usage("--anomalies %s: %v", name, err)
	case d.incidentFormat != "ndjson" && d.incidentFormat != "csv":
		return command.Usage("--anomalies %s: incidents are NDJSON or CSV: name a file that ends with .ndjson or .csv",
			name)
	}
	return nil
}

// HasOutput reports whether decisions are written.
func (d *Destination) HasOutput() bool { return d.hasOutput }

// Incidents returns the regular file in which the incidents are collected, and their format; empty
// for none.
func (d *Destination) Incidents() (file string, format rows.Format) {
	return d.incidents, d.incidentFormat
}

// AnomaliesPath returns the path of the incidents as the user wrote it; empty for none.
func (d *Destination) AnomaliesPath() string { return d.anomalies.name }

// rejectsOf returns the default path of rejects: in the folder of the output, under a name that the
// outputs of other runs do not have.
func rejectsOf(output string) string {
	base := filepath.Base(output)
	if stem, ok := rows.CutFormat(base); ok {
		base = stem
	}
	return filepath.Join(filepath.Dir(output), base+files.RejectsSuffix)
}

// apart refuses two flags that name one place.
func (d *Destination) apart() error {
	named := map[string]string{}
	for _, p := range []struct {
		flag string
		place
		given bool
	}{
		{"--output", d.output, d.hasOutput},
		{"--anomalies", d.anomalies, d.hasAnomalies},
		{"--rejects", d.rejects, d.hasRejects},
		{"--report", d.report, d.hasReport},
	} {
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
		// The null device may take everything.
		if other := named[key]; other != "" && key != os.DevNull {
			return command.Usage("%s and %s are both %s: name another file", other, p.flag, p.name)
		}
		named[key] = p.flag
	}
	return nil
}

// Files returns the regular files that the run writes, with an empty string for each stream.
func (d *Destination) Files() []string {
	return []string{d.output.file, d.anomalies.file, d.rejects.file, d.report.file}
}

// UsesStdout reports whether any place is standard output, which then takes no messages.
func (d *Destination) UsesStdout() bool {
	return d.output.stdout() || d.anomalies.stdout() || d.hasRejects && d.rejects.stdout() ||
		d.hasReport && d.report.stdout()
}

// wrote reports whether this run has written rejects.
func (d *Destination) wrote() bool {
	info, err := os.Stat(d.rejected)
	return err == nil && info.Size() > 0 && !info.ModTime().Before(d.begun.Truncate(time.Second))
}

// Streams reports whether decisions can be written as they are made: the output is a stream of
// NDJSON.
func (d *Destination) Streams() bool { return d.hasOutput && d.output.stream() && d.format == "ndjson" }

// GoLive makes Take write rows to the output as they come. closed is called once, in a goroutine of
// its own, when the reader of the output closes its end. ctx bounds the wait for the reader of a
// FIFO. The caller calls EndLive when no call of Take is left.
func (d *Destination) GoLive(ctx context.Context, stdout io.Writer, closed func()) {
	if !d.output.stdout() {
		d.flow = &streamFile{open: func() (*os.File, error) { return openStream(ctx, d.output.name) }}
		stdout = d.flow
	}
	d.live = newLiveOutput(stdout, closed)
}

// Take writes a message of rows of the CPU agent after GoLive, and returns the answer:
// sink.RowsTaken when they are written, sink.RowsWait while the reader is slow, and sink.RowsStop
// when it is gone or GoLive was not called. It may be called from several goroutines.
func (d *Destination) Take(message []byte) []byte {
	if d.live == nil {
		return []byte(sink.RowsStop)
	}
	return d.live.take(message)
}

// EndLive waits for the call of closed of GoLive, if there is one.
func (d *Destination) EndLive() {
	if d.live != nil {
		d.live.end()
	}
}

// Failed returns the first error of Take. gone reports that the reader has closed its end, which is
// the normal end of a pipe.
func (d *Destination) Failed() (gone bool, err error) {
	if d.live == nil {
		return false, nil
	}
	return d.live.failed()
}

// Format returns the format of the decisions.
func (d *Destination) Format() rows.Format { return d.format }

// Decisions returns the regular file in which the decisions are collected.
func (d *Destination) Decisions() string { return d.decisions }

// Rejected returns the regular file in which the rejects are collected.
func (d *Destination) Rejected() string { return d.rejected }

// Title returns the name of the output in messages.
func (d *Destination) Title() string { return d.output.title() }

// Output returns the path of the output as the user wrote it.
func (d *Destination) Output() string { return d.output.name }

// RejectsPath returns the path of the rejects as the user wrote it, or the default; empty for none.
func (d *Destination) RejectsPath() string {
	if !d.hasRejects {
		return ""
	}
	return d.rejects.name
}

// ReportPath returns the path of the report as the user wrote it; empty for none.
func (d *Destination) ReportPath() string {
	if !d.hasReport {
		return ""
	}
	return d.report.name
}

// CheckFormat returns an error of usage when decisions in a format do not fit the destination, as
// with a job that was submitted for another destination.
func (d *Destination) CheckFormat(format rows.Format) error {
	if d.format != format && !d.output.stream() {
		return command.Usage("--output %s: the decisions of the job are %s: name a file that ends with .%s",
			d.output.name, format, format)
	}
	if d.hasReport && format != "ndjson" {
		return command.Usage("--report: it is made from decisions in plain NDJSON, and the job writes %s", format)
	}
	return nil
}

// Copy writes the output from a reader. ctx bounds the wait for the reader of a FIFO.
func (d *Destination) Copy(ctx context.Context, stdout io.Writer, from io.Reader) error {
	return d.output.fill(ctx, stdout, func(w io.Writer) error { _, err := io.Copy(onlyWriter{w}, from); return err })
}

// streamFile is a FIFO or device that the first write opens, and that stays open until the run
// ends: its reader sees one file.
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

// Deliver writes the report, and copies decisions and rejects to the places that are streams. ctx
// bounds the wait for the reader of a FIFO. page makes the report from the decisions.
func (d *Destination) Deliver(ctx context.Context, stdout io.Writer, page func(w io.Writer, decisions io.Reader) error,
) error {
	if d.hasReport {
		err := d.report.fill(ctx, stdout, func(w io.Writer) error {
			decisions, err := os.Open(d.decisions)
			if err != nil {
				return err
			}
			defer decisions.Close()
			return page(w, decisions)
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
	if d.hasAnomalies {
		if err := d.pour(ctx, stdout, d.anomalies, d.incidents); err != nil {
			return err
		}
	}
	if !d.hasOutput {
		return nil
	}
	return d.pour(ctx, stdout, d.output, d.decisions)
}

// pour copies a collected file to its place when that is a stream.
func (d *Destination) pour(ctx context.Context, stdout io.Writer, to place, file string) error {
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

// onlyWriter hides all methods but Write, so that io.Copy returns the error of the writer
// unchanged.
type onlyWriter struct{ io.Writer }

// Close removes the files that were collected for streams.
func (d *Destination) Close() error {
	err := d.flow.close()
	if d.temp != "" {
		err = errors.Join(err, os.RemoveAll(d.temp))
	}
	return err
}

// Explain adds the path of the rejects to an error of the input, when this run has written them.
func (d *Destination) Explain(err error) error {
	if !d.hasRejects || d.rejects.stream() || !d.wrote() || !strings.Contains(err.Error(), "no valid row") {
		return err
	}
	return fmt.Errorf("%w (all reasons are in %s)", err, d.rejects.name)
}
