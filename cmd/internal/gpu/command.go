// Package gpu is the group of commands exoswarm gpu, and exoswarm train: they submit a job of pool
// gpu with arrays of .npy files, or of a table of sequences, wait for its result, and write its
// arrays as files.
//
// Each command does the same steps in the same order: it reads and checks the files, submits the
// job, waits, writes the files of the output, and prints one item. Nothing is submitted before all
// inputs are read, and no file is created before the job is done. A command that ends early leaves
// the job in the queue; exoswarm job get shows its result. package gpujob has the rules of each
// kind, which are checked here and again by the agent.
package gpu

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

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// maxInput bounds the bytes of the elements of one file. Inputs travel inside the specification of
// the job, which has at most jobs.MaxSpec bytes; base64 makes 4 bytes of 3. Larger inputs must be
// objects, which these commands do not upload.
const maxInput = jobs.MaxSpec / 4 * 3

// Command returns the group. Every command exits with the codes of package command: an argument
// that cannot be used is an error of usage, found before a job exists, and a failed job gives the
// code of its error.
func Command() *cobra.Command {
	all := []*cobra.Command{
		runCommand(), reduceCommand(), sortCommand(), histogramCommand(),
		tallyCommand(), fuseCommand(), gemmCommand(), allreduceCommand(),
		chainCommand(), computeCommand(), circuitCommand(),
	}
	for _, c := range all {
		submissionFlags(c.Flags())
	}
	return command.Group("gpu", "Execute jobs on GPU agents, with arrays of .npy files", all...)
}

// submissionFlags adds the flags of a command that submits a job and waits for its result.
func submissionFlags(f *pflag.FlagSet) {
	cli.ConnectionFlags(f)
	command.ListFlag(f)
	f.String("id", "", "id of the job; empty: a new one")
	f.String("tenant", jobs.DefaultTenant, "tenant whose limits the job counts against")
	f.Duration("timeout", 0, "longest wait for the result; 0: no limit. The job continues afterwards")
}

// kind is a command that submits a job of one kind: its flags are bound to the fields of a
// specification, and its files to arrays of the specification and of the output.
type kind struct {
	*cobra.Command
	spec gpujob.Spec
	out  any
	// load reads the arrays of the specification, and save writes the arrays of the output, in the
	// order of the flags.
	load []func() error
	save []func(cmd *cobra.Command, c command.JobClient) error
}

func newKind(use, short string, spec gpujob.Spec, out any) *kind {
	return &kind{Command: &cobra.Command{Use: use, Short: short}, spec: spec, out: out}
}

// array adds a flag with the file of an array.
func (k *kind) array(to *gpujob.Array, name, usage string) {
	file := k.Flags().String(name, "", usage)
	k.load = append(k.load, func() (err error) {
		*to, err = readArray("--"+name, *file)
		return err
	})
}

// optional adds a flag with the file of an array that may be left out.
func (k *kind) optional(to **gpujob.Array, name, usage string) {
	file := k.Flags().String(name, "", usage)
	k.load = append(k.load, func() (err error) {
		*to, err = readOptional("--"+name, *file)
		return err
	})
}

// arrays adds a flag with files of arrays.
func (k *kind) arrays(to *[]gpujob.Array, name, usage string) {
	files := k.Flags().StringArray(name, nil, usage)
	k.load = append(k.load, func() error {
		for _, file := range *files {
			a, err := readArray("--"+name, file)
			if err != nil {
				return err
			}
			*to = append(*to, a)
		}
		return nil
	})
}

// result adds a flag with the file for an array of the output.
func (k *kind) result(from *gpujob.Array, name, usage string) {
	file := k.Flags().String(name, "", usage)
	k.save = append(k.save, func(cmd *cobra.Command, c command.JobClient) error {
		return writeArray(cmd, c, *file, from)
	})
}

// command returns the command, which prints a value of the output below a column. ran says where
// the job ran.
func (k *kind) command(ran *gpujob.Ran, column string, value func() any) *cobra.Command {
	k.RunE = prepared(func(*cobra.Command, []string) (*submission, error) {
		for _, load := range k.load {
			if err := load(); err != nil {
				return nil, err
			}
		}
		return &submission{k.spec, k.out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			for _, save := range k.save {
				if err := save(cmd, c); err != nil {
					return err
				}
			}
			return show(cmd, r, *ran, column, value())
		}}, nil
	})
	return k.Command
}

