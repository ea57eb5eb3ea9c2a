package gpu

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// circuitCommand returns exoswarm gpu circuit. The text is sent as it is and parsed by the agent,
// whose error has the line and the column.
func circuitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "circuit FILE [--shots N] [--expect ZZII] [--return PART --out A.npy]",
		Short: "Simulate a quantum circuit of OpenQASM",
		Long: `Simulate a quantum circuit of OpenQASM 2 or of a subset of 3 (docs/quantum.md) on a GPU agent. It is
a simulator: it gives no quantum speed-up, and its random numbers are Philox. A FILE.json has the field
gates of the job instead (docs/gpu-jobs.md).

The table has the expectation values and then the readings of each run, the most frequent first. The
last letter of a reading and of a Pauli string is of bit or qubit 0. --explain alone runs nothing.`,
	}
	s := &gpujob.CircuitSpec{}
	f := cmd.Flags()
	f.IntVar(&s.Shots, "shots", 0, "readings of each run")
	f.Uint64Var(&s.Seed, "seed", 0, "seed of the readings")
	f.StringSliceVar(&s.Expect, "expect", nil, "Pauli string with I, X, Y or Z for each qubit; may be repeated")
	f.BoolVar(&s.Explain, "explain", false, "print the passes over the state to the standard error output")
	encoding := f.String("encoding", "", "how the qubits hold --prepare: amplitude, angle or basis")
	prepare := f.String("prepare", "", "file with the numbers that the qubits hold first: f4; empty: all are 0")
	parameters := f.String("parameters", "", "file with a row for each run and a column for each input of the "+
		"circuit: f4 or f8; empty: one run without inputs")
	part := f.String("return", "", "counts, samples, probabilities or state; empty: counts, if there are shots")
	file := f.String("out", "", "file for the array of --return, or for the expectation values if that is counts")
	top := f.Int("top", 20, "readings of each run in the table; 0: all")
	cmd.RunE = prepared(func(_ *cobra.Command, args []string) (*submission, error) {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return nil, command.Usage("%v", err)
		}
		s.Encoding = gpujob.Encoding(*encoding)
		if strings.HasSuffix(args[0], ".json") {
			if err := json.Unmarshal(text, &s.Gates); err != nil {
				return nil, command.Usage("%s: %v: write {\"qubits\": N, \"list\": [...]} (docs/gpu-jobs.md)", args[0],
					err)
			}
		} else {
			s.QASM = string(text)
		}
		if s.Prepare, err = readOptional("--prepare", *prepare); err != nil {
			return nil, err
		}
		if s.Parameters, err = readOptional("--parameters", *parameters); err != nil {
			return nil, err
		}
		array := *part
		if *part != "" {
			s.Return = []string{*part}
		}
		if *part == "" || *part == gpujob.ReturnCounts {
			array = gpujob.ReturnExpect
		}
		if *file != "" && array == gpujob.ReturnExpect && len(s.Expect) == 0 {
			return nil, command.Usage("--out %s: counts have no array: use --expect, or --return samples, "+
				"probabilities or state", *file)
		}
		if *top < 0 {
			return nil, command.Usage("--top %d: use 0 or more", *top)
		}
		out := &gpujob.CircuitOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if s.Explain {
				cmd.PrintErrln(out.Plan)
			}
			// The agent returns what the specification asks for.
			if err := writeArray(cmd, c, *file, out.Arrays()[array]); err != nil {
				return err
			}
			return showCircuit(cmd, r, s, out, *top)
		}}, nil
	})
	return cmd
}

// showCircuit prints a row for each expectation value and each reading. Without any it prints where
// the job ran, as the other kinds do, and so do the formats for programs.
func showCircuit(cmd *cobra.Command, r jobs.Result, s *gpujob.CircuitSpec, out *gpujob.CircuitOutput, top int) error {
	format, _ := cmd.Flags().GetString("output")
	if format != "table" || len(out.Counts) == 0 && len(s.Expect) == 0 {
		return show(cmd, r, out.Ran, "QUBITS", out.Qubits)
	}
	var values []float64
	if len(s.Expect) > 0 {
		// Values that are an object are too many for a table: --out or -o json has them.
		values = gpujob.Decode[float64](out.Expect.Data)
	}
	var rows []cli.Row
	left := 0
	for run := range int(s.Runs()) {
		if len(values) > 0 {
			for i, p := range s.Expect {
				value := values[run*len(s.Expect)+i]
				rows = append(rows, cli.NewRow(nil, run, p, strconv.FormatFloat(value, 'f', 6, 64)))
			}
		}
		if len(out.Counts) == 0 {
			continue
		}
		counts := out.Counts[run]
		readings := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
		})
		if top > 0 && len(readings) > top {
			left += len(readings) - top
			readings = readings[:top]
		}
		for _, reading := range readings {
			rows = append(rows, cli.NewRow(nil, run, reading, counts[reading]))
		}
	}
	if left > 0 {
		cmd.PrintErrf("readings left out: %d (--top 0 shows all)\n", left)
	}
	cmd.PrintErrf("qubits %d, passes %d, norm %.6f: %.6f s on %s by %s, job %s\n", out.Qubits, out.Passes, out.Norm,
		out.Seconds, out.Device, r.Worker, r.JobID)
	return cli.PrintRows(cmd, []string{"RUN", "RESULT", "VALUE"}, rows...)
}
