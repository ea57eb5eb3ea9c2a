package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Group makes a command that only has commands below it. Alone it shows its help, and is an error:
// what to do is missing.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
		return Usage("%s: name a command", cmd.CommandPath())
	}}
	cmd.AddCommand(below...)
	return cmd
}

// fixedValues are what flags of a fixed set of values complete to.
var fixedValues = map[string][]string{
	"progress": {"auto", "plain", "json", "none"}, "log-level": {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
	"pool":       {"cpu", "gpu"}, "lane": {"high", "normal", "low"}, "on-failed-parent": {"fail", "skip", "run"},
	"rule": {"plurality", "majority", "quorum", "unanimous"}, "of": {"cast", "all"}, "priority": {"uniform", "seeded"},
	"by": {"group", "vote", "all"},
}

// tend completes a tree of commands: those with commands below them name the nearest when one is
// not known, and flags of few values complete to them.
func tend(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		cmd.Args = known
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values := fixedValues[f.Name]
		if formats := f.Annotations[outputFormats]; len(formats) > 0 {
			values = formats
		}
		if values != nil {
			// registered before: the command's own stays
			_ = cmd.RegisterFlagCompletionFunc(f.Name,
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, c := range cmd.Commands() {
		tend(c)
	}
}

func known(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cure := cmd.CommandPath() + " --help lists the commands"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		cure = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usage("unknown command %q for %q: %s", args[0], cmd.CommandPath(), cure)
}
