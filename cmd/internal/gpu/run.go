package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// launch are the flags of exoswarm gpu run. Package pflag fills it before RunE; nothing changes it
// afterwards.
type launch struct {
	entry string
	// grid is nil for one thread an element. shared is in bytes.
	grid, block []int
	shared      int
	exact       bool
	in, out     []string
	// set has the values of scalar parameters by name, as text.
	set map[string]string
}

// runCommand returns exoswarm gpu run. The source is sent as it is and compiled by the agent; only
// the parameters are parsed here, to match them with the files.
func runCommand() *cobra.Command {
	l := &launch{}
	cmd := &cobra.Command{
		Use:   "run KERNEL.cu|KERNEL.ptx --in A.npy --out C.npy [--grid N] [--block N] [--set NAME=VALUE]",
		Short: "Launch a CUDA kernel on a GPU agent that runs with --allow-kernels",
		Long: `Launch a kernel of CUDA C++. Its pointers are, in the order of its parameters, the files of
--in and then of --out. An output has the type and the shape of the first input, unless its name
has others behind it: c.npy:f4:10x20. Scalars are set by --set NAME=VALUE; a parameter n of
an integer type that is not set is the number of elements of the first array.

A file that ends with .ptx is PTX. There, --set names a parameter by its number from 0 on or by
its name in the .param list, and needs all numbers: a parameter of 64 bits is a pointer unless it
is set.`,
	}
	f := cmd.Flags()
	f.StringVar(&l.entry, "entry", "", "name of the kernel; empty: the only one of the source")
	f.IntSliceVar(&l.grid, "grid", nil, "blocks, in 1 to 3 dimensions; by default a thread for each element")
	f.IntSliceVar(&l.block, "block", []int{256}, "threads of a block, in 1 to 3 dimensions")
	f.IntVar(&l.shared, "shared", 0, "bytes of dynamic shared memory of a block")
	f.BoolVar(&l.exact, "exact", false, "round after every operation: the same bits on every chip")
	f.StringArrayVar(&l.in, "in", nil, "file of an input array; may be repeated")
	f.StringArrayVar(&l.out, "out", nil, "FILE or FILE:TYPE:SHAPE of an output array; may be repeated")
	f.StringToStringVar(&l.set, "set", nil, "NAME=VALUE of a scalar parameter; may be repeated")
	cmd.RunE = prepared(func(_ *cobra.Command, args []string) (*submission, error) {
		source, err := os.ReadFile(args[0])
		if err != nil {
			return nil, command.Usage("%v", err)
		}
		build := l.spec
		if strings.EqualFold(filepath.Ext(args[0]), ".ptx") {
			build = l.ptxSpec
		}
		s, files, err := build(string(source))
		if err != nil {
			return nil, err
		}
		out := &gpujob.KernelOutput{}
		return &submission{s, out, func(cmd *cobra.Command, c command.JobClient, r jobs.Result) error {
			// The keys are labels of the arguments, so the order of writing does not matter.
			for name, file := range files {
				// Every label of files is in the output of a job that is done.
				a := out.Arrays[name]
				if err := writeArray(cmd, c, file, &a); err != nil {
					return err
				}
			}
			return show(cmd, r, out.Ran, "KERNEL", s.Entry)
		}}, nil
	})
	return cmd
}

// entryPattern finds the names of the kernels of a source. It does not skip comments: a kernel that
// is commented out counts, and --entry then names the one that is meant.
var entryPattern = regexp.MustCompile(`__global__[^;{(]*?\bvoid\s+` +
	`(?:__launch_bounds__\s*\([^)]*\)\s*)?([A-Za-z_]\w*)\s*\(`)