// reduceCommand returns exoswarm gpu reduce. The array has f4, f8, i4, i8 or u4 elements and any
// shape. The result is printed as text, since a sum of integers may have more than 64 bits; it has
// no file.
func reduceCommand() *cobra.Command {
	s, out := &gpujob.ReduceSpec{}, &gpujob.ReduceOutput{}
	k := newKind("reduce --in A.npy --op OP", "Print the sum, min, max or mean of an array", s, out)
	k.array(&s.In, "in", "the array")
	k.Flags().StringVar(&s.Op, "op", gpujob.OpSum, "sum, min, max or mean")
	return k.command(&out.Ran, "VALUE", func() any { return out.Text })
}

// sortCommand returns exoswarm gpu sort. The array has one dimension. Equal elements keep their
// order, and NaN comes last in both directions. Without --out nothing is written, and the command
// prints the number of elements.
func sortCommand() *cobra.Command {
	s, out := &gpujob.SortSpec{}, &gpujob.SortOutput{}
	k := newKind("sort --in A.npy --out B.npy", "Sort an array", s, out)
	k.array(&s.In, "in", "the array, of one dimension")
	k.result(&out.Sorted, "out", "file for the sorted array")
	indices := k.Flags().String("indices", "", "file for the place that each element had; empty: none")
	k.Flags().BoolVar(&s.Descending, "descending", false, "the largest first")
	k.load = append(k.load, func() error {
		s.Indices = *indices != ""
		return nil
	})
	k.save = append(k.save, func(cmd *cobra.Command, c command.JobClient) error {
		if out.Indices == nil {
			return nil
		}
		return writeArray(cmd, c, *indices, out.Indices)
	})
	return k.command(&out.Ran, "ELEMENTS", func() any { return out.Sorted.Shape[0] })
}

// histogramCommand returns exoswarm gpu histogram. The file of --out has the counts as u8, one for
// each bin. The last bin includes --max. The column OUTSIDE is the number of elements that are in
// no bin, NaN included.
func histogramCommand() *cobra.Command {
	s, out := &gpujob.HistogramSpec{}, &gpujob.HistogramOutput{}
	k := newKind("histogram --in A.npy --bins N --min MIN --max MAX --out COUNTS.npy",
		"Count the elements of an array by bins of equal width", s, out)
	k.array(&s.In, "in", "the array")
	k.result(&out.Counts, "out", "file for the counts")
	k.Flags().IntVar(&s.Bins, "bins", 10, "number of bins")
	k.Flags().Float64Var(&s.Min, "min", 0, "lower end of the first bin")
	k.Flags().Float64Var(&s.Max, "max", 1, "upper end of the last bin")
	return k.command(&out.Ran, "OUTSIDE", func() any { return out.Below + out.Above + out.NaN })
}

func allreduceCommand() *cobra.Command {
	s, out := &gpujob.AllreduceSpec{In: []gpujob.Array{}}, &gpujob.AllreduceOutput{}
	k := newKind("allreduce --in A.npy --in B.npy --out SUM.npy",
		"Add arrays element by element on all devices of an agent", s, out)
	k.arrays(&s.In, "in", "file of an array; may be repeated")
	k.result(&out.Sum, "out", "file for the sum")
	return k.command(&out.Ran, "DEVICES", func() any { return out.Devices })
}

// tallyCommand returns exoswarm gpu tally. Weights and priorities have one element for each ballot.
// A round without a winner is a result, and not an error: the column WINNER is none then. The
// counts are in the item of -o json.
func tallyCommand() *cobra.Command {
	s, out := &gpujob.TallySpec{}, &gpujob.TallyOutput{}
	k := newKind("tally --in BALLOTS.npy --candidates N --rule RULE", "Decide a round of votes", s, out)
	k.array(&s.Ballots, "in", "the ballots: u1, a candidate for each agent; 255 abstains")
	k.optional(&s.Weights, "weights", "file with a weight for each ballot: u1, u4 or f4; empty: 1")
	k.optional(&s.Priorities, "priorities", "file with the priority of each agent to lead: u4; empty: agent 0 leads")
	k.Flags().IntVar(&s.Candidates, "candidates", 2, "number of candidates, 1 to 256")
	k.Flags().StringVar(&s.Rule, "rule", "plurality", `plurality, majority, weighted, unanimous or "quorum 2/3"; "of `+
		`all" counts abstentions against`)
	return k.command(&out.Ran, "WINNER", func() any {
		// The winner is the number of a candidate, from 0.
		if out.Winner == nil {
			return "none"
		}
		return fmt.Sprint(*out.Winner)
	})
}

