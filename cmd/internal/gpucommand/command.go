// Package gpucommand is the group of commands exoswarm gpu: they submit a job of pool gpu with
// arrays of .npy files, wait for its result, and write its arrays as .npy files.
//
// Each command does the same steps in the same order: it reads and checks the files, submits the
// job, waits, writes the files of the output, and prints one item. Nothing is submitted before all
// inputs are read, and no file is created before the job is done. A command that ends early leaves
// the job in the queue; exoswarm job get shows its result. package gpujob has the rules of each
// kind, which are checked here and again by the agent.
package gpucommand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Submitting makes the RunE of a command from a function that needs a client of jobs. It connects
// before it calls the function, and closes the connection after it.
type Submitting func(fn func(cmd *cobra.Command, args []string, c command.JobClient) error) func(*cobra.Command,
	[]string) error

// maxInput bounds the bytes of the elements of one file. Inputs travel inside the specification of
// the job, which has at most jobs.MaxSpec bytes; base64 makes 4 bytes of 3. Larger inputs must be
// objects, which these commands do not upload.
const maxInput = jobs.MaxSpec / 4 * 3

// Command returns the group. connect makes the RunE of each command, and natsFlags adds the flags
// that it needs. Every command exits with the codes of package command: an argument that cannot be
// used is an error of usage, found before a job exists, and a failed job gives the code of its
// error.
func Command(connect Submitting, natsFlags func(*pflag.FlagSet)) *cobra.Command {
	all := []*cobra.Command{
		runCommand(connect), reduceCommand(connect), sortCommand(connect), histogramCommand(connect),
		tallyCommand(connect), fuseCommand(connect), gemmCommand(connect), allreduceCommand(connect),
		chainCommand(connect), computeCommand(connect),
	}
	for _, c := range all {
		c.Args = cobra.NoArgs
		f := c.Flags()
		natsFlags(f)
		command.ListFlag(f)
		f.String("id", "", "id of the job; empty: a new one")
		f.String("tenant", jobs.DefaultTenant, "tenant whose limits the job counts against")
		f.Duration("timeout", 0, "longest wait for the result; 0: no limit. The job continues afterwards")
	}
	// gpu run has the file of the kernel as its argument, and gpu compute the expression.
	all[0].Args, all[len(all)-1].Args = cobra.ExactArgs(1), cobra.ExactArgs(1)
	return command.Group("gpu", "Execute jobs on GPU agents, with arrays of .npy files", all...)
}

// reduceCommand returns exoswarm gpu reduce. The array has f4, f8, i4, i8 or u4 elements and any
// shape. The result is printed as text, since a sum of integers may have more than 64 bits; it has
// no file.
func reduceCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{Use: "reduce --in A.npy --op OP", Short: "Print the sum, min, max or mean of an array"}
	in := cmd.Flags().String("in", "", "the array")
	op := cmd.Flags().String("op", gpujob.OpSum, "sum, min, max or mean")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (*submission, error) {
		a, err := readArray("--in", *in)
		if err != nil {
			return nil, err
		}
		out := &gpujob.ReduceOutput{}
		s := &gpujob.ReduceSpec{Op: *op, In: a}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			return show(cmd, r, out.Ran, "VALUE", out.Text)
		}}, nil
	})
	return cmd
}

// sortCommand returns exoswarm gpu sort. The array has one dimension. Equal elements keep their
// order, and NaN comes last in both directions. Without --out nothing is written, and the command
// prints the number of elements.
func sortCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{Use: "sort --in A.npy --out B.npy", Short: "Sort an array"}
	f := cmd.Flags()
	in, file := f.String("in", "", "the array, of one dimension"), f.String("out", "", "file for the sorted array")
	indices := f.String("indices", "", "file for the place that each element had; empty: none")
	descending := f.Bool("descending", false, "the largest first")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (*submission, error) {
		a, err := readArray("--in", *in)
		if err != nil {
			return nil, err
		}
		out := &gpujob.SortOutput{}
		s := &gpujob.SortSpec{In: a, Descending: *descending, Indices: *indices != ""}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if err := writeArray(cmd, c, *file, &out.Sorted); err != nil {
				return err
			}
			if out.Indices != nil {
				if err := writeArray(cmd, c, *indices, out.Indices); err != nil {
					return err
				}
			}
			return show(cmd, r, out.Ran, "ELEMENTS", out.Sorted.Shape[0])
		}}, nil
	})
	return cmd
}

