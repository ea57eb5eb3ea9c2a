package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// Tune returns exoswarm tune. It needs no cluster.
func Tune() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tune -f SPEC --input PATH (--labels FILE | --alarms-per-day N)",
		Short: "Choose the alarm of a specification from labels or from a number of alarms a day",
		Long: `Choose the alarm and the number of agents of a specification of the predictor, and write the
proposal. The data are split: the choice is made on one part and judged on the other, which it does not
see. The split, the settings that were tried, and the measures of the present and the proposed setting on
the part to judge on are printed on standard error.

  --split time    chooses on the rows before a time, and judges on the others (default)
  --split entity  chooses on some entities, and judges on the others

With --labels the setting with the best F1 wins: FILE is a JSON list of incidents as for run --labels.
With --alarms-per-day it is the smallest alarm with at most N alarms a day of all entities together, and
the number of agents stays. Rows that go back in time are left out.`,
		RunE: runTune,
	}
	f := cmd.Flags()
	f.StringP("file", "f", "", "specification of the swarm (required)")
	f.StringArray("input", nil, "file or folder with rows; may be given several times (required)")
	f.String("labels", "", "JSON file with a list of labelled incidents")
	f.Float64("alarms-per-day", 0, "wanted number of alarms a day, of all entities together")
	f.String("split", evaluation.ByTime, "time or entity")
	f.Float64("share", 0.5, "share of the time or of the entities to choose on, above 0 and below 1")
	f.StringP("output", "o", "-", "file for the proposed specification, which must not exist; - for standard output")
	f.StringArray("csv", nil, "KEY=VALUE of the dialect of CSV files, as of run --csv; may be given several times")
	f.String("format", "table", "table or json: the measures on standard error")
	command.Lists(f, "input", "csv")
	return cmd
}

func runTune(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	file, _ := f.GetString("file")
	paths, _ := f.GetStringArray("input")
	labels, _ := f.GetString("labels")
	rate, _ := f.GetFloat64("alarms-per-day")
	output, _ := f.GetString("output")
	format, _ := f.GetString("format")
	paths = append(paths, args...)
	switch {
	case file == "":
		return command.Usage("tune: -f is missing: name a specification, such as examples/telemetry/swarm.yaml")
	case len(paths) == 0:
		return command.Usage("tune: --input is missing: name a file or a folder of them")
	case (labels == "") == (rate == 0):
		return command.Usage("tune: give --labels or --alarms-per-day, one of the two")
	case rate < 0:
		return command.Usage("tune: --alarms-per-day %v: use more than 0", rate)
	case format != "table" && format != "json":
		return command.Usage("tune: --format %q: use table or json", format)
	}
	if output != "-" {
		if _, err := os.Lstat(output); err == nil {
			return command.Usage("tune: %s exists: give another --output, or remove it", output)
		}
	}
	spec, err := userfile.ReadSpec(file)
	if err != nil {
		return err
	}
	if err := tunable(file, spec); err != nil {
		return err
	}
	o := options(spec)
	o.AlarmsPerDay = rate
	o.Split, _ = f.GetString("split")
	o.Share, _ = f.GetFloat64("share")
	if labels != "" {
		data, err := os.ReadFile(labels)
		if err != nil {
			return command.Usage("labels: %v: check --labels", err)
		}
		if o.Labels, err = report.ParseLabels(data); err != nil {
			return command.Usage("labels: %s: %v", labels, err)
		}
		if len(o.Labels) == 0 {
			return command.Usage("labels: %s has no label: mark incidents, or give --alarms-per-day", labels)
		}
	}
	csv, _ := f.GetStringArray("csv")
	if err := userfile.SetCSV(&spec.CSV, csv); err != nil {
		return err
	}
	to := cmd.ErrOrStderr()
	series, err := read(cmd, spec, paths, to)
	if err != nil {
		return err
	}
	if format == "table" {
		_, _ = fmt.Fprintln(to, header)
		o.Tried = func(m evaluation.Measured) { _, _ = fmt.Fprintln(to, line("tried", m)) }
	}
	r, err := evaluation.Tune(cmd.Context(), series, o)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the specification again: %w", err)
	}
	if text, err = evaluation.Propose(text, r.Chosen); err != nil {
		return err
	}
	if format == "json" {
		if err := json.NewEncoder(to).Encode(r); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(to, "%s\n%s\n\nThe split is %s.\n", line("before", r.Before),
			line("proposed", r.After), r.Split)
		if r.Warning != "" {
			_, _ = fmt.Fprintf(to, "Warning: %s.\n", r.Warning)
		}
	}
	if output == "-" {
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	if err := renameio.WriteFile(output, text, 0o666); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	return nil
}

