package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [CATEGORY|CHECK]...", Short: "Check the cluster and this machine; a cure for each finding",
		Long: `Check the cluster and this machine. Findings come first, with what to do. It exits with 0 when no
check found an error, 1 when one did, and 2 for wrong usage; with --strict a warning counts as an
error. With -o nagios the status is that of a Nagios plugin: 0, 1 for warnings, 2 for errors.`,
		RunE: examine,
	}
	natsFlag(cmd.Flags())
	command.OutputFlag(cmd.Flags(), "text", "json", "prometheus", "nagios")
	cmd.Flags().Bool("all", false, "show checks that found nothing too")
	cmd.Flags().Bool("list", false, "list the checks by category and end")
	cmd.Flags().Bool("strict", false, "exit with 1 for a warning too")
	cmd.Flags().Bool("local", false, "check this machine only; no cluster is needed")
	return cmd
}

// errFindings ends doctor when a check found an error. The findings are printed before.
var errFindings = errors.New("checks have failed")

func examine(cmd *cobra.Command, only []string) error {
	known := map[string]bool{}
	for _, c := range doctor.Checks() {
		known[c[0]], known[c[1]] = true, true
		if list, _ := cmd.Flags().GetBool("list"); list {
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", c[1], c[0])
		}
	}
	if list, _ := cmd.Flags().GetBool("list"); list {
		return nil
	}
	for _, name := range only {
		if !known[name] {
			return command.Usage("check %q: exoswarm doctor --list shows the checks and categories", name)
		}
	}
	f := &doctor.Facts{}
	if local, _ := cmd.Flags().GetBool("local"); local {
		if len(only) == 0 {
			only = []string{"machine"}
		}
	} else {
		o, err := natsOptions(cmd, nil)
		if err != nil {
			return err
		}
		o.Bare = true // a doctor creates nothing
		c, err := natsq.Connect(cmd.Context(), o)
		if err != nil {
			f.Error = err.Error()
		} else {
			defer c.Close()
			f = doctor.Collect(cmd.Context(), c)
		}
		f.URL = natsconn.Redact(o.URL)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	f.Local = doctor.ReadLocal(dir)
	f.Version, _ = command.Version()
	return writeResults(cmd, doctor.Examine(f, only...))
}

// writeResults writes the results as -o says.
func writeResults(cmd *cobra.Command, all []doctor.Result) error {
	w := cmd.OutOrStdout()
	var err error
	switch format, _ := cmd.Flags().GetString("output"); format {
	case "json":
		err = doctor.WriteJSON(w, all)
	case "prometheus":
		return doctor.WritePrometheus(w, all)
	case "nagios":
		status, err := doctor.WriteNagios(w, all)
		if err == nil && status > 0 {
			err = command.Exit(status)
		}
		return err
	default:
		verbose, _ := cmd.Flags().GetBool("all")
		err = doctor.WriteText(w, all, verbose)
	}
	strict, _ := cmd.Flags().GetBool("strict")
	if worst := doctor.Worst(all); err == nil && (worst == doctor.Failed || strict && worst == doctor.Warn) {
		err = errFindings
	}
	return err
}
