package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// wholeFusion is a fusion of resident agents in one pass: the device adds up the runs of all nodes
// and then the sums of runs, level by level, in the order of fusion.Nodes. The host waits once and
// reads a sum for each node. See package swarmset.
type wholeFusion struct {
	a       *Agents
	by      string
	all     int // nodes of the swarm
	count   int // nodes of these agents
	width   int // elements of an embedding, with the padding of a gru
	bf16    bool
	rows    uint32           // offset of the embeddings in a page
	members []uint32         // by node: the first agent and the number of agents; nil by vote
	items   []int            // by level: maximum number of items
	at      [][2]int64       // by level: the offsets of sums and counts in out
	tables  int64            // offset of the table of level 0 in words, after the nodes
	kernels [5]device.Kernel // runs, fold; by vote: votes, starts, order

	// What the next fusion of the kind uses too.
	words  device.Buffer     // nodes and tables
	result device.HostBuffer // the last level

	// What a fusion needs while it runs.
	out   device.Buffer // sums and counts of all levels
	order device.Buffer // by vote: the agents of each vote, or their embeddings; else nil
	tiles device.Buffer // by vote: the counts of tiles; else nil
}

// mostKept is the maximum size, in bytes, of tables and results that are kept for the next fusion
// of the kind. Copying tables of this size takes a tenth of a fusion, which takes a quarter of a
// millisecond.
const mostKept = 1 << 20

// fuseWhole fuses all agents in one pass. It returns false if the device has no room: a fusion by
// vote needs four bytes for each agent, others up to 0.3 bytes.
func (f *fusionRun) fuseWhole(ctx context.Context) (done bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	a := f.a
	w := a.whole
	if w == nil || w.by != f.by || w.all != f.all {
		if err := a.whole.close(); err != nil {
			return false, gpubatch.Failed(err)
		}
		a.whole = nil
		w = &wholeFusion{
			a: a, by: f.by, all: f.all, count: len(f.chains), width: f.width, bf16: f.bf16,
			rows: a.layout.Offsets[f.variable],
		}
		err = w.prepare(f)
	}
	if err == nil {
		err = w.open()
	}
	defer func() {
		cerr := w.release()
		if a.whole = nil; err == nil && done && w.words.Size()+w.result.Size() <= mostKept {
			a.whole = w
		} else {
			cerr = errors.Join(cerr, w.close())
		}
		if cerr != nil {
			done, err = false, errors.Join(err, gpubatch.Failed(cerr))
		}
	}()
	if errors.Is(err, device.ErrOutOfMemory) {
		return false, nil
	} else if err != nil {
		return false, gpubatch.Mark(err)
	}
	// A resident memory has one set.
	sets := a.memory.All()
	err = a.memory.Each(ctx, sets, pages.SweepRead, func(i int) error {
		a.memory.SetAbsent(sets[i].Pages)
		return w.run(context.WithoutCancel(ctx), f)
	})
	if err != nil {
		return false, fmt.Errorf("%w: fuse %d agents: %w", gpubatch.ErrDevice, a.n, err)
	}
	return true, nil
}

// plan sets the sizes of all levels, and returns the content of words, which is empty for a fusion
// by vote.
func (w *wholeFusion) plan(f *fusionRun) []uint32 {
	a := w.a
	largest, n := a.n, 2*w.count
	if w.by != swarms.ByVote {
		largest = 0
		for from := 0; from < int(a.n); {
			end := f.nodeEnd(from)
			w.members = append(w.members, uint32(from), uint32(end-from))
			largest, from = max(largest, int64(end-from)), end
		}
	}
	levels, stride := swarmset.Levels(largest), swarmset.TableWords(w.count)
	w.tables = int64((n + 3) / 4 * 4)
	table := make([]uint32, int(w.tables)+levels*stride)
	copy(table, w.members)
	items := int(a.n) // by vote: the maximum
	end := int64(0)
	for level := range levels {
		items = items/swarmset.RunRows + w.count
		if w.members != nil {
			items = 0
			for node, to := 0, table[int(w.tables)+level*stride:]; node <= w.count; node++ {
				if to[node] = uint32(items); node < w.count {
					items += itemsOf(w.members[2*node+1], level)
				}
			}
		}
		if level == levels-1 { // a node without agents has an item too
			items = w.count
			for node := range w.count + 1 {
				table[int(w.tables)+level*stride+node] = uint32(node)
			}
		}
		counts := end + align(4*int64(items)*int64(w.width))
		w.items, w.at = append(w.items, items), append(w.at, [2]int64{end, counts})
		end = counts + align(4*int64(items))
	}
	return table
}

