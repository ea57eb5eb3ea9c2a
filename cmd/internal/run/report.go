package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// Report returns exoswarm report. It needs no cluster.
func Report() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report DECISIONS --output FILE.html",
		Short: "Make the report of decisions that a run has written",
		Long: `Make the page that run --report makes, from the decisions of a run or of detect --all. DECISIONS is
NDJSON, also packed (.gz, .zst), or - for standard input. The first row names the columns of the
key and the features. With --labels the page shows which labelled incidents were found.

The page opens offline: incidents of all entities over time, entities by their incidents, and a chart
of each, with expected bands if the run explained its decisions (explain: true).`,
		RunE: write,
	}
	f := cmd.Flags()
	f.StringP("output", "o", "", "file for the page, or - for standard output; empty: beside DECISIONS, with the "+
		"extension .html")
	f.String("labels", "", "JSON file with a list of labelled incidents; see Labels in docs/sources.md")
	f.String("title", "", "title of the page; empty: the name of DECISIONS")
	f.String("anomalous", "anomalous", "decision that begins an incident")
	f.String("normal", "normal", "decision that ends an incident")
	return cmd
}

func write(cmd *cobra.Command, args []string) (err error) {
	f := cmd.Flags()
	output, _ := f.GetString("output")
	title, _ := f.GetString("title")
	name, file := "decisions", args[0]
	if file == "-" {
		if output == "" {
			return command.Usage("--output is missing: name a file for the page")
		}
		// The decisions are read more than once.
		if file, err = spool(cmd.InOrStdin()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Remove(file)) }()
	} else {
		name = filepath.Base(file)
		if stem, ok := rows.CutFormat(name); ok {
			name = stem
		}
	}
	if output == "" {
		output = filepath.Join(filepath.Dir(file), name+".html")
	}
	anomalous, _ := f.GetString("anomalous")
	var h report.Header
	page := func(w io.Writer) error {
		in, err := open(file)
		if err != nil {
			return err
		}
		defer in.Close()
		scanned, series, err := report.Scan(in, anomalous)
		if err != nil {
			return command.Usage("report: %s: %v", args[0], err)
		}
		h = scanned
		if h.Title = title; title == "" {
			h.Title = name
		}
		h.Normal, _ = f.GetString("normal")
		if labels, _ := f.GetString("labels"); labels != "" {
			if h.Labels, err = compare(labels, file, &h); err != nil {
				return err
			}
		}
		again, err := open(file)
		if err != nil {
			return err
		}
		defer again.Close()
		return report.Write(w, h, again, series)
	}
	if userfile.IsStdout(output) {
		return page(cmd.OutOrStdout())
	}
	if err := userfile.WriteFile(output, page); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %s\nreport     %s\n",
		command.Count(h.Result.Decisions, "decision", "decisions"),
		command.Count(h.Result.Anomalies, "anomaly", "anomalies"), output)
	return err
}

func compare(labels, file string, h *report.Header) (*report.Outcome, error) {
	data, err := os.ReadFile(labels)
	if err != nil {
		return nil, command.Usage("--labels: %v", err)
	}
	all, err := report.ParseLabels(data)
	if err != nil {
		return nil, command.Usage("--labels %s: %v", labels, err)
	}
	in, err := open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return report.Compare(all, h.Anomaly, h.Keys, in)
}

func open(file string) (io.ReadCloser, error) {
	format, _ := rows.FormatOf(file, "ndjson")
	if kind, _, err := format.Split(); err != nil || kind != "ndjson" {
		return nil, command.Usage("report: %s: decisions are read as NDJSON: write them with run --output FILE.ndjson",
			file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, command.Usage("report: %v", strings.TrimPrefix(err.Error(), "open "))
	}
	return rows.Contents(file, f, format, 1<<50)
}

// spool copies standard input to a temporary file, which the caller removes.
func spool(from io.Reader) (name string, err error) {
	f, err := os.CreateTemp("", "exoswarm-report-*")
	if err != nil {
		return "", fmt.Errorf("temporary file: %w", err)
	}
	_, err = io.Copy(f, from)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("read the decisions: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