// spec returns the specification of the job, and the files of its outputs by the labels of their
// arguments, which are the keys of the arrays in the output. It reads the files of --in. Pointers
// take the files in order, inputs before outputs; scalars take --set. It fails with an error of
// usage if a pointer has no file, a file no pointer, a scalar no value, or a value no scalar.
func (l *launch) spec(source string) (s *gpujob.KernelSpec, files map[string]string, err error) {
	s = &gpujob.KernelSpec{
		Source: source, Entry: l.entry, Grid: l.grid, Block: l.block, Shared: l.shared, Exact: l.exact,
	}
	if s.Entry == "" {
		found := entryPattern.FindAllStringSubmatch(source, -1)
		if len(found) != 1 {
			return nil, nil, command.Usage("--entry: the source has %d kernels: name one", len(found))
		}
		s.Entry = found[0][1]
	}
	// The compiler of the agent has the last word; this only finds the kinds of the parameters.
	params, _, err := device.ParseKernel(s.Entry, source)
	if err != nil {
		return nil, nil, command.Usage("%v", err)
	}
	a, err := l.arrays()
	if err != nil {
		return nil, nil, err
	}
	unused := len(l.set)
	for i, p := range params {
		if p.Kind == device.KindBuffer {
			s.Args = append(s.Args, a.next(i))
			continue
		}
		arg, set, err := l.scalar(p, a.n)
		if err != nil {
			return nil, nil, err
		}
		if set {
			unused--
		}
		s.Args = append(s.Args, arg)
	}
	if unused > 0 {
		return nil, nil, command.Usage("--set: kernel %s has no scalar parameter of one of these names", s.Entry)
	}
	files, err = l.finish(s, a)
	return s, files, err
}

// ptxSpec is spec for a text of PTX. A parameter of 64 bits that --set does not name is a pointer.
func (l *launch) ptxSpec(text string) (s *gpujob.KernelSpec, files map[string]string, err error) {
	s = &gpujob.KernelSpec{
		PTX: text, Entry: l.entry, Grid: l.grid, Block: l.block, Shared: l.shared, Exact: l.exact,
	}
	if s.Entry == "" {
		found := device.PTXEntries(text)
		if len(found) != 1 {
			return nil, nil, command.Usage("--entry: the text has %d entries: name one", len(found))
		}
		s.Entry = found[0]
	}
	params, err := device.PTXParams(s.Entry, text)
	if err != nil {
		return nil, nil, command.Usage("%v", err)
	}
	a, err := l.arrays()
	if err != nil {
		return nil, nil, err
	}
	unused := len(l.set)
	for i, p := range params {
		value, set := l.set[strconv.Itoa(i)]
		if !set {
			value, set = l.set[p.Name]
		}
		switch {
		case set:
			unused--
			arg := gpujob.Arg{Type: ptxType(p.Kinds, value), Value: json.Number(value)}
			if arg.Type == "" {
				return nil, nil, command.Usage("--set %d: parameter %s is a pointer: name a file", i, p.Name)
			}
			if _, err := arg.Bits(); err != nil {
				return nil, nil, command.Usage("--set %d: %v", i, err)
			}
			s.Args = append(s.Args, arg)
		case slices.Contains(p.Kinds, device.KindBuffer):
			s.Args = append(s.Args, a.next(i))
		default:
			return nil, nil, command.Usage("parameter %d, %s, has no value: use --set %d=VALUE", i, p.Name, i)
		}
	}
	if unused > 0 {
		return nil, nil, command.Usage("--set: entry %s has no parameter of one of these numbers or names", s.Entry)
	}
	files, err = l.finish(s, a)
	return s, files, err
}

// ptxType returns the type of a number that may have one of some kinds, empty for a pointer. The
// text decides between the types of one size: -1 has a sign, and 1.5 is a float.
func ptxType(kinds []device.Kind, value string) gpujob.Type {
	signed, float := strings.HasPrefix(value, "-"), strings.ContainsAny(value, ".eE")
	has := func(k device.Kind) bool { return slices.Contains(kinds, k) }
	switch {
	case has(device.KindFloat32) && (float || len(kinds) == 1):
		return gpujob.F32
	case has(device.KindInt32) && signed:
		return gpujob.I32
	case has(device.KindUint32):
		return gpujob.U32
	case has(device.KindUint64) && signed:
		return gpujob.I64
	case has(device.KindUint64):
		return gpujob.U64
	}
	return ""
}

type arrays struct {
	inputs  []gpujob.Array
	outputs []gpujob.Zero
	names   []string // of the files of outputs
	n       int64    // elements of the first array
	taken   int      // pointers that have an array, or would
	files   map[string]string
}

func (l *launch) arrays() (*arrays, error) {
	a := &arrays{
		inputs: make([]gpujob.Array, len(l.in)), outputs: make([]gpujob.Zero, len(l.out)),
		names: make([]string, len(l.out)), files: map[string]string{},
	}
	var err error
	for i, file := range l.in {
		if a.inputs[i], err = readArray("--in", file); err != nil {
			return nil, err
		}
	}
	for i, text := range l.out {
		if a.names[i], a.outputs[i], err = parseOut(text, a.inputs); err != nil {
			return nil, err
		}
	}
	switch {
	case len(a.inputs) > 0:
		a.n, _ = a.inputs[0].Shape.Count()
	case len(a.outputs) > 0:
		a.n, _ = a.outputs[0].Shape.Count()
	}
	return a, nil
}