// itemsOf returns the number of items of a node with n agents in a level.
func itemsOf(n uint32, level int) int {
	items := int(n)
	for range level + 1 {
		items = (items + swarmset.RunRows - 1) / swarmset.RunRows
	}
	return items
}

// align rounds n up to the alignment of kernel arguments.
func align(n int64) int64 { return (n + device.RangeAlign - 1) / device.RangeAlign * device.RangeAlign }

// prepare makes what all fusions of the kind share.
func (w *wholeFusion) prepare(f *fusionRun) (err error) {
	table := w.plan(f)
	runs := swarmset.Runs(w.width)
	if w.teams() {
		runs = swarmset.Teams(w.width)
	}
	for i, name := range []string{runs, swarmset.Fold} {
		if w.kernels[i], err = w.a.dev.Kernel(name); err != nil {
			return err
		}
	}
	if w.by == swarms.ByVote {
		names := []string{swarmset.Votes(w.count), swarmset.Starts, swarmset.Order(w.count)}
		for i, name := range names {
			if w.kernels[2+i], err = w.a.dev.Kernel(name); err != nil {
				return err
			}
		}
	}
	if w.words, err = w.a.dev.Alloc(4*int64(len(table)), "fusion"); err != nil {
		return err
	}
	if w.by != swarms.ByVote { // else Starts makes the tables
		if err := w.words.Write(0, device.Bytes(table)); err != nil {
			return err
		}
	}
	w.result, err = w.a.dev.AllocHost(w.outBytes()-w.at[len(w.at)-1][0], "fusion")
	return err
}

// outBytes returns the size of the sums and counts of all levels.
func (w *wholeFusion) outBytes() int64 {
	last := len(w.items) - 1
	return w.at[last][1] + align(4*int64(w.items[last]))
}

// open allocates what a fusion needs while it runs.
func (w *wholeFusion) open() (err error) {
	if w.out, err = w.a.dev.Alloc(w.outBytes(), "fusion"); err != nil || w.by != swarms.ByVote {
		return err
	}
	if w.order, err = w.a.dev.Alloc(4*(w.a.n+int64(w.count)*swarmset.RunRows), "fusion"); err != nil {
		return err
	}
	w.tiles, err = w.a.dev.Alloc(4*int64(w.count)*int64(w.tileCount()), "fusion")
	return err
}

func (w *wholeFusion) tileCount() int {
	return int((w.a.n + swarmset.VoteTile - 1) / swarmset.VoteTile)
}

func (w *wholeFusion) run(ctx context.Context, f *fusionRun) error {
	a := w.a
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	a.pending = true
	if w.by == swarms.ByVote {
		if err := w.sort(); err != nil {
			return err
		}
	}
	if err := w.runs(); err != nil {
		return err
	}
	for level := 1; level < len(w.items); level++ {
		shape := a.shape(2*manyRuns, 128, (w.items[level]*w.width+3)/4)
		if err := a.stream.Launch(w.kernels[1], shape, swarmset.FoldArgs{
			In: w.sums(level - 1), InCounts: w.counts(level - 1), InFirsts: w.table(level - 1), Firsts: w.table(level),
			Count: uint32(w.count), Width: uint32(w.width), Sums: w.sums(level), Counts: w.counts(level),
		}.Args()...); err != nil {
			return err
		}
	}
	from := w.at[len(w.at)-1][0]
	if err := a.stream.Download(w.result, 0, w.out, from, w.result.Size()); err != nil {
		return err
	}
	if err := a.stream.Sync(ctx); err != nil {
		return err
	}
	a.pending = false
	w.read(f)
	return nil
}

func (w *wholeFusion) teams() bool { return w.width > 1 && w.by != swarms.ByVote }

