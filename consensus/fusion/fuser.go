package fusion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Mode is how a Fuser adds agents to nodes; see the package's order of additions.
type Mode uint8

const (
	// Static sorts the members once, when they are given: for memberships that serve several
	// fusions. Results are the same bits on every device.
	Static Mode = iota
	// Unsorted reads the members anew at each fusion: for memberships that change with each.
	// Results differ in the last bits from call to call. With 65,536 nodes or more, and as many
	// agents, each fusion sorts the agents by their node on the device, in 8 bytes of device memory
	// an agent and 4 a node that New allocates.
	Unsorted
)

// Options describe all fusions of a Fuser.
type Options struct {
	// Nodes is the number of nodes, 1..MaxNodes.
	Nodes int
	// Dim is the number of values of an embedding: a multiple of DimStep, MinDim..MaxDim.
	Dim int
	// Agents is the number of agents of each fusion, 0..MaxAgents.
	Agents int
	// Type is the type of the embeddings; zero: device.F32.
	Type device.Elem
	// Mode is the zero value Static, or Unsorted.
	Mode Mode
	// Geometry is the shape of the launches, of at most 256 threads a block; zero: chosen for the
	// device.
	Geometry device.Geometry

	// For tuning; 0: what the package chooses.
	// launches of a fusion in Unsorted mode, each for a range of the nodes; sortAgents: none,
	// agents are sorted
	phases  int
	runRows int // of Static mode. Other than RunRows is another order of additions
}

// Fuser holds nodes on a device and accumulates agents' embeddings into them. It is used by one
// goroutine at a time. Its owner closes it before the device. After an error of the device during a
// fusion the nodes are undefined until Reset or Write.
type Fuser struct {
	opts   Options
	dev    device.Device
	stream device.Stream

	kernel, sum, mean    device.Kernel // of agents; of sums of runs; of means
	count, starts, place device.Kernel // of Unsorted mode where it sorts the agents

	sums, tallies, scratch device.Buffer // of the nodes; totals of a fusion under way
	result                 device.HostBuffer
	words                  []uint64 // the result
	sorting                sorting
	own                    memory // for Embed, Weigh, Members and Means

	rows, weights device.Arg // what a fusion reads
	weighted      bool
	launches      []launch     // of a fusion; nil before Members
	args          []device.Arg // of the last launch
	outside       Report       // of Static mode: agents in no run

	fresh    bool   // the nodes count as zeros, whatever is in their memory
	bound    uint64 // at least the sum of all nodes' weights
	sequence uint32
	unsure   bool // the outcome of a launch was not seen
	close    []func() error
}

// launch is one of a fusion.
type launch struct {
	kernel   device.Kernel
	geometry device.Geometry
	flags    uint32
	// list appends the arguments of the next launch.
	list func(flags uint32, to []device.Arg) []device.Arg
}

// sorting is the memory in which agents are sorted by node; nil where they are not.
type sorting struct {
	counts  device.Buffer // uint32[nodes+1]: agents by node, then their exclusive prefix sum
	numbers device.Buffer // uint32[agents]: number of an agent within its node
	order   device.Buffer // uint32[agents]: the agents, sorted by node
}

// memory has the buffers that are allocated at their first use.
type memory struct {
	rows, weights, members, runs, partSums, partTallies, means device.Buffer
}

