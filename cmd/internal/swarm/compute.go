package swarm

import (
	"bufio"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var computeVerb = cli.Verb{
	Use:   "compute NAME EXPRESSION",
	Short: "Compute means, sums and counts over the agents, as in 'mean(abs(hidden)) by group where vote == 1'",
	Long: `Compute expressions over all agents, where they are; no state is copied out, and
nothing changes. A statement is fold(value) with "by" and "where" behind it, in any order:

  mean(abs(hidden)) by group where vote == 1
  n = count(potential > 0.5) by vote; top = max(potential) by vote
  x := potential * 2; sum(x) where agent % 10 == 0

Folds are sum, mean, min, max, count, any and all, over all elements of the agents for which the
condition holds. by group has a result for each group, by vote for each candidate, and by all, or
nothing, one. Variables are the variables of the cell (docs/cells.md), and the ids agent and
group. vote is the number of a candidate, or 255 for an agent that has never stepped. Values have the
operators and functions of docs/gpu-jobs.md that compute an element of each element.

--out writes the results to a file: .npy for one output, .csv for any.`,
	Lists: true,
	Flags: func(f *pflag.FlagSet) {
		f.String("out", "", "file for the results, .npy or .csv; default: print them")
		f.String("groups", "", "range of groups for an expression by group, as in 100-199; default: all")
		timeoutFlag(f)
	},
	Before: checkCompute, Do: onSwarm(compute),
}

// checkCompute finds what can be wrong with flags and the expression before the connection is made.
func checkCompute(cmd *cobra.Command, args []string) error {
	if err := (swarms.Compute{Text: args[1]}).Validate(); err != nil {
		return command.Usage("swarm %v", err)
	}
	if _, _, err := groups(cmd); err != nil {
		return err
	}
	if out, _ := cmd.Flags().GetString("out"); out != "" && kind(out) == "" {
		return command.Usage("--out %s: use a file that ends with .npy or .csv", out)
	}
	return nil
}

// kind returns the format of a file by its name, empty for none.
func kind(out string) string {
	if e := strings.ToLower(filepath.Ext(out)); e == ".npy" || e == ".csv" {
		return e
	}
	return ""
}

func groups(cmd *cobra.Command) (first, n int, err error) {
	text, _ := cmd.Flags().GetString("groups")
	if text == "" {
		return 0, 0, nil
	}
	from, to, found := strings.Cut(text, "-")
	if !found {
		to = from
	}
	a, err := strconv.ParseUint(from, 10, 31)
	if err == nil {
		var b uint64
		if b, err = strconv.ParseUint(to, 10, 31); err == nil && b >= a {
			return int(a), int(b-a) + 1, nil
		}
	}
	return 0, 0, command.Usage("--groups %s: use a range such as 100-199, or one number", text)
}

// compute prints one item for each node, or writes a file.
//
// Fields: node with group or candidate, and for each output its value, or null for a mean, min or
// max of nothing and for values that are not finite.
func compute(cmd *cobra.Command, s *swarmclient.Swarm) error {
	want := swarms.Compute{Version: jobs.Version, Text: cmd.Flags().Arg(1)}
	var err error
	if want.First, want.Groups, err = groups(cmd); err != nil {
		return err
	}
	out, _ := cmd.Flags().GetString("out")
	c, err := s.Compute(cmd.Context(), want)
	if err != nil {
		return err
	}
	if out != "" {
		if kind(out) == ".npy" && len(c.Outputs) > 1 {
			return command.Usage("--out %s: a .npy file has one output, the text has %d: use .csv", out, len(c.Outputs))
		}
		return write(out, func(w io.Writer) error {
			if kind(out) == ".npy" {
				return numpy.Write(w, resultArray(c))
			}
			return writeCSV(w, c, s)
		})
	}
	return showComputed(cmd, c, s)
}

// node returns the name of a node, and its field.
func node(c *swarmclient.Computed, s *swarmclient.Swarm, i int) (field string, name any) {
	switch c.By {
	case swarms.ByGroup:
		return "group", c.First + i
	case swarms.ByVote:
		return "candidate", s.Candidate(i)
	}
	return "", nil
}

// fields returns the names of the node, if there is one, and of the outputs.
func fields(c *swarmclient.Computed, s *swarmclient.Swarm) (names []string) {
	if field, _ := node(c, s, 0); field != "" {
		names = append(names, field)
	}
	for _, o := range c.Outputs {
		names = append(names, o.Name)
	}
	return names
}

func showComputed(cmd *cobra.Command, c *swarmclient.Computed, s *swarmclient.Swarm) error {
	columns := fields(c, s)
	for i, name := range columns {
		columns[i] = strings.ToUpper(name)
	}
	var rows []cli.Row
	for i := range c.Nodes {
		var cells []any
		item := map[string]any{}
		if field, name := node(c, s, i); field != "" {
			cells, item[field] = append(cells, name), name
		}
		values := map[string]any{}
		for _, o := range c.Outputs {
			cells = append(cells, o.Text(i))
			values[o.Name] = swarmclient.OutputValue(o, i)
		}
		item["values"] = values
		rows = append(rows, cli.NewRow(item, cells...))
	}
	return cli.PrintRows(cmd, columns, rows...)
}

// resultArray returns the results of the only output as an array of f64, i64, u64 or bool. None is
// NaN, and so floats have results of integers that may be none.
func resultArray(c *swarmclient.Computed) *numpy.Array {
	o := c.Outputs[0]
	a := &numpy.Array{Type: "<f8", Shape: []int64{int64(c.Nodes)}}
	whole := o.Kind != "f64"
	for i := range c.Nodes {
		_, exists := o.Number(i)
		whole = whole && exists
	}
	switch {
	case whole && o.Kind == "bool":
		a.Type = "|u1"
	case whole:
		a.Type = map[string]string{"i64": "<i8", "u64": "<u8"}[o.Kind]
	}
	for i := range c.Nodes {
		v, _ := o.Number(i)
		switch a.Type {
		case "|u1":
			a.Data = append(a.Data, byte(v))
		case "<f8":
			a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(v))
		default:
			a.Data = binary.LittleEndian.AppendUint64(a.Data, o.Bits(i))
		}
	}
	return a
}

// writeCSV writes results as CSV with a header. A result that is none is empty.
func writeCSV(w io.Writer, c *swarmclient.Computed, s *swarmclient.Swarm) error {
	out := csv.NewWriter(w)
	head := fields(c, s)
	if err := out.Write(head); err != nil {
		return err
	}
	for i := range c.Nodes {
		row := make([]string, 0, len(head))
		if field, name := node(c, s, i); field != "" {
			row = append(row, fmt.Sprint(name))
		}
		for _, o := range c.Outputs {
			text := o.Text(i)
			if _, exists := o.Number(i); !exists {
				text = ""
			}
			row = append(row, text)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// write makes a file. A failure leaves none.
func write(path string, fill func(w io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			err = fmt.Errorf("--out %s: %w", path, err)
			_ = os.Remove(path)
		}
	}()
	w := bufio.NewWriter(f)
	if err := fill(w); err != nil {
		return err
	}
	return w.Flush()
}
