package swarm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// When a rule of a specification applies, beside the names of the candidates.
const (
	WhenAny     = "any"     // every decided round
	WhenNone    = "none"    // a round without a winner
	WhenChanged = "changed" // a round with another winner than the round before
)

// Limits of the rules of a specification.
const (
	maxRules   = 16
	maxActions = 8
	// MaxReactionTicks is the largest number of ticks of one action. A vote waits for them.
	MaxReactionTicks = 1000
)

// Rule is a line of on_decision: WHEN -> ACTION, ACTION. Package swarms has the actions.
type Rule struct {
	When    string            // a candidate, WhenAny, WhenNone or WhenChanged
	Actions []swarms.Reaction // in the order of the line, without the number of the rule
}

// Rules are the rules of a swarm, in the order of the specification.
type Rules []Rule

// actions are the words that a rule may have behind its arrow.
var actions = []string{swarms.ReactTick, swarms.ReactReset, swarms.ReactEmit, swarms.ReactSubmit}

// ParseRule reads a rule of a swarm with these candidates. The error says what is wrong and what is
// valid.
func ParseRule(text string, candidates []string) (r Rule, err error) {
	when, do, ok := strings.Cut(text, "->")
	if r.When = strings.TrimSpace(when); !ok {
		return r, fmt.Errorf("%.100q has no arrow: write WHEN -> ACTION, as in %s -> emit news", text, WhenChanged)
	}
	words := []string{WhenAny, WhenNone, WhenChanged}
	if slices.Contains(candidates, r.When) && slices.Contains(words, r.When) {
		return r, fmt.Errorf("%.100q: %s is a candidate and a word of rules: give the candidate another name", text,
			r.When)
	}
	if words = slices.Concat(candidates, words); !slices.Contains(words, r.When) {
		return r, fmt.Errorf("%.100q: when %.100q: did you mean %q? There are %v", text, r.When,
			strictyaml.Nearest(r.When, words), words)
	}
	for one := range strings.SplitSeq(do, ",") {
		a, err := parseAction(strings.Fields(one))
		if err != nil {
			return r, fmt.Errorf("%.100q: %w", text, err)
		}
		r.Actions = append(r.Actions, a)
	}
	if n := len(r.Actions); n > maxActions {
		return r, fmt.Errorf("%.100q: %d actions: use at most %d", text, n, maxActions)
	}
	return r, nil
}

func parseAction(words []string) (a swarms.Reaction, err error) {
	if len(words) == 0 {
		return a, errors.New("an action is empty: write tick N, reset, emit NAME or submit JOB, with commas " +
			"between them")
	}
	a.Action = words[0]
	of := func(n int, example string) error {
		if len(words) != n {
			return fmt.Errorf("%.100q: write %s", strings.Join(words, " "), example)
		}
		return nil
	}
	switch a.Action {
	case swarms.ReactTick:
		if err := of(2, "tick N, as in tick 1"); err != nil {
			return a, err
		}
		a.Count, err = strconv.Atoi(words[1])
		if err != nil || a.Count < 1 || a.Count > MaxReactionTicks {
			return a, fmt.Errorf("tick %.100s: use 1 to %d", words[1], MaxReactionTicks)
		}
	case swarms.ReactReset:
		return a, of(1, "reset alone")
	case swarms.ReactEmit:
		if err := of(2, "emit NAME, as in emit news"); err != nil {
			return a, err
		}
		a.Name = words[1]
		return a, jobs.CheckID("emit", a.Name)
	case swarms.ReactSubmit:
		if err := of(2, "submit JOB, as in submit retrain"); err != nil {
			return a, err
		}
		a.Name = words[1]
		return a, jobs.CheckID("submit", a.Name)
	default:
		return a, fmt.Errorf("action %.100q: did you mean %q? There are %v", a.Action,
			strictyaml.Nearest(a.Action, actions), actions)
	}
	return a, nil
}

// Rules returns the rules of the specification, which are valid after validate.
func (s *Spec) Rules() (Rules, error) {
	var all Rules
	for _, text := range s.OnDecision {
		r, err := ParseRule(text, s.Vote.Candidates)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (s *Spec) validateRules() (path []string, err error) {
	path = []string{"on_decision"}
	switch n := len(s.OnDecision); {
	case n == 0 && len(s.Jobs) > 0:
		return []string{"jobs"}, errors.New("jobs: rules submit them, and there are none: write on_decision, or " +
			"leave them out")
	case n == 0:
		return nil, nil
	case s.Topology().Name != TopologyAgents:
		return path, errors.New("on_decision: the agents of this swarm hold no rounds of votes: write addressed: " +
			"agent with the cell gru or leaky, or leave it out")
	case s.Shards > 1:
		return path, fmt.Errorf("on_decision: each of %d shards has a log of its own, and no order of their entries "+
			"lets all of them react once: leave shards out, or the rules", s.Shards)
	case n > maxRules:
		return path, fmt.Errorf("on_decision: %d rules: use at most %d", n, maxRules)
	}
	return s.validateJobs()
}

// React returns what follows a decision, in order: the actions of each rule that applies to it.
// last is the outcome of the round before; nil: there was none. The result depends on the arguments
// alone.
func (all Rules) React(v, last *swarms.Voted, candidates []string) (do []swarms.Reaction) {
	for i, r := range all {
		if !r.applies(v, last, candidates) {
			continue
		}
		for _, a := range r.Actions {
			a.Rule = i + 1
			do = append(do, a)
		}
	}
	return do
}

func (r Rule) applies(v, last *swarms.Voted, candidates []string) bool {
	switch r.When {
	case WhenAny:
		return v.Winner != nil
	case WhenNone:
		return v.Winner == nil
	case WhenChanged:
		if last == nil || last.Winner == nil || v.Winner == nil {
			return (last == nil || last.Winner == nil) != (v.Winner == nil)
		}
		return *last.Winner != *v.Winner
	}
	return v.Winner != nil && candidates[*v.Winner] == r.When
}

// Emits reports whether a rule emits decisions.
func (all Rules) Emits() bool { return all.do(swarms.ReactEmit) }

// Submits reports whether a rule submits jobs.
func (all Rules) Submits() bool { return all.do(swarms.ReactSubmit) }

func (all Rules) do(action string) bool {
	return slices.ContainsFunc(all, func(r Rule) bool {
		return slices.ContainsFunc(r.Actions, func(a swarms.Reaction) bool { return a.Action == action })
	})
}
