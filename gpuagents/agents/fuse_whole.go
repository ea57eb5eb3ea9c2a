package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// wholeFusion is a fusion of resident agents in one pass: the device adds up the runs of all nodes
// and then the sums of runs, level by level, in the order of fusion.Nodes. The host waits once and
// reads a sum for each node. See package swarmset.
type wholeFusion struct {
	a       *Agents
	by      string
	count   int // nodes
	width   int // elements of an embedding, with the padding of a gru
	bf16    bool
	rows    uint32           // offset of the embeddings in a page
	members []uint32         // of each node the first agent and their number; nil by vote
	items   []int            // by level: the most items
	at      [][2]int64       // by level: the places of sums and counts in out
	tables  int64            // the place of the table of level 0 in words, behind the nodes
	words   device.Buffer    // nodes and tables
	out     device.Buffer    // sums and counts of all levels
	order   device.Buffer    // by vote: the agents of each vote; else nil
	tiles   device.Buffer    // by vote: the counts of tiles; else nil
	kernels [5]device.Kernel // runs, fold; by vote: votes, starts, order
}

// fuseWhole fuses all agents in one pass, and reports false if the device has no room for that: by
// vote it needs four bytes for each agent, else up to 0.3 bytes.
func (f *fusionRun) fuseWhole(ctx context.Context) (done bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	w := &wholeFusion{
		a: f.a, by: f.by, count: len(f.chains), width: f.width, bf16: f.bf16,
		rows: f.a.layout.Offsets[f.variable],
	}
	defer func() {
		if cerr := w.close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", fault.ErrDevice, cerr))
		}
	}()
	table := w.plan(f)
	if err := w.open(); errors.Is(err, device.ErrOutOfMemory) {
		return false, nil
	} else if err != nil {
		return false, fault.Mark(err)
	}
	// A resident memory has one set.
	err = f.a.memory.Each(ctx, f.a.memory.All(), pages.SweepRead, func(int) error {
		for page, made := range f.a.memory.Made() {
			if !made {
				f.a.memory.SetAbsent(uint64(page))
			}
		}
		return w.run(context.WithoutCancel(ctx), f, table)
	})
	if err != nil {
		return false, fmt.Errorf("%w: fuse %d agents: %w", fault.ErrDevice, f.a.n, err)
	}
	return true, nil
}

// plan sets the sizes of all levels, and returns the content of words, of a fusion by vote empty.
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
	items := int(a.n) // by vote the most that there may be
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

// itemsOf returns the items of a node of n agents in a level.
func itemsOf(n uint32, level int) int {
	items := int(n)
	for range level + 1 {
		items = (items + swarmset.RunRows - 1) / swarmset.RunRows
	}
	return items
}

// align returns n rounded up to a multiple of what arguments of kernels begin at.
func align(n int64) int64 { return (n + device.RangeAlign - 1) / device.RangeAlign * device.RangeAlign }

// open allocates the memory and finds the kernels.
func (w *wholeFusion) open() (err error) {
	names := []string{swarmset.Runs(w.width), swarmset.Fold, swarmset.Votes, swarmset.Starts, swarmset.Order}
	for i, name := range names {
		if w.kernels[i], err = w.a.dev.Kernel(name); err != nil {
			return err
		}
	}
	last := len(w.items) - 1
	sizes := map[*device.Buffer]int64{
		&w.words: 4 * (w.tables + int64(len(w.items)*swarmset.TableWords(w.count))),
		&w.out:   w.at[last][1] + align(4*int64(w.items[last])),
	}
	if w.by == swarms.ByVote {
		sizes[&w.order] = 4 * (w.a.n + int64(w.count)*swarmset.RunRows)
		sizes[&w.tiles] = 4 * int64(w.count) * int64(w.tileCount())
	}
	for to, bytes := range sizes {
		if *to, err = w.a.dev.Alloc(bytes, "fusion"); err != nil {
			return err
		}
	}
	return nil
}

// tileCount returns the number of tiles in which votes are counted.
func (w *wholeFusion) tileCount() int {
	return int((w.a.n + swarmset.VoteTile - 1) / swarmset.VoteTile)
}