// header is above the lines of measures. The settings that were tried are measured on the part to
// choose on, and the last two lines on the part to judge on.
const header = "           alarm  agents  incidents  found  alarms  outside  precision  recall    F1  alarms a day"

func line(what string, m evaluation.Measured) string {
	return fmt.Sprintf("%-9s  %5.2f  %6d  %9d  %5d  %6d  %7d  %9.2f  %6.2f  %4.2f  %12.3g", what, m.Alarm, m.Agents,
		m.Incidents, m.Found, m.Alarms, m.Outside, m.Precision, m.Recall, m.F1, m.AlarmsPerDay)
}

// tunable refuses a specification whose alarm is not chosen here.
func tunable(file string, spec *swarm.Spec) error {
	switch {
	case spec.Topology().ByAgent:
		return command.Usage("tune: %s addresses agents, and an alarm is of groups", file)
	case spec.Cell.Kind != "predictor":
		return command.Usage(
			"tune: %s has the cell %s, and tune chooses the alarm of the predictor",
			file,
			spec.Cell.Kind,
		)
	}
	return nil
}

const defaultAlarm = 0.39

func options(spec *swarm.Spec) evaluation.TuneOptions {
	o := evaluation.TuneOptions{
		Setting: evaluation.Setting{Alarm: defaultAlarm, Agents: spec.AgentsPerGroup}, Params: spec.Cell.Params,
		Features: len(spec.Features), Seed: spec.Seed,
	}
	if v, ok := spec.Cell.Params["alarm"]; ok {
		o.Setting.Alarm = v
	}
	return o
}

// maxBytes bounds what a packed file unpacks to.
const maxBytes = 1 << 50

// read reads the rows of all files, by entity. It tells how many rows were left out, and why the
// first one was.
func read(cmd *cobra.Command, spec *swarm.Spec, paths []string, to io.Writer) ([]evaluation.TuneSeries, error) {
	paths, err := userfile.Expand(paths)
	if err != nil {
		return nil, err
	}
	found, err := userfile.Find(paths)
	if err != nil {
		return nil, err
	}
	columns := rows.ColumnSpec{
		Timestamp: spec.Timestamp, Features: spec.Features, AnyOrder: true, Key: spec.Key,
		MaxEntities: spec.MaxEntities,
	}
	if !spec.CSV.IsZero() {
		columns.CSV = &spec.CSV
	}
	var all []evaluation.TuneSeries
	at := map[string]int{}
	left, why := 0, ""
	for _, in := range found {
		file, err := os.Open(in.Path)
		if err != nil {
			return nil, command.Usage("tune: %v", err)
		}
		r, err := rows.Open(in.Name, file, in.Format, columns, maxBytes, nil)
		if err != nil {
			return nil, err
		}
		for n := 0; ; n++ {
			if n%10_000 == 0 && cmd.Context().Err() != nil {
				return nil, errors.Join(command.ErrInterrupted, r.Close())
			}
			row, rejected, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(err, r.Close())
			}
			name := in.Name
			if rejected == nil && len(spec.Key) > 0 {
				name = rows.EntityName(row.Key)
			}
			i, known := at[name]
			if rejected == nil && known && row.Time < all[i].Times[len(all[i].Times)-1] {
				rejected = &rows.Reject{Series: in.Name, Row: row.Number, Reason: "it goes back in time"}
			}
			if rejected != nil {
				left++
				if why == "" {
					why = fmt.Sprintf("%s: %s", rejected.Place(), rejected.Reason)
				}
				continue
			}
			if !known {
				i = len(all)
				at[name] = i
				all = append(all, evaluation.TuneSeries{Name: name})
			}
			all[i].Times = append(all[i].Times, row.Time)
			all[i].Rows = append(all[i].Rows, row.Features...)
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	if left > 0 {
		_, _ = fmt.Fprintf(to, "%d rows are left out; the first: %s\n", left, strings.TrimSpace(why))
	}
	return all, nil
}