// histogramCommand returns exoswarm gpu histogram. The file of --out has the counts as u8, one for
// each bin. The last bin includes --max. The column OUTSIDE is the number of elements that are in
// no bin, NaN included.
func histogramCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "histogram --in A.npy --bins N --min MIN --max MAX --out COUNTS.npy",
		Short: "Count the elements of an array by bins of equal width",
	}
	f := cmd.Flags()
	in, file := f.String("in", "", "the array"), f.String("out", "", "file for the counts")
	bins := f.Int("bins", 10, "number of bins")
	low, high := f.Float64("min", 0, "lower end of the first bin"), f.Float64("max", 1, "upper end of the last bin")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (*submission, error) {
		a, err := readArray("--in", *in)
		if err != nil {
			return nil, err
		}
		out := &gpujob.HistogramOutput{}
		s := &gpujob.HistogramSpec{In: a, Bins: *bins, Min: *low, Max: *high}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if err := writeArray(cmd, c, *file, &out.Counts); err != nil {
				return err
			}
			return show(cmd, r, out.Ran, "OUTSIDE", out.Below+out.Above+out.NaN)
		}}, nil
	})
	return cmd
}

// allreduceCommand returns exoswarm gpu allreduce.
func allreduceCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allreduce --in A.npy --in B.npy --out SUM.npy",
		Short: "Add arrays element by element on all devices of an agent",
	}
	f := cmd.Flags()
	in := f.StringArray("in", nil, "file of an array; may be repeated")
	file := f.String("out", "", "file for the sum")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (*submission, error) {
		s := &gpujob.AllreduceSpec{In: make([]gpujob.Array, len(*in))}
		for i, name := range *in {
			var err error
			if s.In[i], err = readArray("--in", name); err != nil {
				return nil, err
			}
		}
		out := &gpujob.AllreduceOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if err := writeArray(cmd, c, *file, &out.Sum); err != nil {
				return err
			}
			return show(cmd, r, out.Ran, "DEVICES", out.Devices)
		}}, nil
	})
	return cmd
}

// tallyCommand returns exoswarm gpu tally. Weights and priorities have one element for each ballot.
// A round without a winner is a result, and not an error: the column WINNER is none then. The
// counts are in the item of -o json.
func tallyCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{Use: "tally --in BALLOTS.npy --candidates N --rule RULE", Short: "Decide a round of votes"}
	f := cmd.Flags()
	in := f.String("in", "", "the ballots: u1, a candidate for each agent; 255 abstains")
	candidates := f.Int("candidates", 2, "number of candidates, 1 to 256")
	rule := f.String("rule", "plurality", `plurality, majority, weighted, unanimous or "quorum 2/3"; "of all" counts `+
		"abstentions against")
	weights := f.String("weights", "", "file with a weight for each ballot: u1, u4 or f4; empty: 1")
	priorities := f.String("priorities", "", "file with the priority of each agent to lead: u4; empty: agent 0 leads")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (_ *submission, err error) {
		s := &gpujob.TallySpec{Candidates: *candidates, Rule: *rule}
		if s.Ballots, err = readArray("--in", *in); err != nil {
			return nil, err
		}
		if s.Weights, err = readOptional("--weights", *weights); err != nil {
			return nil, err
		}
		if s.Priorities, err = readOptional("--priorities", *priorities); err != nil {
			return nil, err
		}
		out := &gpujob.TallyOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			// The winner is the number of a candidate, from 0.
			winner := "none"
			if out.Winner != nil {
				winner = fmt.Sprint(*out.Winner)
			}
			return show(cmd, r, out.Ran, "WINNER", winner)
		}}, nil
	})
	return cmd
}

// fuseCommand returns exoswarm gpu fuse. The file of --out has a row of f4 for each node. Weights
// and counts of the nodes are in the item of -o json; only the means have a file. The column FUSED
// is the number of agents that were fused.
func fuseCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fuse --in EMBEDDINGS.npy --members MEMBERS.npy --nodes N --out MEANS.npy",
		Short: "Fuse embeddings into nodes",
	}
	f := cmd.Flags()
	in := f.String("in", "", "the embeddings: f4, a row for each agent")
	members := f.String("members", "", "the node of each agent: u4")
	nodes := f.Int("nodes", 1, "number of nodes")
	weights := f.String("weights", "", "file with the weight of each agent in units of 1/65536: u4; empty: 1")
	file := f.String("out", "", "file for the means of the nodes")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (_ *submission, err error) {
		s := &gpujob.FuseSpec{Nodes: *nodes}
		if s.Embeddings, err = readArray("--in", *in); err != nil {
			return nil, err
		}
		if s.Members, err = readArray("--members", *members); err != nil {
			return nil, err
		}
		if s.Weights, err = readOptional("--weights", *weights); err != nil {
			return nil, err
		}
		out := &gpujob.FuseOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if err := writeArray(cmd, c, *file, &out.Means); err != nil {
				return err
			}
			return show(cmd, r, out.Ran, "FUSED", out.Fused)
		}}, nil
	})
	return cmd
}

