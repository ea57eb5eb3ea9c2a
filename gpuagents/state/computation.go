package state

// This file folds expressions over the agents of a shard, in the pages where they are.
//
// A text such as "mean(abs(hidden)) by group where vote == 1" becomes one kernel that reads the
// variables it names from the pages, and nothing else. A device that compiles no kernels computes
// the same bits on the cores of the host. The results do not depend on where pages are, nor on how
// many of them fit on the device.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type computedShard struct {
	Device device.Device
	Memory *pages.Memory
	Layout kernels.Layout
	// Vars are the variables that a text may name.
	Vars []raster.Var
	// First is the shard's first group in the swarm. Groups is the number of groups of the shard,
	// and All of the swarm.
	First, Groups, All int
	// Candidates is how many outcomes the votes of agents have; 0: agents keep no vote.
	Candidates int
}

// computer computes expressions over a shard. The goroutine that uses the memory of the shard uses
// it, and closes it before the memory and the device. Nothing is allocated before the first text.
type computer struct {
	s       computedShard
	sources []expr.Source
	layout  expr.PageLayout

	texts   map[string]*expr.Folds
	kernels map[kernelKey]device.Kernel
	stream  device.Stream
	frames  device.Buffer     // the frames of the pages of a launch
	sent    []uint32          // what frames has
	state   device.Buffer     // sums between launches
	out     device.HostBuffer // results, which kernels write
}

// kernelKey is what a kernel depends on in addition to the layout.
type kernelKey struct {
	text  string
	votes int
	group bool
}

// maxKernels is how many texts and kernels are kept. Other ones are compiled again, mostly by the
// cache of the device.
const maxKernels = 64

func newComputer(s computedShard) *computer {
	c := &computer{s: s, texts: map[string]*expr.Folds{}, kernels: map[kernelKey]device.Kernel{}}
	l := s.Layout
	c.layout = expr.PageLayout{
		PageBytes: int64(l.PageBytes), Agents: l.Agents, Slots: l.Slots, Vars: map[string]expr.PageVar{},
	}
	types := map[kernels.Elem]ir.Type{
		kernels.F32: ir.F32, kernels.BF16: ir.BF16, kernels.U32: ir.U32, kernels.U8: ir.U8, kernels.U64: ir.U32,
	}
	for _, v := range s.Vars {
		of := l.Vars[v.Of]
		t, known := types[of.Elem]
		if !known {
			continue
		}
		units, size := int64(l.Slots), int64(of.Elem.Bytes())
		if !of.Group {
			units *= int64(l.Agents)
		}
		p := expr.PageVar{
			Off: int64(l.Offsets[v.Of]), Unit: size, Elem: units * size, Bytes: of.Elem.Bytes(), Group: of.Group,
			Vote: v.Votes,
		}
		if of.Together {
			p.Unit, p.Elem = int64(of.Width)*size, size
		}
		p.Off += int64(v.First) * p.Elem
		c.layout.Vars[v.Name] = p
		c.sources = append(c.sources, expr.Source{Name: v.Name, Type: t, Width: int64(v.Count)})
	}
	for _, name := range []string{expr.AgentInput, expr.GroupInput} {
		if _, taken := c.layout.Vars[name]; !taken {
			c.sources = append(c.sources, expr.Source{Name: name, Type: ir.U32, Width: 1})
		}
	}
	return c
}

// Compute answers a question. Mistakes of the client are a *jobs.Error, which changes nothing. The
// end of ctx is an error that leaves no answer. The work that the caller has put on the device must
// be done.
func (c *computer) Compute(ctx context.Context, want swarms.Compute) (swarms.Computed, error) {
	f := c.texts[want.Text]
	if f == nil {
		var err error
		if f, err = expr.ParseFolds(want.Text, nodes, c.sources...); err != nil {
			return swarms.Computed{}, refuse(err)
		}
		if len(c.texts) >= maxKernels {
			clear(c.texts)
		}
		c.texts[want.Text] = f
	}
	j, err := c.job(f, want)
	if err != nil {
		return swarms.Computed{}, err
	}
	results, err := c.run(ctx, j)
	if err != nil {
		return swarms.Computed{}, err
	}
	return j.answer(results), nil
}

var nodes = []string{swarms.ByGroup, swarms.ByVote, swarms.ByAll}

