// Package command is what the commands share: flags with environment variables behind them,
// logging, signals, exit codes, lists, the families of metrics, and a client of the queue
// (JobClient).
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
)

// Exit codes.
const (
	ExitFailure     = 1   // something on the machine or in the cluster failed
	ExitUsage       = 2   // the command line or the input is wrong
	ExitInterrupted = 130 // ended early by a signal, after finishing what was in hand
)

// ErrInterrupted is returned by a command that ended early and in order.
var ErrInterrupted = errors.New("interrupted")

// Usage marks an error of the command line.
func Usage(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInput, format, args...)
}

// Main runs a command and ends the process with its exit code. The first SIGINT or SIGTERM cancels
// the command's context; a second one ends the process at once.
func Main(root *cobra.Command) {
	hideArguments()
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		cancel(fmt.Errorf("%w by %v", ErrInterrupted, s))
		<-signals
		os.Exit(ExitInterrupted)
	}()
	os.Exit(Run(ctx, root, os.Stderr))
}

// Run executes a command and returns its exit code. An error is one sentence on stderr, behind the
// name of the command, or a line of the log with --log-format json.
func Run(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return Environment(cmd.Flags()) }
	plainNumbers(root)
	withVersion(root)
	withHelp(root)
	tend(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, ErrInterrupted) {
		return ExitInterrupted
	}
	if own := exitStatus(0); errors.As(err, &own) {
		return int(own)
	}
	failed(err.Error())
	if format, _ := cmd.Flags().GetString("log-format"); format == "json" {
		slog.New(slog.NewJSONHandler(stderr, nil)).Error(root.Name()+" ends", "error", sentence(err))
	} else {
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), bare(cmd, sentence(err)))
	}
	var e *jobs.Error
	if errors.As(err, &e) && (e.Code == jobs.CodeInput || e.Code == jobs.CodeInvalid || e.Code == jobs.CodeRound) {
		return ExitUsage
	}
	return ExitFailure
}

// maxSentence bounds what a terminal is shown of an error, in bytes. Names in it may have
// megabytes.
const maxSentence = 4096

// sentence is an error as it is shown: without secrets, and without commands to the terminal. Jobs,
// servers and other tenants choose parts of its text.
func sentence(err error) string {
	return redact.Lines(redact.Short(redact.Secrets(err.Error()), maxSentence))
}

// bare returns an error without the name of its command, which stands before it.
func bare(cmd *cobra.Command, text string) string {
	path := cmd.CommandPath()
	for _, name := range []string{path, strings.TrimPrefix(path, cmd.Root().Name()+" "), cmd.Name()} {
		text = strings.TrimPrefix(text, name+": ")
	}
	return text
}

// listAnnotation is the annotation of a flag whose variable takes several values.
const listAnnotation = "exoswarm_list"

// Lists has the variables of these flags, which may be given several times, take several values
// with semicolons between them.
func Lists(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, listAnnotation, []string{"true"}) // it fails for a flag that is not there
	}
}

// valuesOf returns the values of the variable of a flag.
func valuesOf(f *pflag.Flag, v string) (all []string) {
	if f.Annotations[listAnnotation] == nil {
		return []string{v}
	}
	for one := range strings.SplitSeq(v, ";") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// Environment gives each flag that is not on the command line the value of EXOSWARM_NAME, where
// NAME is the flag's name in capitals with _ for -. Flags of Lists take several values.
func Environment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "EXOSWARM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && !f.Changed && f.Name != "help" && f.Name != "version" && err == nil {
			for _, one := range valuesOf(f, v) {
				if e := flags.Set(f.Name, one); e != nil {
					err = Usage("%s=%q: %v", name, redact.Secrets(one), e)
				}
			}
		}
	})
	return err
}

// LogFlags adds the flags of Logger.
func LogFlags(flags *pflag.FlagSet) {
	flags.String("log-level", "info", "debug, info, warn or error")
	flags.String("log-format", "text", "text or json")
	GroupFlags(flags, logFlags, "log-level", "log-format")
}

// SetDefault changes the default of a flag.
func SetDefault(flags *pflag.FlagSet, name, value string) {
	f := flags.Lookup(name)
	f.DefValue = value
	_ = f.Value.Set(value)
}

// Logger makes the logger that the flags ask for, and makes it the process's default: what a
// library writes to package log or to slog has the chosen format too.
func Logger(cmd *cobra.Command) (*slog.Logger, error) {
	log, err := newLogger(cmd)
	if err == nil {
		slog.SetDefault(log)
	}
	return log, err
}

func newLogger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	text, _ := cmd.Flags().GetString("log-level")
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return nil, Usage("--log-level %q: use debug, info, warn or error", text)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: cleanAttr}
	switch format, _ := cmd.Flags().GetString("log-format"); format {
	case "text":
		return slog.New(newRinged(slog.NewTextHandler(cmd.ErrOrStderr(), opts), opts)), nil
	case "json":
		return slog.New(newRinged(slog.NewJSONHandler(cmd.ErrOrStderr(), opts), opts)), nil
	default:
		return nil, Usage("--log-format %q: use text or json", format)
	}
}

// cleanAttr removes the secrets of URLs from what is logged, whoever logs it.
func cleanAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		if text := redact.Lines(redact.Secrets(v.String())); text != v.String() {
			a.Value = slog.StringValue(text)
		}
	case slog.KindAny:
		switch x := v.Any().(type) {
		case error:
			a.Value = slog.StringValue(redact.Lines(redact.Secrets(x.Error())))
		case fmt.Stringer:
			if text := x.String(); redact.Secrets(text) != text {
				a.Value = slog.StringValue(redact.Secrets(text))
			}
		}
	}
	return a
}

// AgentName is the default name of an agent process: host and process id.
func AgentName(kind string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%s-%d", kind, host, os.Getpid())
}

// exitStatus ends a command with a status of its choice.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Exit returns an error that ends the command with a status and writes nothing: the command has
// written what there is to say.
func Exit(status int) error { return exitStatus(status) }

// plainNumbers has all flags of a command and of the commands below it refuse numbers that are not
// decimal. The library of flags reads the numbers of the Go language, where 0100 is 64.
func plainNumbers(cmd *cobra.Command) {
	strict := func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64",
			"float32", "float64":
			if _, is := f.Value.(plainValue); !is {
				f.Value = plainValue{f.Value}
			}
		}
	}
	cmd.LocalFlags().VisitAll(strict)
	cmd.PersistentFlags().VisitAll(strict)
	for _, c := range cmd.Commands() {
		plainNumbers(c)
	}
}

// plainValue is the value of a flag that is a number.
type plainValue struct{ pflag.Value }

// Set implements pflag.Value.
func (v plainValue) Set(text string) error {
	if !dialect.Plain(text) {
		return errors.New("write a number with decimal digits, without leading zeros")
	}
	return v.Value.Set(text)
}