// gemmCommand returns exoswarm gpu gemm. Both factors have two dimensions, and their inner sizes
// after the transpositions must be equal. The file of --out is in row-major order.
func gemmCommand(connect Submitting) *cobra.Command {
	cmd := &cobra.Command{Use: "gemm --a A.npy --b B.npy --out C.npy", Short: "Multiply two matrices of f4"}
	f := cmd.Flags()
	a, b, file := f.String("a", "", "left factor"), f.String("b", "", "right factor"), f.String("out", "", "file for "+
		"the product")
	ta, tb := f.Bool("ta", false, "transpose the left factor"), f.Bool("tb", false, "transpose the right factor")
	cmd.RunE = prepared(connect, func(*cobra.Command, []string) (_ *submission, err error) {
		s := &gpujob.GemmSpec{TA: *ta, TB: *tb}
		if s.A, err = readArray("--a", *a); err != nil {
			return nil, err
		}
		if s.B, err = readArray("--b", *b); err != nil {
			return nil, err
		}
		out := &gpujob.GemmOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			if err := writeArray(cmd, c, *file, &out.C); err != nil {
				return err
			}
			return show(cmd, r, out.Ran, "SHAPE", out.C.Shape)
		}}, nil
	})
	return cmd
}

// submission is a job before it is submitted.
type submission struct {
	spec gpujob.Spec
	// out is a pointer to the output of the kind, which execute fills.
	out any
	// done writes the files of the output and prints it.
	done func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error
}

// prepared makes the RunE of a command whose function reads files and flags. What is wrong with them
// is found before the connection is made, also a specification that breaks a rule of its kind.
func prepared(
	connect Submitting, prepare func(cmd *cobra.Command, args []string) (*submission, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := prepare(cmd, args)
		if err != nil {
			return err
		}
		// Command has added these flags, so the lookups cannot fail.
		id, _ := cmd.Flags().GetString("id")
		if id == "" {
			id = natsconn.NewID()
		}
		j, err := gpujob.NewJob(id, s.spec)
		if err != nil {
			return err
		}
		j.Tenant, _ = cmd.Flags().GetString("tenant")
		return connect(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
			j.Submitted = time.Now().UTC()
			r, err := execute(cmd, c, j, s.out)
			if err != nil {
				return err
			}
			return s.done(cmd, c, r)
		})(cmd, args)
	}
}

// execute submits a job, waits for its result, and decodes its output into out. It prints one line
// to the error output if the queue knows why the job waits. An --id that is in use is a
// jobs.ErrExists, whether that job has ended or not. execute returns the error of a job that failed,
// whose code gives the exit code. The end of the wait, by --timeout or an interrupt, does not cancel
// the job.
func execute(cmd *cobra.Command, c command.JobClient, j jobs.Job, out any) (jobs.Result, error) {
	ctx := cmd.Context()
	// The gateway of a tenant may choose another id, so the one that it returns counts.
	id, err := c.Submit(ctx, j)
	if err != nil {
		return jobs.Result{}, err
	}
	// A hint only: the job is stored, and may be over by now.
	if l, err := c.Locate(ctx, id); err == nil && l.Note != "" {
		cmd.PrintErrf("job %s waits: %s\n", id, l.Note)
	}
	if limit, _ := cmd.Flags().GetDuration("timeout"); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has no result after %v; it goes on: "+
			"exoswarm job get %s", limit, id))
		defer cancel()
	}
	// Result has no limit of its own: a job without an agent waits until one comes.
	r, err := c.Result(ctx, id)
	if err != nil {
		return r, err
	}
	if r.Error != nil {
		return r, fmt.Errorf("job %s failed: %w", id, r.Error)
	}
	if err := json.Unmarshal(r.Output, out); err != nil {
		return r, fmt.Errorf("output of job %s: %w", id, err)
	}
	return r, nil
}

