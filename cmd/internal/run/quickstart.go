package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
)

// Quickstart returns exoswarm quickstart. It needs no file, cluster or network. It shows
// warnings and errors only, unless --log-level asks for more.
func Quickstart() *cobra.Command {
	return cli.Verb{
		Use: "quickstart", Short: "Find the anomalies of an example in one process, and write a report",
		Flags: func(f *pflag.FlagSet) {
			f.String("out", "exoswarm-out", "folder for decisions and report")
			f.String("progress", "auto", "auto, plain, json or none")
			command.LogFlags(f)
			command.SetDefault(f, "log-level", "error")
		},
		Do: cli.Here(quickstart),
	}.Command()
}

// quickstart unpacks the example into a temporary folder, runs it with its labels in this
// process, and ends with the command for the user's own files. It writes decisions and report to
// --out, and replaces files of an earlier quickstart there.
//
// It has the exit code of the run, so that it serves as a test of an installation. The temporary
// folder is removed in every case.
func quickstart(cmd *cobra.Command, _ []string) (err error) {
	out, _ := cmd.Flags().GetString("out")
	progress, _ := cmd.Flags().GetString("progress")
	o := runjob.Options{MaxRejects: rows.MaxRejects}
	if err := setStreams(cmd, &o); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return command.Usage("--out: %v", err)
	}
	// The example is part of the binary. A run reads it from files, as it reads files of a user.
	dir, err := os.MkdirTemp("", "exoswarm-example-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	// The files of the example are removed also after a failed run; an error of that does not hide
	// the first.
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
	o.SpecFile, o.Inputs = filepath.Join(dir, "swarm.yaml"), []string{filepath.Join(dir, "data")}
	// The files appear complete or not at all.
	o.Output, o.Report = filepath.Join(out, "decisions.ndjson"), filepath.Join(out, "report.html")
	o.Labels, o.Progress = filepath.Join(dir, "incidents.json"), progress
	// The run needs no server: without NATS it starts one inside this process.
	if err := runjob.Run(cmd.Context(), o); err != nil {
		return err
	}
	cmd.Println("\nYour own files: exoswarm run -f examples/telemetry/swarm.yaml --input FOLDER --output " +
		"decisions.ndjson --report report.html")
	return nil
}
