package swarm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/specdoc"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// Specs returns exoswarm spec. Its commands need no cluster.
func Specs() *cobra.Command {
	return cli.Noun{Use: "spec", Short: "Propose, check and explain specifications of swarms", Verbs: []cli.Verb{
		{
			Use: "init [--sample FILE]", Short: "Propose a specification for a file of rows",
			Long: `Propose a specification. With --sample the columns of the file decide: which has times, which have
numbers, which one tells entities apart, and how a CSV file is written. Up to 200,000 rows of the file
are then read with the proposal, and what was read is printed on standard error. Without --sample, in a
terminal, the command asks.

FILE is CSV, NDJSON, Parquet or Arrow by its extension, and may be packed (.csv.gz, .ndjson.zst).`,
			Flags: func(f *pflag.FlagSet) {
				f.String("sample", "", "file of rows")
				f.String("name", "", "name of the swarm; empty: the name of the file")
				f.String("timestamp", "", "column with the time of a row; empty: found in the sample")
				f.StringSlice(
					"features",
					nil,
					"columns with numbers, with commas between them; empty: found in the sample",
				)
				f.StringSlice("key", nil, "columns that tell entities apart; empty: found in the sample")
				f.Bool("no-key", false, "a file is one entity")
				f.StringP("output", "o", "-", "file for the specification, which must not exist; - for standard output")
			},
			Do: cli.Here(propose),
		},
		{
			Use: "validate FILE...", Short: "Check specifications; the error names the line and a cure",
			Do: cli.Here(validate),
		},
		{
			Use:   "explain FILE",
			Short: "Print a specification with all defaults filled in, and the memory that it takes",
			Do:    cli.Here(explain),
		},
		{
			Use: "schema", Short: "Print the JSON schema of specifications, for editors",
			Do: cli.Here(func(cmd *cobra.Command, _ []string) error {
				data, err := specdoc.Schema()
				if err == nil {
					_, err = cmd.OutOrStdout().Write(data)
				}
				return err
			}),
		},
		{
			Use: "keys [KEY|CELL]", Short: "Describe the keys of specifications and the parameters of cells",
			Long: `Describe each key of a specification, with its type, range and default, and the parameters of each
cell. With a key, such as vote, only that one and those below it, and with a cell its parameters.`,
			Do: cli.Here(func(cmd *cobra.Command, args []string) error {
				about := strings.Join(args, "")
				text, ok := specdoc.Reference(about)
				if !ok {
					return command.Usage("there is no key and no cell %q: exoswarm spec keys lists all", about)
				}
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}),
		},
	}}.Command()
}

// propose writes a specification for a sample, or for what the user answers.
func propose(cmd *cobra.Command, _ []string) error {
	f := cmd.Flags()
	file, _ := f.GetString("sample")
	output, _ := f.GetString("output")
	var c userfile.SpecChoice
	c.Name, _ = f.GetString("name")
	c.Timestamp, _ = f.GetString("timestamp")
	c.Features, _ = f.GetStringSlice("features")
	c.Key, _ = f.GetStringSlice("key")
	c.NoKey, _ = f.GetBool("no-key")
	if c.NoKey && len(c.Key) > 0 {
		return command.Usage("--key and --no-key contradict each other: give one of them")
	}
	if output != "-" {
		if _, err := os.Lstat(output); err == nil {
			return command.Usage("%s exists: give another --output, or remove it", output)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return command.Usage("output: %v", err)
		}
	}
	var text string
	if file == "" {
		in, ok := cmd.InOrStdin().(*os.File)
		if !ok || !term.IsTerminal(int(in.Fd())) {
			return command.Usage("give a file of rows with --sample, or use a terminal to answer questions")
		}
		if err := ask(in, cmd.ErrOrStderr(), &c); err != nil {
			return err
		}
		text = userfile.SpecText(c)
	} else {
		p, err := userfile.ProposeSpec(cmd.Context(), file, c)
		if err != nil {
			return err
		}
		text = p.Text
		report(cmd.ErrOrStderr(), file, p)
	}
	if output == "-" {
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	if err := renameio.WriteFile(output, []byte(text), 0o666); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	return nil
}

// report says what a proposal reads of its sample.
func report(w io.Writer, file string, p *userfile.SpecProposal) {
	fmt.Fprintf(w, "%s: %d rows read, %d rejected", file, p.Rows+p.Rejected, p.Rejected)
	if p.Entities > 0 {
		fmt.Fprintf(w, ", %d entities", p.Entities)
	}
	fmt.Fprintln(w)
	if p.Reason != "" {
		fmt.Fprintf(w, "the first reject: %s\n", p.Reason)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, n)
	}
}

// ask asks for what a sample would say. An empty answer takes the proposal in brackets.
func ask(from io.Reader, to io.Writer, c *userfile.SpecChoice) error {
	in := bufio.NewScanner(from)
	question := func(text, proposed string) (string, error) {
		fmt.Fprintf(to, "%s [%s]: ", text, proposed)
		if !in.Scan() {
			return "", errors.Join(command.Usage("no answer: give --sample FILE"), in.Err())
		}
		if answer := strings.TrimSpace(in.Text()); answer != "" {
			return answer, nil
		}
		return proposed, nil
	}
	var err error
	if c.Name == "" {
		if c.Name, err = question("Name of the swarm", "swarm"); err != nil {
			return err
		}
	}
	if c.Timestamp == "" {
		if c.Timestamp, err = question("Column with the time of a row", "timestamp"); err != nil {
			return err
		}
	}
	if len(c.Features) == 0 {
		answer, err := question("Columns with numbers, with commas between them", "value")
		if err != nil {
			return err
		}
		c.Features = columns(answer)
	}
	if len(c.Key) == 0 && !c.NoKey {
		answer, err := question("Columns that tell entities apart, none if a file is one entity", "none")
		if err != nil {
			return err
		}
		if answer != "none" {
			c.Key = columns(answer)
		}
	}
	return nil
}

// columns returns the names of a list with commas.
func columns(list string) (names []string) {
	for n := range strings.SplitSeq(list, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}

// validate reports on each file. It fails if one is not valid.
func validate(cmd *cobra.Command, files []string) error {
	var wrong []error
	for _, file := range files {
		spec, err := userfile.ReadSpec(file)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: valid: swarm %s, %d agents of the cell %s a group\n", file, spec.Name,
			spec.AgentsPerGroup, spec.Cell.Kind)
	}
	return errors.Join(wrong...)
}

func explain(cmd *cobra.Command, files []string) error {
	spec, err := userfile.ReadSpec(files[0])
	if err != nil {
		return err
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return command.Usage("swarm spec: %v", err)
	}
	text, err := specdoc.Explain(spec, data)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text)
	return err
}