// show prints the result of a job as one item: the table has value in a column of its kind, and
// where the job ran; the other formats have the whole jobs.Result. It comes after the files are
// written, so an output that cannot be written shows no success.
func show(cmd *cobra.Command, r jobs.Result, ran gpujob.Ran, column string, value any) error {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), column, "DEVICE", "SECONDS", "WORKER", "JOB")
	if err != nil {
		return err
	}
	if err := p.Item(r, value, ran.Device, fmt.Sprintf("%.6f", ran.Seconds), r.Worker, r.JobID); err != nil {
		return err
	}
	return p.End()
}

// readArray reads a .npy file as an array with its bytes inside. flag names it in errors, all of
// them errors of usage but those of reading itself. A scalar becomes an array of one element: jobs
// have no arrays without dimensions. NumPy stores booleans, complex numbers and 16-bit types too,
// which no kind takes.
func readArray(flag, file string) (gpujob.Array, error) {
	if file == "" {
		return gpujob.Array{}, command.Usage("%s is missing: name a .npy file", flag)
	}
	r, err := os.Open(file)
	if err != nil {
		return gpujob.Array{}, command.Usage("%s: %v", flag, err)
	}
	defer r.Close()
	a, err := numpy.Read(r, maxInput)
	// The text of an ErrFormat says what to change in the file, so it is an error of usage.
	if errors.Is(err, numpy.ErrFormat) {
		return gpujob.Array{}, command.Usage("%s %s: %v", flag, file, err)
	}
	if err != nil {
		return gpujob.Array{}, fmt.Errorf("%s %s: %w", flag, file, err)
	}
	// numpy.Read knows more types than the kinds do: the message names the types to convert to.
	t, ok := fromNumPy[a.Type]
	if !ok {
		return gpujob.Array{}, command.Usage("%s %s: elements of %s: convert them to f4, f8, i4, i8, u4, u8 or u1",
			flag, file, a.Type)
	}
	// NumPy writes a scalar with an empty shape.
	shape := gpujob.Shape(a.Shape)
	if len(shape) == 0 {
		shape = gpujob.Shape{1}
	}
	return gpujob.Array{Type: t, Shape: shape, Data: a.Data}, nil
}

// readOptional is readArray for a flag that may be empty; then it returns nil.
func readOptional(flag, file string) (*gpujob.Array, error) {
	if file == "" {
		return nil, nil
	}
	a, err := readArray(flag, file)
	return &a, err
}

// fromNumPy are the types by their names in .npy files. Files are little-endian, as arrays are, so
// bytes are never swapped.
var fromNumPy = map[string]gpujob.Type{
	"<f4": gpujob.F32, "<f8": gpujob.F64, "<i4": gpujob.I32, "<i8": gpujob.I64, "<u4": gpujob.U32, "<u8": gpujob.U64,
	"<u1": gpujob.U8,
}

// objectReader reads objects. The client of a tenant is not one, because a tenant reaches gateways
// only, which hand out no objects.
type objectReader interface {
	Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error)
}

// writeArray writes an array of the output as a .npy file, after it has fetched the bytes of a
// large one from the object store. It does nothing for an empty name. An existing file is replaced.
// After an error the file may have a part of the array; the output stays in the result of the job.
func writeArray(cmd *cobra.Command, c command.JobClient, file string, a *gpujob.Array) (err error) {
	if file == "" {
		return nil
	}
	if a.Object != "" {
		if a.Data, err = readObject(cmd, c, a.Object); err != nil {
			return fmt.Errorf("output object %s: %w", a.Object, err)
		}
	}
	out := &numpy.Array{Shape: a.Shape, Data: a.Data}
	for name, t := range fromNumPy {
		if t == a.Type {
			out.Type = name
		}
	}
	w, err := os.Create(file)
	if err != nil {
		return command.Usage("--out: %v", err)
	}
	// The error of Close counts: some file systems report a full disk there.
	defer func() { err = errors.Join(err, w.Close()) }()
	return numpy.Write(w, out)
}

// readObject reads an output that is an object. It belongs to the tenant of --tenant, for whom the
// job was submitted. The whole object is in memory then.
func readObject(cmd *cobra.Command, c command.JobClient, name string) ([]byte, error) {
	o, ok := c.(objectReader)
	if !ok {
		return nil, errors.New("the login of a tenant cannot read it: ask an operator")
	}
	// Names of different tenants never meet in the store, so the name alone does not find an
	// object.
	tenant, _ := cmd.Flags().GetString("tenant")
	r, err := o.Object(cmd.Context(), name, jobs.Owner{Tenant: tenant})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