// refuse returns an error of a text as a *jobs.Error.
func refuse(err error) error {
	var syntax *expr.SyntaxError
	if errors.As(err, &syntax) {
		return jobs.Errorf(jobs.CodeInvalid, "compute: column %d: %s", syntax.Offset+1, syntax.Text)
	}
	return jobs.Errorf(jobs.CodeInvalid, "compute: %v", err)
}

type job struct {
	f        *expr.Folds
	text     string
	votes    int  // nodes by vote; 0: not by vote
	group    bool // a node for each group
	from, to int  // groups of the shard whose agents are folded
	first    int  // number of the first node
	shard    *computedShard
}

// job checks a question, and returns what there is to compute.
func (c *computer) job(f *expr.Folds, want swarms.Compute) (*job, error) {
	j := &job{f: f, text: want.Text, to: c.s.Groups, shard: &c.s}
	switch f.By {
	case swarms.ByVote:
		if j.votes = c.s.Candidates; j.votes == 0 {
			return nil, jobs.Errorf(jobs.CodeInvalid, "compute: by vote: the agents of this swarm keep no vote: use "+
				"by group or by all")
		}
	case swarms.ByGroup:
		j.group = true
	}
	if !j.group {
		if want.First != 0 || want.Groups != 0 {
			return nil, jobs.Errorf(jobs.CodeInvalid, "compute: first %d, groups %d: only a text by group has them",
				want.First, want.Groups)
		}
		if n := max(j.votes, 1) * len(f.All); n > swarms.MaxResults {
			return nil, jobs.Errorf(jobs.CodeInvalid, "compute: %d results: ask for at most %d", n, swarms.MaxResults)
		}
		return j, nil
	}
	end := c.s.All
	if want.Groups > 0 {
		end = want.First + want.Groups
	}
	if want.First >= c.s.All || end > c.s.All || end < want.First {
		return nil, jobs.Errorf(jobs.CodeInvalid, "compute: first %d, groups %d: the swarm has %d groups", want.First,
			want.Groups, c.s.All)
	}
	j.from = min(max(want.First-c.s.First, 0), c.s.Groups)
	j.to = max(min(end-c.s.First, c.s.Groups), j.from)
	j.first = c.s.First + j.from
	if most := swarms.MaxResults / len(f.All); j.to-j.from > most {
		return nil, jobs.Errorf(jobs.CodeInvalid, "compute: %d groups: ask for at most %d of this text at a time, "+
			"with first and groups", j.to-j.from, most)
	}
	return j, nil
}

// pages returns the pages of the groups of a job, from first to end-1.
func (j *job) pages() (first, end int) {
	slots := j.shard.Layout.Slots
	return j.from / slots, (j.to + slots - 1) / slots
}

// answer returns results as an answer. They have all outputs of the first node, then all outputs of
// the second node, and so on.
func (j *job) answer(results []expr.Partial) swarms.Computed {
	outputs := len(j.f.All)
	a := swarms.Computed{Version: jobs.Version, By: j.f.By, First: j.first, Nodes: len(results) / outputs}
	if a.By == swarms.ByAll {
		a.By = ""
	}
	for k, f := range j.f.All {
		n, bits := make([]uint64, a.Nodes), make([]uint64, a.Nodes)
		for i := range n {
			n[i], bits[i] = results[i*outputs+k].N, results[i*outputs+k].Bits
		}
		a.Outputs = append(a.Outputs, swarms.ComputedOutput{
			Name: f.Name, Fold: f.Fold, Type: f.Type.String(), N: device.Bytes(n), Bits: device.Bytes(bits),
		})
	}
	return a
}

// Close releases what the computer has on the device. A second call does nothing.
func (c *computer) Close() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.stream != nil {
		errs = append(errs, c.stream.Close())
	}
	for _, b := range []device.Buffer{c.frames, c.state} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	if c.out != nil {
		errs = append(errs, c.out.Close())
	}
	c.stream, c.frames, c.state, c.out, c.sent = nil, nil, nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("computation: %w", err)
	}
	return nil
}

// Names returns the names that a text may use.
func (c *computer) Names() []string {
	var names []string
	for _, s := range c.sources {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func computed(ctx context.Context, c *computer, data []byte) (Answer, error) {
	want, err := swarms.DecodeCompute(data)
	if err != nil {
		return Answer{}, err
	}
	found, err := c.Compute(ctx, want)
	if err != nil {
		return Answer{}, err
	}
	data, err = json.Marshal(found)
	return Answer{Kind: swarms.EntryComputed, Data: data}, err
}
