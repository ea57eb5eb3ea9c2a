// Package cli makes the commands of exoswarm from tables. A noun has verbs; a verb says what it
// reaches, which flags it has and whether it prints a list. A table says how the things of a noun
// are printed.
//
// A command runs in this order. Package command sets flags that are not given from the environment.
// PreRunE checks -o and what else can be checked without a server. The action of the verb connects:
// with tracing, with the end of the command when its server is lost, and with a bounded end after
// an interrupt. Then its function runs, with a context that ends with a signal or with the loss of
// the server. Changes of the cluster are recorded in the audit (Operate, Recorded).
package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// Noun is a group of commands about one kind of thing.
type Noun struct {
	Use, Short string
	// Names completes the first argument of verbs that have no Names of their own.
	Names Names
	Verbs []Verb
}

// Command returns the command of the noun, which has the commands of its verbs.
func (n Noun) Command() *cobra.Command {
	return command.Group(n.Use, n.Short, n.Commands()...)
}

// Commands returns the commands of the verbs, for a noun whose command does something by itself.
func (n Noun) Commands() (all []*cobra.Command) {
	for _, v := range n.Verbs {
		name, first, _ := strings.Cut(v.Use, " ")
		takes := first != "" && first[0] != '-' && name != "create" && name != "add" // a new name
		if v.Names == nil && takes {
			v.Names = n.Names
		}
		all = append(all, v.Command())
	}
	return all
}

// Verb is a row of the table of a noun, or a command without a noun.
type Verb struct {
	Use, Short, Long string
	// Args checks the arguments; nil: as Use has them, see command.Arguments.
	Args cobra.PositionalArgs
	// Lists adds -o with the formats of lists.
	Lists bool
	// Flags adds the flags of the command itself.
	Flags func(f *pflag.FlagSet)
	// Before checks flags before Do connects.
	Before func(cmd *cobra.Command, args []string) error
	Do     Action
	// Names completes the first argument.
	Names Names
}

// Action is what a command does.
type Action struct {
	// Flags adds the flags of what the action reaches.
	Flags func(f *pflag.FlagSet)
	Run   func(cmd *cobra.Command, args []string) error
}

// Here is an action that connects to nothing.
func Here(run func(cmd *cobra.Command, args []string) error) Action {
	return Action{func(*pflag.FlagSet) {}, run}
}

// Command returns the command of a verb.
func (v Verb) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use: v.Use, Short: v.Short, Long: v.Long, Args: v.Args, PreRunE: v.Before, RunE: v.Do.Run,
	}
	if v.Args == nil {
		cmd.Args = command.Arguments(v.Use)
	}
	if v.Flags != nil {
		v.Flags(cmd.Flags())
	}
	v.Do.Flags(cmd.Flags())
	if v.Lists {
		command.ListFlag(cmd.Flags())
	}
	if v.Names != nil {
		cmd.ValidArgsFunction = v.Names.complete
	}
	return cmd
}

// CheckOutput makes every command check the value of -o before it connects: a wrong value must not
// change anything first. It is applied after all commands are added, and keeps their PreRunE.
func CheckOutput(cmd *cobra.Command) {
	if cmd.Flags().Lookup("output") != nil {
		before := cmd.PreRunE
		cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
			if err := command.CheckOutput(cmd.Flags()); err != nil || before == nil {
				return err
			}
			return before(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		CheckOutput(c)
	}
}