// run puts all launches into the stream, waits for them and reads the nodes.
func (w *wholeFusion) run(ctx context.Context, f *fusionRun, table []uint32) error {
	a := w.a
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	a.pending = true
	if w.by == swarms.ByVote {
		if err := w.sort(); err != nil {
			return err
		}
	} else if err := w.words.Write(0, device.Bytes(table)); err != nil {
		return err
	}
	order, ordered := device.Ptr(a.scratch), uint32(0) // of no meaning
	if w.by == swarms.ByVote {
		order, ordered = device.Ptr(w.order), 1
	}
	bf16 := uint32(0)
	if w.bf16 {
		bf16 = 1
	}
	args := append(
		w.head(), device.Uint32(w.rows), device.Uint32(bf16), order, device.Uint32(ordered), w.nodes(), w.table(0),
		device.Uint32(uint32(w.count)), w.sums(0), w.counts(0),
	)
	if err := a.stream.Launch(w.kernels[0], a.shape(2*manyRuns, 128, (w.items[0]+127)/128), args...); err != nil {
		return err
	}
	for level := 1; level < len(w.items); level++ {
		if err := a.stream.Launch(
			w.kernels[1], a.shape(manyRuns, 128, (w.items[level]*w.width+127)/128), w.sums(level-1), w.counts(level-1),
			w.table(level-1), w.table(level), device.Uint32(uint32(w.count)), device.Uint32(uint32(w.width)),
			w.sums(level), w.counts(level),
		); err != nil {
			return err
		}
	}
	if err := a.stream.Sync(ctx); err != nil {
		return err
	}
	a.pending = false
	return w.read(f)
}

// sort puts the launches into the stream that sort the agents by their votes and make the tables.
func (w *wholeFusion) sort() error {
	a, tiles := w.a, w.tileCount()
	shape := a.shape(manyRuns, 256, tiles)
	of := append(
		w.head(), device.Uint32(uint32(a.n)), device.Uint32(uint32(w.count)), device.Uint32(uint32(tiles)),
		device.Ptr(w.tiles),
	)
	if err := a.stream.Launch(w.kernels[2], shape, of...); err != nil {
		return err
	}
	if err := a.stream.Launch(
		w.kernels[3], device.Geometry{Grid: w.count, Block: 1024}, device.Ptr(w.tiles), device.Uint32(uint32(tiles)),
		device.Uint32(uint32(w.count)), device.Uint32(uint32(len(w.items))), w.nodes(),
		device.Range(w.words, 4*w.tables, w.words.Size()-4*w.tables), device.Ptr(a.scratch),
	); err != nil {
		return err
	}
	return a.stream.Launch(w.kernels[4], shape, append(of, w.nodes(), device.Ptr(w.order))...)
}

// read reads the items of the last level, one for each node.
func (w *wholeFusion) read(f *fusionRun) error {
	last := len(w.items) - 1
	from := w.at[last][0]
	data := make([]byte, w.out.Size()-from)
	if err := w.out.Read(from, data); err != nil {
		return err
	}
	sums, counts := device.Of[float32](data), device.Of[uint32](data[w.at[last][1]-from:])
	for node := range w.count {
		copy(f.nodes.Sums[node*f.nodes.Dim:][:f.nodes.Dim], sums[node*w.width:])
		f.nodes.Counts[node] = uint64(counts[node])
		f.nodes.Weights[node] = f.nodes.Counts[node] * consensus.One
	}
	return nil
}

// head returns the first arguments of kernels that read agents.
func (w *wholeFusion) head() []device.Arg {
	a := w.a
	return []device.Arg{
		device.Ptr(a.memory.Arena()), device.Uint64(uint64(a.layout.PageBytes)), device.Ptr(a.frames),
		device.Uint32(a.perPage.by), device.Uint32(a.layout.Offsets[kernels.AgentVarVote]),
	}
}

// nodes returns the table of nodes as an argument.
func (w *wholeFusion) nodes() device.Arg { return device.Range(w.words, 0, 8*int64(w.count)) }

// table returns the table of a level as an argument.
func (w *wholeFusion) table(level int) device.Arg {
	at := w.tables + int64(level*swarmset.TableWords(w.count))
	return device.Range(w.words, 4*at, 4*int64(w.count+1))
}

// sums returns the sums of a level as an argument.
func (w *wholeFusion) sums(level int) device.Arg {
	return device.Range(w.out, w.at[level][0], 4*int64(w.items[level])*int64(w.width))
}

// counts returns the counts of a level as an argument.
func (w *wholeFusion) counts(level int) device.Arg {
	return device.Range(w.out, w.at[level][1], 4*int64(w.items[level]))
}

// close releases the memory.
func (w *wholeFusion) close() error {
	var errs []error
	for _, b := range []device.Buffer{w.words, w.out, w.order, w.tiles} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}
