package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// Group makes a command that only has commands below it. Alone it shows its help, and is an error:
// what to do is missing.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Fprint(cmd.ErrOrStderr(), cmd.UsageString())
		return Usage("name a command: %s --help lists them", cmd.CommandPath())
	}}
	cmd.AddCommand(below...)
	return cmd
}

// Section adds commands to a group, which lists them below a title.
func Section(cmd *cobra.Command, title string, below ...*cobra.Command) {
	cmd.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range below {
		c.GroupID = title
	}
	cmd.AddCommand(below...)
}

// fixedValues are what flags of a fixed set of values complete to.
var fixedValues = map[string][]string{
	"progress": {"auto", "plain", "json", "none"}, "log-level": {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
	"pool":       {"cpu", "gpu"}, "lane": {"high", "normal", "low"}, "on-failed-parent": {"fail", "skip", "run"},
	"rule": {"plurality", "majority", "quorum", "unanimous"}, "of": {"cast", "all"}, "priority": {"uniform", "seeded"},
	"by": {"group", "vote", "all"},
}

// tend completes a tree of commands. Wrong commands, arguments and flags are answered with the
// nearest right ones, and flags of few values complete to them.
func tend(cmd *cobra.Command) {
	switch {
	case cmd.HasSubCommands():
		cmd.Args = known
	case cmd.Args == nil:
		cmd.Args = Arguments(cmd.Use)
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

// synonyms are names of other tools for what a command does. Commands of a set are suggested for
// each other.
var synonyms = [][]string{
	{"get", "show", "describe", "info", "inspect", "view", "status"},
	{"list", "ls", "ps"},
	{"delete", "remove", "rm", "del", "purge", "destroy", "unlimit"},
	{"create", "add", "new", "make", "init", "submit"},
	{"cancel", "stop", "kill", "abort", "pause", "terminate"},
	{"resume", "start", "unpause", "continue"},
	{"watch", "follow", "tail", "wait", "logs", "log"},
	{"retry", "rerun", "repeat", "redrive", "requeue"},
	{"output", "result", "results", "fetch", "download"},
	{"render", "draw", "plot", "picture"},
	{"validate", "check", "lint", "verify"},
	{"serve", "server", "up", "daemon", "dev", "start"},
	{"doctor", "diagnose", "health"},
	{"explain", "why"},
}

// known is the check of the arguments of a command with commands below it.
func known(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name := strings.ToLower(args[0])
	var near []string
	for _, set := range synonyms {
		for _, c := range cmd.Commands() {
			if slices.Contains(set, name) && slices.Contains(set, c.Name()) && !slices.Contains(near, c.Name()) {
				near = append(near, c.Name())
			}
		}
	}
	for most := 1; most <= 2 && len(near) == 0; most++ { // only the nearest
		cmd.SuggestionsMinimumDistance = most
		near = cmd.SuggestionsFor(name)
	}
	if len(near) == 0 { // a command of another noun
		near = named(cmd.Root(), name)
	}
	if len(near) == 0 {
		return Usage("there is no command %q: %s --help lists the commands", args[0], cmd.CommandPath())
	}
	return Usage("there is no command %q: did you mean %s?", args[0], strings.Join(near, " or "))
}

// named returns the paths of the commands below cmd that have a name.
func named(cmd *cobra.Command, name string) (paths []string) {
	for _, c := range cmd.Commands() {
		if c.Name() == name && c.IsAvailableCommand() {
			paths = append(paths, c.CommandPath())
		}
		paths = append(paths, named(c, name)...)
	}
	return paths
}

// Arguments returns the check of arguments that a line of usage describes: the words between the
// name of the command and its first flag. [WORD] may be left out, and WORD... may be repeated.
func Arguments(use string) cobra.PositionalArgs {
	var words []string
	least, many := 0, false
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(strings.TrimLeft(word, "[("), "-") {
			break
		}
		many = many || strings.Contains(word, "...")
		if !strings.HasPrefix(word, "[") {
			least++
		}
		words = append(words, strings.Trim(word, "[]."))
	}
	return func(cmd *cobra.Command, args []string) error {
		usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
		switch {
		case len(args) < least:
			return Usage("%s is missing: write %s", words[len(args)], usage)
		case len(args) > len(words) && !many && len(words) == 0:
			return Usage("%q is one argument too many: %s takes none", args[0], cmd.CommandPath())
		case len(args) > len(words) && !many:
			return Usage("%q is one argument too many: write %s", args[len(words)], usage)
		}
		return nil
	}
}

// flagError returns what is wrong with a flag, and what to write.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var empty *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flags may be right for the command that is meant
		if err := known(cmd, cmd.Flags().Args()); err != nil {
			return err
		}
	}
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return Usage("there is no flag -%s: %s --help lists the flags", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		var all []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				all = append(all, f.Name)
			}
		})
		cure := cmd.CommandPath() + " --help lists the flags"
		near := strictyaml.Nearest(name, all)
		if levenshtein.ComputeDistance(name, near) <= max(2, len(name)/3) || strings.HasPrefix(near, name) {
			cure = "did you mean --" + near + "?"
		}
		return Usage("there is no flag --%s: %s", name, cure)
	case errors.As(err, &empty):
		f := empty.GetFlag()
		kind, usage := pflag.UnquoteUsage(f)
		return Usage("--%s needs a value: write --%s %s: %s", f.Name, f.Name, strings.ToUpper(kind), usage)
	case errors.As(err, &wrong):
		return Usage("--%s %q: %v", wrong.GetFlag().Name, redact.Secrets(wrong.GetValue()),
			valueError(wrong.GetFlag().Value.Type(), wrong.Unwrap()))
	}
	return Usage("%v", err)
}

// valueError returns the reason why a flag of a type refuses a value, with what to write.
func valueError(kind string, err error) error {
	switch {
	case kind == "duration":
		return errors.New("write a number with a unit, as in 500ms, 30s, 5m or 1h30m")
	case kind == "bool":
		return errors.New("use true or false")
	case errors.Is(err, strconv.ErrRange):
		return errors.New("the number is too large, or below 0 where only more is allowed")
	case strings.Contains(kind, "int") && errors.Is(err, strconv.ErrSyntax):
		return errors.New("write a whole number")
	}
	return err
}
