package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is the annotation of a flag that help lists in a section of its own.
const flagGroup = "exoswarm_group"

// GroupFlags has help list flags in a section with a title.
func GroupFlags(f *pflag.FlagSet, title string, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, flagGroup, []string{title}) // it fails for a flag that is not there
	}
}

// The titles of sections of flags that several commands have.
const (
	Connection = "Connection"
	logFlags   = "Log"
)

// flagSections returns the flags of a command by section. The first section has no title.
func flagSections(cmd *cobra.Command) (titles []string, sections map[string]*pflag.FlagSet) {
	cmd.InitDefaultHelpFlag()
	titles, sections = []string{""}, map[string]*pflag.FlagSet{"": pflag.NewFlagSet("", pflag.ContinueOnError)}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		title := ""
		if t := f.Annotations[flagGroup]; len(t) > 0 {
			title = t[0]
		}
		if sections[title] == nil {
			titles, sections[title] = append(titles, title), pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		sections[title].AddFlag(f)
	})
	slices.Sort(titles)
	return titles, sections
}

// helpWidth is the width of help, in columns.
const helpWidth = 100

// printUsage writes the usage of a command: its line, the commands below it by group, and its flags
// by section. The usage of cobra has one list of flags.
func printUsage(cmd *cobra.Command, w io.Writer) {
	fmt.Fprint(w, "Usage:\n")
	if !cmd.HasAvailableSubCommands() || strings.Contains(cmd.Use, " ") {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	}
	list := func(title, group string) {
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() {
				continue
			}
			if title != "" {
				fmt.Fprintf(w, "\n%s:\n", title)
				title = ""
			}
			fmt.Fprintf(w, "  %-*s %s\n", cmd.Commands()[0].NamePadding(), c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	rest := "Commands"
	if len(cmd.Groups()) > 0 {
		rest = "Other commands"
	}
	list(rest, "")
	titles, sections := flagSections(cmd)
	for _, title := range titles {
		if text := sections[title].FlagUsagesWrapped(helpWidth); text != "" {
			name := "Flags"
			if title != "" {
				name = title + " flags"
			}
			fmt.Fprintf(w, "\n%s:\n%s", name, text)
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help describes a command.\n", cmd.CommandPath())
	}
}

// printHelp writes the first line of a command, what it does in detail, and its usage.
func printHelp(cmd *cobra.Command, w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n", cmd.Short)
	if long := detail(cmd); long != "" {
		fmt.Fprintf(w, "%s\n\n", long)
	}
	printUsage(cmd, w)
}

// detail returns what is to say of a command behind its first line.
func detail(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.Long, cmd.Short+"."))
}

// withHelp gives a tree of commands its help, and the command man.
func withHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(cmd, cmd.OutOrStdout()) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { printUsage(cmd, cmd.OutOrStderr()); return nil })
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Use, c.Short, c.Long = "help [COMMAND]...", "Describe a command", ""
			c.Run, c.RunE = nil, func(cmd *cobra.Command, args []string) error {
				at, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return known(at, rest)
				}
				printHelp(at, cmd.OutOrStdout())
				return nil
			}
		case "completion":
			c.Short, c.Long = "Write a script with which the shell completes commands, flags and names", ""
			c.RunE = Group("", "").RunE
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of all commands into a folder", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error { return manPages(root, args[0]) },
	})
}

// manPages writes a page of section 1 for a command and each command below it. Pages have no date,
// so that packages can be built again byte by byte.
func manPages(cmd *cobra.Command, dir string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	var b strings.Builder
	number, _ := Version()
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(name),
		cmd.Root().Name()+" "+number, roff(name), roff(cmd.Short), roff(cmd.UseLine()))
	if long := detail(cmd); long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(long))
	}
	titles, sections := flagSections(cmd)
	for _, title := range titles {
		if !sections[title].HasAvailableFlags() {
			continue
		}
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(strings.TrimSpace(title+" options")))
		sections[title].VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			kind, usage := pflag.UnquoteUsage(f)
			short := ""
			if f.Shorthand != "" {
				short = "-" + f.Shorthand + ", "
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(short+"--"+f.Name+" "+kind)), roff(usage))
		})
	}
	below := slices.DeleteFunc(cmd.Commands(), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	if len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, c := range below {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(name+"-"+c.Name()+"(1)"), roff(c.Short))
		if err := manPages(c, dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Usage("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(b.String()), 0o644); err != nil {
		return Usage("%v", err)
	}
	return nil
}

// roff escapes a text for a manual page. Empty lines begin paragraphs.
func roff(text string) string {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(text, `\`, `\e`)), "\n")
	for i, l := range lines {
		l = strings.ReplaceAll(l, "-", `\-`)
		switch {
		case l == "":
			l = ".PP"
		case strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'"):
			l = `\&` + l
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n")
}