// next returns the argument of the next pointer, parameter i. A pointer beyond all files stays
// without an array, and finish reports it.
func (a *arrays) next(i int) (arg gpujob.Arg) {
	switch at := a.taken - len(a.inputs); {
	case at < 0:
		arg.Array = &a.inputs[a.taken]
	case at < len(a.outputs):
		arg.Out = &a.outputs[at]
		a.files[arg.Label(i)] = a.names[at]
	}
	a.taken++
	return arg
}

// finish checks that each file has a pointer, and sets the grid. It returns the files of outputs by
// the labels of their arguments.
func (l *launch) finish(s *gpujob.KernelSpec, a *arrays) (map[string]string, error) {
	if a.taken != len(a.inputs)+len(a.outputs) {
		return nil, command.Usage("kernel %s has %d pointers: %d files of --in and %d of --out", s.Entry, a.taken,
			len(a.inputs), len(a.outputs))
	}
	if len(s.Grid) == 0 {
		// As many blocks as cover n elements in one dimension, and at least one: the device refuses
		// an empty grid. A kernel must check its index against n.
		threads := int64(1)
		for _, b := range s.Block {
			threads *= int64(max(b, 1))
		}
		s.Grid = []int{int(max(1, min((a.n+threads-1)/threads, math.MaxInt32)))}
	}
	return a.files, nil
}

// scalar returns the argument of a scalar parameter, and whether --set has its value. An integer
// parameter called n has the value n unless it is set; by convention it is the number of elements.
// Bits checks that the text is a number in the range of the type.
func (l *launch) scalar(p device.Param, n int64) (gpujob.Arg, bool, error) {
	// ParseKernel returns these kinds and KindBuffer only.
	types := map[device.Kind]gpujob.Type{
		device.KindUint32: gpujob.U32, device.KindInt32: gpujob.I32, device.KindUint64: gpujob.U64,
		device.KindFloat32: gpujob.F32,
	}
	text, set := l.set[p.Name]
	if !set {
		if p.Name != "n" || p.Kind == device.KindFloat32 {
			return gpujob.Arg{}, false, command.Usage("parameter %s has no value: use --set %s=VALUE", p.Name, p.Name)
		}
		// Bits refuses a number that the type of the parameter cannot hold.
		text = strconv.FormatInt(n, 10)
	}
	a := gpujob.Arg{Type: types[p.Kind], Value: json.Number(text)}
	if _, err := a.Bits(); err != nil {
		return a, set, command.Usage("--set %s: %v", p.Name, err)
	}
	return a, set, nil
}

// parseOut reads FILE or FILE:TYPE:SHAPE, where SHAPE is like 10x20. Without type and shape an
// output has the type and shape of the first input; without an input that is an error. The last two
// parts are type and shape, so FILE may have colons if both follow it.
func parseOut(text string, inputs []gpujob.Array) (file string, z gpujob.Zero, err error) {
	parts := strings.Split(text, ":")
	// A name that contains two colons is read as a type and a shape, and must be given with both.
	if len(parts) >= 3 {
		last := parts[len(parts)-2:]
		t, ok := fromNumPy["<"+last[0]]
		if !ok {
			return "", z, command.Usage("--out %s: type %q: use f4, f8, i4, i8, u4, u8 or u1", text, last[0])
		}
		z.Type = t
		for _, d := range strings.Split(last[1], "x") {
			size, err := strconv.ParseInt(d, 10, 64)
			if err != nil || size < 0 {
				return "", z, command.Usage("--out %s: shape %q: use for example 10x20", text, last[1])
			}
			z.Shape = append(z.Shape, size)
		}
		return strings.Join(parts[:len(parts)-2], ":"), z, nil
	}
	if len(inputs) == 0 {
		return "", z, command.Usage("--out %s: without --in, name the type and the shape: %s:f4:1000", text, text)
	}
	if text == "" {
		return "", z, fmt.Errorf("--out is empty: %w", command.Usage("name a file"))
	}
	return text, gpujob.Zero{Type: inputs[0].Type, Shape: inputs[0].Shape}, nil
}
