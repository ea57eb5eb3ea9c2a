package gpu

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

func computeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compute EXPRESSION --in x=A.npy [--set a=2.5] [--out y=Y.npy]",
		Short: "Compute an expression over arrays, as in 'sum(sqrt(x*x + y*y))'",
		Long: `Compute an expression over arrays of .npy files, which a GPU agent compiles into few kernels.
Statements have ";" between them: name = value is an output, name := value a name for later,
and a value alone the output out. docs/gpu-jobs.md has the functions. Outputs of one number are
printed; --out writes the others.`,
	}
	f := cmd.Flags()
	in := f.StringArray("in", nil, "NAME=FILE of an array; may be repeated")
	outs := f.StringArray("out", nil, "NAME=FILE for an output, or FILE for the output out; may be repeated")
	set := f.StringToString("set", nil, "NAME=VALUE of a number; may be repeated")
	explain := f.Bool("explain", false, "print the plan to the standard error output")
	cmd.RunE = prepared(func(_ *cobra.Command, args []string) (*submission, error) {
		s := &gpujob.ComputeSpec{
			Expr: args[0], In: map[string]*gpujob.Array{}, Numbers: map[string]float32{}, Explain: *explain,
		}
		for _, text := range *in {
			name, file, found := strings.Cut(text, "=")
			if !found || s.In[name] != nil {
				return nil, command.Usage("--in %s: use NAME=FILE, each name once", text)
			}
			a, err := readArray("--in", file)
			if err != nil {
				return nil, err
			}
			s.In[name] = &a
		}
		for name, text := range *set {
			v, err := dialect.Float(text, 32)
			if err != nil {
				return nil, command.Usage("--set %s=%s: use a number", name, text)
			}
			s.Numbers[name] = float32(v)
		}
		files := map[string]string{}
		for _, text := range *outs {
			name, file, found := strings.Cut(text, "=")
			if !found {
				name, file = "out", text
			}
			files[name] = file
		}
		out := &gpujob.ComputeOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if s.Explain {
				cmd.PrintErr(out.Plan)
			}
			return writeValues(cmd, c, r, out, files)
		}}, nil
	})
	return cmd
}

// writeValues writes the outputs of an expression into files by name, and prints outputs of one
// number.
func writeValues(
	cmd *cobra.Command, c command.JobClient, r jobs.Result, result *gpujob.ComputeOutput, files map[string]string,
) error {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(result.Values)) {
		a := result.Values[name]
		if n, _ := a.Shape.Count(); n == 1 && a.Object == "" {
			texts = append(texts, name+"="+element(&a))
		}
		if err := writeArray(cmd, c, files[name], &a); err != nil {
			return err
		}
		delete(files, name)
	}
	for name := range files {
		return command.Usage("--out %s: the expression has no output of this name", name)
	}
	return show(cmd, r, result.Ran, "VALUES", strings.Join(texts, " "))
}

func element(a *gpujob.Array) string {
	switch a.Type {
	case gpujob.F32:
		return strconv.FormatFloat(float64(gpujob.Decode[float32](a.Data)[0]), 'g', -1, 32)
	case gpujob.I32:
		return strconv.FormatInt(int64(gpujob.Decode[int32](a.Data)[0]), 10)
	case gpujob.U32:
		return strconv.FormatUint(uint64(gpujob.Decode[uint32](a.Data)[0]), 10)
	}
	return strconv.Itoa(int(a.Data[0]))
}
