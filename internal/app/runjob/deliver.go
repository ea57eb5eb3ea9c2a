package runjob

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// runRecord describes a run to the processes that fetch its output later. It is an object next to
// the output, and is removed with it.
type runRecord struct {
	Name    string      `json:"name"`    // of the specification
	Anomaly string      `json:"anomaly"` // the candidate that counts as an alarm
	Normal  string      `json:"normal"`  // the first candidate
	Columns []string    `json:"columns"` // of the features
	Format  rows.Format `json:"format"`
	Keys    []string    `json:"keys,omitempty"` // columns of the key
	// Incidents is the format of the incidents; empty for none. NoOutput: there are no decisions.
	Incidents rows.Format `json:"incidents,omitempty"`
	NoOutput  bool        `json:"no_output,omitempty"`
}

func recordOf(spec *swarm.Spec, format rows.Format) runRecord {
	stream := cpuagents.StreamSpec{Candidates: spec.Vote.Candidates, Columns: rows.ColumnSpec{
		Features: spec.Features, Key: spec.Key,
	}, Explain: spec.Explain}
	return runRecord{
		Name: spec.Name, Normal: spec.Vote.Candidates[0], Anomaly: spec.Vote.Candidates[len(spec.Vote.Candidates)-1],
		Columns: stream.FeatureColumns(), Format: format, Keys: stream.KeyColumns(),
	}
}

// delivery brings the output of a job that is done to its destination.
type delivery struct {
	conn    *natsq.Conn
	carrier carrier
	id      string
	record  runRecord
	dest    *userfile.Destination
	labels  labels
	show    *progress
	objects *objects
}

// finish writes decisions, rejects and report, and ends with the table. It returns
// command.ErrInterrupted for the complete output of a job that was interrupted.
func (d *delivery) finish(ctx context.Context, o *Options, result *cpuagents.StreamResult) error {
	base, dest, rec := context.WithoutCancel(ctx), d.dest, d.record
	d.objects.at = delivering
	if gone, err := dest.Failed(); err != nil && !gone {
		return fmt.Errorf("write %s: %w", dest.Output(), err)
	} else if gone {
		fmt.Fprintf(o.Err, "%s was closed by its reader: the run ended early, after %d decisions\n", dest.Title(),
			result.Decisions)
		d.objects.at = delivered
		return nil
	}
	// From here on an interrupt waits for the files: they appear complete or not at all.
	if err := d.carrier.collect(base, dest); err != nil {
		return err
	}
	var series []cpuagents.SeriesSummary
	if err := getJSON(base, d.conn, "summary-"+d.id, &series); err != nil {
		return err
	}
	h := report.Header{
		Title: rec.Name, Anomaly: rec.Anomaly, Normal: rec.Normal, Features: rec.Columns, Keys: rec.Keys,
		Result: *result,
	}
	var err error
	if h.Labels, err = d.labels.compare(dest, &rec); err != nil {
		return err
	}
	first := firstReject(dest.Rejected())
	if err := dest.Deliver(ctx, o.Out, func(w io.Writer, decisions io.Reader) error {
		return report.Write(w, h, decisions, series)
	}); err != nil {
		return err
	}
	d.objects.at = delivered
	table := o.Out
	if dest.UsesStdout() {
		table = o.Err
	}
	printTable(table, result, series, dest, &h, first)
	d.show.outcome(h.Labels)
	if result.Interrupted {
		return command.ErrInterrupted
	}
	return nil
}

// firstReject returns the first rejected row of a file of them, for people; empty if there is none.
func firstReject(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var r rows.Reject
	if json.NewDecoder(f).Decode(&r) != nil {
		return ""
	}
	text := r.Series + ": " + r.Place() + ": " + r.Reason
	if r.Cure != "" {
		text += "; " + r.Cure
	}
	return command.Cell(text)
}