// New returns a Fuser with empty nodes.
func New(d device.Device, opts Options) (f *Fuser, err error) {
	if opts.Type == 0 {
		opts.Type = device.F32
	}
	if err := checkShape(opts.Nodes, opts.Dim); err != nil {
		return nil, fmt.Errorf("fuser: %w", err)
	}
	if opts.Agents < 0 || opts.Agents > MaxAgents || opts.Type != device.F32 && opts.Type != device.BF16 ||
		opts.Mode > Unsorted {
		return nil, fmt.Errorf("fuser of %d agents, embeddings of %v, mode %d: %w", opts.Agents, opts.Type, opts.Mode,
			ErrShape)
	}
	if opts.runRows == 0 {
		opts.runRows = RunRows
	}
	f = &Fuser{opts: opts, dev: d, fresh: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
	if err = f.open(); err != nil {
		return f, err
	}
	f.weights = device.Ptr(f.scratch)
	return f, nil
}

func (f *Fuser) open() (err error) {
	o := &f.opts
	kind := "fuse_sorted"
	if o.Mode == Unsorted {
		kind = "fuse_unsorted"
	}
	set := map[string]*device.Kernel{}
	if f.sorts() {
		kind = "fuse_walk"
		set = map[string]*device.Kernel{"fuse_count": &f.count, "fuse_starts": &f.starts, "fuse_place": &f.place}
	}
	maps.Copy(set, map[string]*device.Kernel{
		kernels.FuseName(kind, o.Type, o.Dim):              &f.kernel,
		kernels.FuseName("fuse_sorted", device.F32, o.Dim): &f.sum,
		"fuse_means": &f.mean,
	})
	for name, to := range set {
		if *to, err = f.dev.Kernel(name); err != nil {
			return err
		}
	}
	if o.Mode == Static && o.Type == device.F32 {
		f.kernel = f.sum
	}
	if f.stream, err = f.dev.NewStream(); err != nil {
		return err
	}
	f.close = append(f.close, f.stream.Close)
	for _, m := range []struct {
		to    *device.Buffer
		bytes int64
	}{
		{&f.sums, 4 * int64(o.Nodes) * int64(o.Dim)},
		{&f.tallies, 8 * kernels.FuseTallyPair * int64(o.Nodes)},
		{&f.scratch, 8 * kernels.FuseWords},
	} {
		if err = f.reserve(m.to, m.bytes); err != nil {
			return err
		}
	}
	if f.sorts() {
		if err = errors.Join(
			f.reserve(&f.sorting.counts, 4*(int64(o.Nodes)+1)),
			f.reserve(&f.sorting.numbers, 4*int64(o.Agents)),
			f.reserve(&f.sorting.order, 4*int64(o.Agents)),
		); err != nil {
			return err
		}
	}
	if err = f.scratch.Fill(0, f.scratch.Size(), 0); err != nil {
		return err
	}
	if f.result, err = f.dev.AllocHost(8*kernels.FuseWords, "fusion"); err != nil {
		return err
	}
	f.close = append(f.close, f.result.Close)
	clear(f.result.Bytes())
	f.words = device.Of[uint64](f.result.Bytes())
	return nil
}

// reserve grows a buffer to at least bytes. A buffer that grows loses its content.
func (f *Fuser) reserve(b *device.Buffer, bytes int64) error {
	if *b != nil && (*b).Size() >= bytes {
		return nil
	}
	if *b != nil {
		old := *b
		*b = nil
		if err := old.Close(); err != nil { // Fuser.Close closes it again, which does nothing
			return err
		}
	}
	made, err := f.dev.Alloc(bytes, "fusion")
	if err != nil {
		return err
	}
	*b = made
	f.close = append(f.close, made.Close)
	return nil
}

// idle waits for a fusion whose wait was cancelled, before its inputs are changed.
func (f *Fuser) idle(ctx context.Context) error {
	if !f.unsure {
		return nil
	}
	if err := f.stream.Sync(ctx); err != nil {
		return err
	}
	if uint32(f.words[kernels.FuseTicket]) == f.sequence {
		f.bound += f.words[kernels.FuseWeight]
	} else if err := f.scratch.Fill(0, f.scratch.Size(), 0); err != nil { // its last launch never ran
		return err
	}
	f.unsure = false
	return nil
}

// Point sets the embeddings of later fusions, in device memory: Agents rows of Dim values from the
// byte at off on, a multiple of 16. Each fusion reads them on a stream of this Fuser, so the caller
// syncs the stream that writes them first. b must stay open.
func (f *Fuser) Point(b device.Buffer, off int64) error {
	bytes := int64(f.opts.Agents) * int64(f.opts.Dim) * f.opts.Type.Bytes()
	if err := check("embeddings", b, off, bytes); err != nil {
		return err
	}
	f.rows = device.Range(b, off, bytes)
	return nil
}

func check(what string, b device.Buffer, off, bytes int64) error {
	if b == nil || off%device.RangeAlign != 0 {
		return fmt.Errorf("point at %s at %d, want memory and a multiple of %d: %w", what, off, device.RangeAlign,
			device.ErrInvalidArgument)
	}
	return device.CheckRange("point at "+what, off, bytes, b.Size())
}

// Embed copies float32 embeddings, Dim for each agent, to the device for the fusions to come. The
// slice is the caller's again when it returns.
func (f *Fuser) Embed(rows []float32) error { return embed(f, device.F32, rows) }

// EmbedBF16 is Embed for embeddings of bf16: the upper halves of float32.
func (f *Fuser) EmbedBF16(rows []uint16) error { return embed(f, device.BF16, rows) }

func embed[T device.Scalar](f *Fuser, elem device.Elem, rows []T) error {
	if elem != f.opts.Type || len(rows) != f.opts.Agents*f.opts.Dim {
		return fmt.Errorf("embed %d values of %v for %d agents with %d of %v: %w", len(rows), elem, f.opts.Agents,
			f.opts.Dim, f.opts.Type, ErrLength)
	}
	if err := f.idle(context.Background()); err != nil {
		return err
	}
	if err := put(f, &f.own.rows, rows); err != nil {
		return err
	}
	return f.Point(f.own.rows, 0)
}

func put[T device.Scalar](f *Fuser, b *device.Buffer, data []T) error {
	bytes := device.Bytes(data)
	if err := f.reserve(b, int64(len(bytes))); err != nil {
		return err
	}
	return (*b).Write(0, bytes)
}

// Weigh copies the agents' weights to the device, in units of 1/65536, for the fusions to come.
// Without them, and after nil, everyone weighs 1.
func (f *Fuser) Weigh(weights []uint32) error {
	if weights == nil {
		f.weighted, f.weights = false, device.Ptr(f.scratch)
		return nil
	}
	if len(weights) != f.opts.Agents {
		return fmt.Errorf("%d weights for %d agents: %w", len(weights), f.opts.Agents, ErrLength)
	}
	if err := f.idle(context.Background()); err != nil {
		return err
	}
	if err := put(f, &f.own.weights, weights); err != nil {
		return err
	}
	return f.PointWeights(f.own.weights, 0)
}

// PointWeights takes the weights from device memory: a uint32 for each agent from the byte at off
// on, a multiple of 16. b must stay open.
func (f *Fuser) PointWeights(b device.Buffer, off int64) error {
	bytes := 4 * int64(f.opts.Agents)
	if err := check("weights", b, off, bytes); err != nil {
		return err
	}
	f.weighted, f.weights = true, device.Range(b, off, bytes)
	return nil
}

// Fuse adds the agents to their nodes, and reports the counts. It waits until the nodes are
// written. Members and embeddings must have been given before. When weights might not fit 64 bits
// it is ErrOverflow and nothing is done; 2^48 additions of an agent of weight 1 fit. Cancelling ctx
// ends the wait, not the fusion: it takes effect all the same.
func (f *Fuser) Fuse(ctx context.Context) (Report, error) {
	if f.launches == nil || f.rows.Kind() == 0 {
		return Report{}, fmt.Errorf("fuse without members or embeddings: give them with Members and Point: %w",
			device.ErrInvalidArgument)
	}
	if err := f.idle(ctx); err != nil {
		return Report{}, err
	}
	most := uint64(f.opts.Agents) * consensus.One
	if f.weighted {
		most = uint64(f.opts.Agents) * math.MaxUint32
	}
	if _, carry := bits.Add64(f.bound, most, 0); carry != 0 {
		return Report{}, fmt.Errorf("fuse %d agents into nodes of weight %d: %w", f.opts.Agents, f.bound, ErrOverflow)
	}
	if err := f.launch(); err != nil {
		return Report{}, fmt.Errorf("fuse %d agents: %w", f.opts.Agents, err)
	}
	if err := f.stream.Await(ctx, f.result, 0, f.sequence); err != nil {
		return Report{}, fmt.Errorf("fuse %d agents: %w", f.opts.Agents, err)
	}
	f.unsure = false
	f.bound += f.words[kernels.FuseWeight]
	return Report{
		Fused: f.words[kernels.FuseFused], Refused: f.words[kernels.FuseRefused], Weight: f.words[kernels.FuseWeight],
		Nobody:  f.words[kernels.FuseNobody] + f.outside.Nobody,
		Invalid: f.words[kernels.FuseInvalid] + f.outside.Invalid,
	}, nil
}

func (f *Fuser) launch() error {
	f.sequence++
	f.unsure = true
	flags := uint32(0)
	switch {
	case f.fresh && f.opts.Mode == Static:
		flags |= kernels.FuseFresh // every node is written, so no pass sets them to zero
	case f.fresh:
		if err := f.zero(); err != nil {
			return err
		}
	}
	if f.sorts() {
		if err := f.stream.Fill(f.sorting.counts, 0, f.sorting.counts.Size(), 0); err != nil {
			return err
		}
	}
	for i := range f.launches {
		l := &f.launches[i]
		own := l.flags | flags
		if l.flags&kernels.FuseParts == 0 && f.weighted {
			own |= kernels.FuseWeighted
		}
		f.args = l.list(own, f.args[:0])
		if err := f.stream.Launch(l.kernel, l.geometry, f.args...); err != nil {
			return err
		}
	}
	f.fresh = false
	return nil
}

// zero sets the nodes to zeros in the order of the stream.
func (f *Fuser) zero() error {
	if err := errors.Join(f.stream.Fill(f.sums, 0, f.sums.Size(), 0),
		f.stream.Fill(f.tallies, 0, f.tallies.Size(), 0)); err != nil {
		return err
	}
	f.fresh = false
	return nil
}

// Close waits for a fusion under way and releases the memory. A second call does nothing.
func (f *Fuser) Close() error {
	var errs []error
	for _, fn := range f.close {
		errs = append(errs, fn()) // the stream first: it waits
	}
	f.close = nil
	return errors.Join(errs...)
}
