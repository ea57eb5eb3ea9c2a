package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/examples/telemetry"
	"github.com/exoswarm/exoswarm/internal/command"
)

func quickstartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Run the example swarm over its labelled data, all in this process",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return quickstart(cmd) },
	}
	f := cmd.Flags()
	f.String("out", "exoswarm-out", "folder for what it writes")
	f.String("progress", "auto", "auto, plain, json or none")
	command.LogFlags(f)
	command.SetDefault(f, "log-level", "error")
	return cmd
}

func quickstart(cmd *cobra.Command) (err error) {
	out, _ := cmd.Flags().GetString("out")
	progress, _ := cmd.Flags().GetString("progress")
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return command.Usage("--out: %v", err)
	}
	// The example travels inside the binary; the swarm reads it from files, as it would a user's
	// own.
	dir, err := os.MkdirTemp("", "exoswarm-example-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	defer func() {
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
	}()
	if err := os.CopyFS(dir, telemetry.Files); err != nil {
		return fmt.Errorf("unpack the example: %w", err)
	}
	names, err := fs.Glob(telemetry.Files, "data/*.csv")
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d generated series with labelled incidents; a group of agents watches each\n",
		len(names))
	err = run(cmd, runOptions{
		specFile: filepath.Join(dir, "swarm.yaml"), inputs: []string{filepath.Join(dir, "data")},
		output: filepath.Join(out, "decisions.ndjson"), report: filepath.Join(out, "report.html"),
		labels: filepath.Join(dir, "incidents.json"), progress: progress, log: log,
	})
	if err != nil {
		return err
	}
	cmd.Println("\nYour own files: exoswarm run -f examples/telemetry/swarm.yaml --input FOLDER --output " +
		"decisions.ndjson --report report.html")
	return nil
}
