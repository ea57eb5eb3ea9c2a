package run

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
)

// Evaluate returns exoswarm eval. It needs no cluster.
func Evaluate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval DECISIONS --labels FILE",
		Short: "Measure the decisions of a run against labelled incidents",
		Long: `Measure decisions against incidents that people have marked. DECISIONS is the NDJSON output of a run,
also packed (.gz, .zst), or - for standard input. FILE is a JSON list as for run --labels; see Labels in
docs/sources.md. The measures:

  incidents     An incident is found if an alarm lies within it. Precision is the share of alarms within
                incidents, recall the share of incidents found.
  false alarms  Alarms outside of all incidents, for each day of each entity.
  delay         From the begin of a found incident to its first alarm.
  rows          Precision and recall of ranges: from an alarm to the next normal row, against the rows of
                incidents (Tatbul et al., NeurIPS 2018).
  scores        Volume under the surface of precision and recall, which depends on no threshold
                (Paparrizos et al., PVLDB 2022).
  NAB           Score of the Numenta Anomaly Benchmark for the alarms: 100 is perfect, 0 is silence. It
                leaves out the first 15 % of the rows of an entity, 750 at most.`,
		RunE: evaluate,
	}
	f := cmd.Flags()
	f.String("labels", "", "JSON file with a list of labelled incidents (required)")
	f.StringSlice("key", nil, "columns of the key, with commas between them, of a run with a key; empty: series")
	f.Float64("skip", 0, "share of the rows at the beginning of each entity that count for nothing, 0 to below 1")
	f.String("anomalous", "anomalous", "decision that is an alarm")
	f.String("normal", "normal", "decision that ends an incident")
	f.String("format", "table", "table or json")
	return cmd
}

func evaluate(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	format, _ := f.GetString("format")
	if format != "table" && format != "json" {
		return command.Usage("format %q: use table or json", format)
	}
	var o evaluation.Options
	o.Keys, _ = f.GetStringSlice("key")
	o.Anomalous, _ = f.GetString("anomalous")
	o.Normal, _ = f.GetString("normal")
	o.Skip, _ = f.GetFloat64("skip")
	file, _ := f.GetString("labels")
	if file == "" {
		return command.Usage("name the file of labelled incidents with --labels")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return command.Usage("labels: %v: check --labels", err)
	}
	labels, err := report.ParseLabels(data)
	if err != nil {
		return command.Usage("labels: %s: %v", file, err)
	}
	in, err := openRows(args[0], cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := evaluation.Evaluate(in, labels, o)
	if err != nil {
		return err
	}
	if format == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), r.Table())
	return err
}

// openRows opens a file of decisions, unpacked, or standard input for a dash.
func openRows(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	format, _ := rows.FormatOf(name, "ndjson")
	if kind, _, err := format.Split(); err != nil || kind != "ndjson" {
		return nil, command.Usage("%s: decisions are read as NDJSON: write them with run --output FILE.ndjson", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, command.Usage("decisions: %v", err)
	}
	return rows.Contents(name, file, format, 1<<50)
}
