package cluster

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Doctor returns exoswarm doctor. It changes nothing in the cluster. It also works without a
// cluster, because an unreachable server is one of its findings. Each check says what to do;
// package doctor has them.
func Doctor() *cobra.Command {
	return cli.Verb{
		Use: "doctor [CATEGORY|CHECK]...", Short: "Check the cluster and this machine; a cure for each finding",
		Long: `Check the cluster and this machine. Findings come first, with what to do. It exits with 0 when no
check found an error, 1 when one did, and 2 for wrong usage; with --strict a warning counts as an
error. With -o nagios the status is as for a Nagios plugin: 0, 1 for warnings, 2 for errors.`,
		Flags: func(f *pflag.FlagSet) {
			command.OutputFlag(f, "text", "json", "prometheus", "nagios")
			f.Bool("all", false, "show checks that found nothing too")
			f.Bool("list", false, "list the checks by category and end")
			f.Bool("strict", false, "exit with 1 for a warning too")
			f.Bool("local", false, "check this machine only; no cluster is needed")
			f.String("bundle", "", "check the cluster as a file of exoswarm debug bundle has it")
		},
		Do: cli.Link(examine),
	}.Command()
}

// errFindings ends doctor when a check found an error. The findings are printed before.
var errFindings = errors.New("checks have failed")

// examine collects the facts and prints the results of the checks in only, or of all checks. The
// facts come from a bundle, from this machine alone, or from the cluster and this machine. Names
// are checked first, so that an unknown check connects to nothing.
func examine(cmd *cobra.Command, only []string) error {
	known := map[string]bool{}
	for _, c := range doctor.Checks() {
		// Checks and categories share one space of names.
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
	if file, _ := cmd.Flags().GetString("bundle"); file != "" {
		f, err := readBundle(file)
		if err != nil {
			return err
		}
		return writeResults(cmd, doctor.Examine(f, only...))
	}
	f := &doctor.Facts{}
	if local, _ := cmd.Flags().GetBool("local"); local {
		// Without a cluster all other checks would be skipped.
		if len(only) == 0 {
			only = []string{"machine"}
		}
	} else {
		o, err := cli.Options(cmd, nil)
		if err != nil {
			return err
		}
		o.Bare = true // a doctor creates nothing
		c, err := natsq.Connect(cmd.Context(), o)
		if err != nil {
			// The check nats-reachable turns the error into a finding.
			f.Error = err.Error()
		} else {
			defer c.Close()
			f = doctor.Collect(cmd.Context(), c)
		}
		// The facts may be shown and stored, so the URL loses its login.
		f.URL = natsconn.Redact(o.URL)
	}
	// The disk of the working folder is checked.
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	f.Local = doctor.ReadLocal(dir)
	f.Version, _ = command.Version()
	return writeResults(cmd, doctor.Examine(f, only...))
}

// writeResults writes the results in the format of -o. Its error gives the exit code: errFindings
// after an error of a check, or after a warning with --strict. With nagios the status of the
// results is the exit code, and prometheus leaves the judgement to its reader.
func writeResults(cmd *cobra.Command, all []doctor.Result) error {
	w := cmd.OutOrStdout()
	var err error
	switch format, _ := cmd.Flags().GetString("output"); format {
	case "json":
		err = doctor.WriteJSON(w, all)
	case "prometheus":
		// A text file collector keeps the old file if the command fails, so findings are no failure
		// here.
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

// readBundle reads the facts of a bundle. A file that is missing or is no bundle is an error of
// usage.
func readBundle(name string) (*doctor.Facts, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, command.Usage("--bundle: %v", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, command.Usage("--bundle: %v", err)
	}
	f, err := doctor.BundleFacts(file, info.Size())
	if errors.Is(err, doctor.ErrBundle) {
		return nil, command.Usage("--bundle %s: %v", name, err)
	}
	return f, err
}

// Debug returns exoswarm debug, whose commands write a bundle and a trace.
func Debug() *cobra.Command {
	const short = "Collect what is needed to understand a problem"
	return cli.Noun{Use: "debug", Short: short, Names: agentNames, Verbs: []cli.Verb{
		{
			Use: "bundle", Short: "Write what is needed to understand a problem into one file",
			Long: `Write a file with profiles, metrics, logs and stacks of all agents, the newest dead letters, the
state of the cluster and the results of the doctor. It holds no specs, rows, results or credentials.
It needs the login of an operator. For a missing part the file has the reason.`,
			Flags: func(f *pflag.FlagSet) {
				f.StringP("output", "o", "exoswarm-bundle.zip", "file to write; it must not exist")
				f.Duration("for", 10*time.Second, "length of the CPU profiles, up to 60s; 0 for none")
				f.Int64("max", 64, "most MiB before compression; what does not fit is left out")
				f.StringSlice("agents", nil, "names of the agents to ask; all without it")
				f.Bool("lite", false, "leave out profiles")
			},
			Do: cli.Queue(writeBundle),
		},
		{
			Use: "trace AGENT", Short: "Write the stages of the last batches of a GPU agent as a Chrome trace",
			Long: `Write when a GPU agent fetched, decoded, paged in, uploaded, computed, read back and appended its
last batches, as a trace for https://ui.perfetto.dev or chrome://tracing. An agent keeps the last
4,096 stages. A viewer's login is enough.`,
			Flags: func(f *pflag.FlagSet) {
				f.StringP("output", "o", "exoswarm-trace.json", "file to write; it must not exist; - for the terminal")
				f.Duration("last", time.Minute, "length of the past, up to 10m")
			},
			Do: cli.Queue(writeTrace),
		},
	}}.Command()
}

// writeBundle writes a bundle into a new file that only its owner can read. It never replaces a
// file, and removes its own after an error. Parts that are missing are no error: the bundle has
// their reasons, and stderr their number.
func writeBundle(cmd *cobra.Command, _ []string, c *natsq.Conn) (err error) {
	name, _ := cmd.Flags().GetString("output")
	length, _ := cmd.Flags().GetDuration("for")
	most, _ := cmd.Flags().GetInt64("max")
	o := doctor.BundleOptions{Profile: length, Max: most << 20}
	o.Agents, _ = cmd.Flags().GetStringSlice("agents")
	o.Lite, _ = cmd.Flags().GetBool("lite")
	o.Version, _ = command.Version()
	switch {
	case length < 0 || length > time.Minute:
		return command.Usage("--for %v: use 0 to 60s", length)
	case most < 1 || most > 1024:
		return command.Usage("--max %d: use 1 to 1024 MiB", most)
	}
	// 0600: the logs and profiles are for the people who solve the problem.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return command.Usage("--output: %v", err)
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	m, err := doctor.WriteBundle(cmd.Context(), file, doctor.BundleOver(c), o)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d files, %d parts are missing\n", name, len(m.Files), len(m.Missing))
	return nil
}
