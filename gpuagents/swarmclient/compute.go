package swarmclient

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Computed is the results of a text of Compute.
type Computed struct {
	// By is group or vote, or empty for one node of all agents.
	By string
	// First is the number of the first node: of a group, or 0.
	First, Nodes int
	Outputs      []Output
}

// Output is the results of one output of a text.
type Output struct {
	// Name is the name in the text, Fold its reduction, and Kind the type of the results: f64, i64,
	// u64 or bool.
	Name, Fold, Kind string

	fold    expr.FoldText
	n, bits []byte
}

// Count returns how many elements were folded into the result of node number i, from 0 on.
func (o Output) Count(i int) uint64 { return o.at(i).N }

// Number returns the result of node number i, and false for a mean, min or max of no element.
func (o Output) Number(i int) (v float64, exists bool) { return o.fold.Number(o.at(i)) }

// Text returns the result of node number i with all its digits, or "none".
func (o Output) Text(i int) string { return o.fold.Text(o.at(i)) }

// Bits returns the result of node number i, whose count is an integer, as its bits.
func (o Output) Bits(i int) uint64 { return o.at(i).Bits }

func (o Output) at(i int) expr.Partial { return expr.PartialAt(o.n, o.bits, i) }

// Compute folds expressions over the agents of a swarm where they are, such as "mean(abs(hidden))
// by group where vote == 1"; docs/cells.md has the variables. It changes nothing.
//
// By group, want.First and want.Groups choose groups, and 0 Groups are all from First on. Their
// results come with several entries where one answer has no room for them: each of these has the
// agents as they are at its time. Sums of floats over several shards are added in the order of the
// shards. Errors of the text are jobs.CodeInvalid, with the column.
func (s *Swarm) Compute(ctx context.Context, want swarms.Compute) (*Computed, error) {
	want.Version = jobs.Version
	if err := want.Validate(); err != nil {
		return nil, err
	}
	if want.First >= max(s.record.Groups, 1) || want.Groups > s.record.Groups-want.First {
		return nil, jobs.Errorf(jobs.CodeInvalid, "compute: groups from %d on, %d of them: the swarm has %d groups",
			want.First, want.Groups, s.record.Groups)
	}
	if !s.byGroup(want.Text) {
		all, err := s.computePart(ctx, want, nil)
		if err != nil {
			return nil, err
		}
		return s.computed(all)
	}
	end := s.record.Groups
	if want.Groups > 0 {
		end = want.First + want.Groups
	}
	var parts []swarms.Computed
	outputs := strings.Count(want.Text, ";") + 1 // or fewer
	for first := want.First; first < end; first += swarms.MaxResults / outputs {
		part := want
		part.First, part.Groups = first, min(swarms.MaxResults/outputs, end-first)
		c, err := s.computePart(ctx, part, func(k int) bool {
			a, b := s.record.ShardGroups(k)
			return a < part.First+part.Groups && part.First < b
		})
		if err != nil {
			return nil, err
		}
		parts = append(parts, c)
	}
	all, err := MergeComputed(parts)
	if err != nil {
		return nil, s.badAnswer(err)
	}
	return s.computed(all)
}

// Results returns an upper bound of the number of results of a text: its nodes times its outputs.
func (s *Swarm) Results(want swarms.Compute) int {
	nodes := len(s.spec.Vote.Candidates) + 1
	if s.byGroup(want.Text) {
		nodes = max(s.record.Groups-want.First, 0)
		if want.Groups > 0 {
			nodes = want.Groups
		}
	}
	return nodes * (strings.Count(want.Text, ";") + 1)
}

// byGroup reports whether results of a text may be too many for an answer. It need not be right for
// texts that are refused.
func (s *Swarm) byGroup(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	for i := range words {
		if words[i] == "by" && i+1 < len(words) && words[i+1] == swarms.ByGroup {
			return true
		}
	}
	return false
}

// computePart asks the shards for which has is true (nil: all), and merges their answers.
func (s *Swarm) computePart(ctx context.Context, want swarms.Compute, has func(k int) bool) (
	c swarms.Computed, err error,
) {
	all, err := ask(ctx, s, swarms.EntryCompute, has, func(int) ([]byte, error) { return json.Marshal(want) },
		swarms.EntryComputed, swarms.DecodeComputed)
	if err != nil {
		return c, err
	}
	var asked []swarms.Computed
	for k := range all {
		if has == nil || has(k) {
			asked = append(asked, all[k])
		}
	}
	c, err = MergeComputed(asked)
	return c, s.badAnswer(err)
}

func (s *Swarm) computed(all swarms.Computed) (*Computed, error) {
	c := &Computed{By: all.By, First: all.First, Nodes: all.Nodes}
	for _, o := range all.Outputs {
		f, err := expr.FoldOf(o.Fold, o.Type)
		if err != nil {
			return nil, s.badAnswer(err)
		}
		c.Outputs = append(c.Outputs, Output{
			Name: o.Name, Fold: o.Fold, Kind: f.Kind(), fold: f, n: o.N, bits: o.Bits,
		})
	}
	return c, nil
}