func (w *wholeFusion) runs() error {
	order, ordered := device.Ptr(w.a.scratch), uint32(swarmset.OrderedNot) // any memory
	if w.by == swarms.ByVote {
		if order, ordered = device.Ptr(w.order), swarmset.OrderedAgents; w.width == 1 {
			ordered = swarmset.OrderedEmbeddings
		}
	}
	threads := w.items[0]
	shape := func() device.Geometry { return w.a.shape(2*manyRuns, 128, (threads+127)/128) }
	level := swarmset.LevelArgs{
		Nodes: w.nodes(), Firsts: w.table(0), Count: uint32(w.count), Sums: w.sums(0), Counts: w.counts(0),
	}
	if w.teams() {
		threads *= w.width
		return w.a.stream.Launch(w.kernels[0], shape(), swarmset.TeamsArgs{
			SwarmArgs: w.a.swarmArgs(), Rows: w.rows, BF16: device.Bit(w.bf16), LevelArgs: level,
		}.Args()...)
	}
	return w.a.stream.Launch(w.kernels[0], shape(), swarmset.RunsArgs{
		SwarmArgs: w.a.swarmArgs(), Rows: w.rows, BF16: device.Bit(w.bf16), Order: order, Ordered: ordered,
		LevelArgs: level,
	}.Args()...)
}

// sort enqueues the launches that sort the agents by their votes and make the tables.
func (w *wholeFusion) sort() error {
	a, tiles := w.a, w.tileCount()
	shape := a.shape(manyRuns, 256, tiles)
	counts := device.Ptr(w.tiles)
	tiled := swarmset.TiledArgs{N: uint32(a.n), Candidates: uint32(w.count), Tiles: uint32(tiles)}
	if err := a.stream.Launch(w.kernels[2], shape, swarmset.VotesArgs{
		SwarmArgs: a.swarmArgs(), TiledArgs: tiled, Counts: counts,
	}.Args()...); err != nil {
		return err
	}
	if err := a.stream.Launch(w.kernels[3], device.Geometry{Grid: w.count, Block: 1024}, swarmset.StartsArgs{
		Counts: counts, Tiles: uint32(tiles), Candidates: uint32(w.count), Levels: uint32(len(w.items)),
		Nodes: w.nodes(), Firsts: device.Range(w.words, 4*w.tables, w.words.Size()-4*w.tables),
		Scratch: device.Ptr(a.scratch),
	}.Args()...); err != nil {
		return err
	}
	return a.stream.Launch(w.kernels[4], shape, swarmset.OrderArgs{
		SwarmArgs: a.swarmArgs(), Rows: w.rows,
		Embeddings: device.Bit(w.width == 1), // as large as the agent, and the next launch reads them in their order
		TiledArgs:  tiled, Before: counts, Nodes: w.nodes(), Order: device.Ptr(w.order),
	}.Args()...)
}

// read takes the items of the last level, one for each node, from the result.
func (w *wholeFusion) read(f *fusionRun) {
	at := w.at[len(w.at)-1]
	sums, counts := device.Of[float32](w.result.Bytes()), device.Of[uint32](w.result.Bytes()[at[1]-at[0]:])
	for node := range w.count {
		copy(f.nodes.Sums[node*f.nodes.Dim:][:f.nodes.Dim], sums[node*w.width:])
		f.nodes.Counts[node] = uint64(counts[node])
		f.nodes.Weights[node] = f.nodes.Counts[node] * consensus.One
	}
}

func (a *Agents) swarmArgs() swarmset.SwarmArgs {
	return swarmset.SwarmArgs{
		Pages: device.Ptr(a.memory.Arena()), PageBytes: uint64(a.layout.PageBytes), Frames: device.Ptr(a.frames),
		Per: a.perPage.by, Votes: a.layout.Offsets[kernels.AgentVarVote],
	}
}

func (w *wholeFusion) nodes() device.Arg { return device.Range(w.words, 0, 8*int64(w.count)) }

func (w *wholeFusion) table(level int) device.Arg {
	at := w.tables + int64(level*swarmset.TableWords(w.count))
	return device.Range(w.words, 4*at, 4*int64(w.count+1))
}

func (w *wholeFusion) sums(level int) device.Arg {
	return device.Range(w.out, w.at[level][0], 4*int64(w.items[level])*int64(w.width))
}

func (w *wholeFusion) counts(level int) device.Arg {
	return device.Range(w.out, w.at[level][1], 4*int64(w.items[level]))
}

func (w *wholeFusion) release() error {
	err := gpubatch.CloseAll(w.out, w.order, w.tiles)
	w.out, w.order, w.tiles = nil, nil, nil
	return err
}

// close releases the memory. A second call does nothing, and so does a call for a nil wholeFusion.
func (w *wholeFusion) close() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.release(), gpubatch.CloseAll(w.words, w.result))
}