// fuseCommand returns exoswarm gpu fuse. The file of --out has a row of f4 for each node. Weights
// and counts of the nodes are in the item of -o json; only the means have a file. The column FUSED
// is the number of agents that were fused.
func fuseCommand() *cobra.Command {
	s, out := &gpujob.FuseSpec{}, &gpujob.FuseOutput{}
	k := newKind("fuse --in EMBEDDINGS.npy --members MEMBERS.npy --nodes N --out MEANS.npy",
		"Fuse embeddings into nodes", s, out)
	k.array(&s.Embeddings, "in", "the embeddings: f4, a row for each agent")
	k.array(&s.Members, "members", "the node of each agent: u4")
	k.optional(&s.Weights, "weights", "file with the weight of each agent in units of 1/65536: u4; empty: 1")
	k.Flags().IntVar(&s.Nodes, "nodes", 1, "number of nodes")
	k.result(&out.Means, "out", "file for the means of the nodes")
	return k.command(&out.Ran, "FUSED", func() any { return out.Fused })
}

// gemmCommand returns exoswarm gpu gemm. Both factors have two dimensions, and their inner sizes
// after the transpositions must be equal. The file of --out is in row-major order.
func gemmCommand() *cobra.Command {
	s, out := &gpujob.GemmSpec{}, &gpujob.GemmOutput{}
	k := newKind("gemm --a A.npy --b B.npy --out C.npy", "Multiply two matrices of f4", s, out)
	k.array(&s.A, "a", "left factor")
	k.array(&s.B, "b", "right factor")
	k.result(&out.C, "out", "file for the product")
	k.Flags().BoolVar(&s.TA, "ta", false, "transpose the left factor")
	k.Flags().BoolVar(&s.TB, "tb", false, "transpose the right factor")
	return k.command(&out.Ran, "SHAPE", func() any { return out.C.Shape })
}

func chainCommand() *cobra.Command {
	s, out := &gpujob.ChainSpec{}, &gpujob.ChainOutput{}
	k := newKind("chain --in A.npy --in B.npy --in C.npy --out D.npy",
		"Multiply several matrices of f4, in the order that is predicted to be the fastest", s, out)
	k.arrays(&s.Factors, "in", "a factor; repeat it for each")
	k.result(&out.C, "out", "file for the product")
	return k.command(&out.Ran, "ORDER", func() any { return out.Plan })
}

type submission struct {
	spec gpujob.Spec
	// out is a pointer to the output of the kind, which execute fills.
	out any
	// done writes the files of the output and prints it.
	done func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error
}

// prepared makes the RunE of a command whose function reads files and flags. What is wrong with
// them is found before the connection is made, also a specification that breaks a rule of its kind.
func prepared(
	prepare func(cmd *cobra.Command, args []string) (*submission, error),
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
		return cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
			j.Submitted, j.Waited = time.Now().UTC(), true
			r, err := execute(cmd, c, j, s.out, nil)
			if err != nil {
				return err
			}
			return s.done(cmd, c, r)
		}).Run(cmd, args)
	}
}

// execute submits a job, waits for its result, and decodes its output into out. It prints one line
// to the error output if the queue knows why the job waits. An --id that is in use is a
// jobs.ErrExists, whether that job has ended or not. execute returns the error of a job that
// failed, whose code gives the exit code. The end of the wait, by --timeout or an interrupt, does
// not cancel the job. watch gets the progress of the job, one call at a time; nil: nobody asks for
// it.
func execute(cmd *cobra.Command, c command.JobClient, j jobs.Job, out any, watch func(json.RawMessage)) (
	jobs.Result, error,
) {
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
	// Result has no time limit: a job without an agent waits until one comes.
	wait := c.Result
	if watch != nil {
		wait = func(ctx context.Context, id string) (jobs.Result, error) { return c.Watch(ctx, id, watch) }
	}
	r, err := wait(ctx, id)
	if err != nil {
		return r, err
	}
	if r.Error != nil {
		return r, command.JobFailed(id, r.Error)
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
	return cli.PrintOne(cmd, []string{column, "DEVICE", "SECONDS", "WORKER", "JOB"}, r, value, ran.Device,
		fmt.Sprintf("%.6f", ran.Seconds), r.Worker, r.JobID)
}

// readArray reads a .npy file as an array with its bytes inside. flag names it in errors. All
// errors but read errors are errors of usage. A scalar becomes an array of one element: jobs have
// no arrays without dimensions. NumPy stores booleans, complex numbers and 16-bit types too, which
// no kind takes.
func readArray(flag, file string) (gpujob.Array, error) { return readArrayUpTo(flag, file, maxInput) }

// readArrayUpTo is readArray of a file with more bytes.
func readArrayUpTo(flag, file string, most int64) (gpujob.Array, error) {
	if file == "" {
		return gpujob.Array{}, command.Usage("%s is missing: name a .npy file", flag)
	}
	r, err := os.Open(file)
	if err != nil {
		return gpujob.Array{}, command.Usage("%s: %v", flag, err)
	}
	defer r.Close()
	a, err := numpy.Read(r, most)
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
