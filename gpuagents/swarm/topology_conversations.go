package swarm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// conversationRules are the rules of swarms whose agents are conversations with a language model. A
// group is one agent where the specification names no other size.
type conversationRules struct{ agentRules }

func (r conversationRules) defaults(s *Spec) {
	setDefault(&s.AgentsPerGroup, 1)
	if len(s.Vote.Candidates) == 0 {
		s.Vote.Candidates = []string{"yes", "no"}
	}
	r.agentRules.defaults(s)
}

func (conversationRules) cell(*Spec) (*cells.Addressed, error) {
	return nil, errors.New("agents of the cell transformer are conversations, which no observation steps")
}

func (conversationRules) fit(s *Spec) (Fitted, error) {
	voting, err := s.voting()
	if err != nil {
		return nil, err
	}
	return cells.BindTransformer(s.Cell.Params, s.AgentsPerGroup, voting)
}

// maxCachePages bounds the tables of pages of a swarm.
const maxCachePages = 1 << 24

// layout implements topologyRules. It returns the layout of the records.
func (conversationRules) layout(s *Spec, cell Fitted) (kernels.Layout, error) {
	each := s.Cell.CacheBytes
	switch most := int64(maxCachePages); {
	case each > 0 && s.CachePositions() == 0:
		return kernels.Layout{}, fmt.Errorf("page_size %v: a position of a conversation takes %d bytes: use a "+
			"multiple of 4 KiB that is larger", s.PageSize, each)
	case each > 0 && s.CachePages() > most/max(1, s.Agents):
		return kernels.Layout{}, fmt.Errorf("page_size %v: %d conversations have %d pages each, more than %d in all: "+
			"use larger pages, or fewer agents", s.PageSize, s.Agents, s.CachePages(), most)
	}
	return cell.Layout(int(s.PageSize))
}

// CachePositions returns how many positions of one conversation a page has; 0: the model is not
// known.
func (s *Spec) CachePositions() int {
	if s.Cell.CacheBytes <= 0 {
		return 0
	}
	return int(int64(s.PageSize) / s.Cell.CacheBytes)
}

// CachePages returns how many pages the cache of a conversation has when its context is full; 0:
// the model is not known, or agents are no conversations.
func (s *Spec) CachePages() int64 {
	n := int64(s.CachePositions())
	cell, err := s.Fit()
	if n == 0 || err != nil {
		return 0
	}
	return (int64(cell.Value("context")) + n - 1) / n
}

// Conversations reports whether the agents are conversations.
func (s *Spec) Conversations() bool { return s.Topology().Name == TopologyConversations }

func (s *Spec) validateConversations() (path []string, err error) {
	c, is := s.Cell, s.Conversations()
	if !is {
		switch {
		case c.Exact:
			return []string{"cell", "exact"}, errors.New("exact: it is for the cell transformer: leave it out")
		case c.CacheBytes != 0:
			return []string{"cell", "cache_bytes"}, errors.New("cache_bytes: it is for the cell transformer: leave " +
				"it out")
		case len(s.Vote.Tokens) > 0:
			return []string{"vote", "tokens"}, errors.New("tokens: they are for the cell transformer: leave them out")
		}
		return nil, nil
	}
	switch {
	case c.Model == "":
		return []string{"cell"}, errors.New("cell kind transformer: its language model is missing: write model: " +
			"NAME; exoswarm model list shows those there are")
	case !c.Exact:
		return []string{"cell"}, errors.New("cell kind transformer: write exact: true, so that a replay of the log " +
			"has the same bits on each device; without it there is no replay yet")
	case c.CacheBytes < 0 || c.CacheBytes > maxPage:
		return []string{"cell", "cache_bytes"}, fmt.Errorf("cache_bytes %d: use the bytes of a position, up to %d, or "+
			"leave it out", c.CacheBytes, maxPage)
	case len(s.Hear) > 0:
		return []string{"hear"}, errors.New("hear: conversations read prompts and hear nothing else: leave it out")
	case len(s.Vote.Tokens) > 0 && len(s.Vote.Tokens) != len(s.Vote.Candidates):
		return []string{"vote", "tokens"}, fmt.Errorf("%d tokens for %d candidates: write the first token of each, or "+
			"leave them out", len(s.Vote.Tokens), len(s.Vote.Candidates))
	}
	for i, t := range s.Vote.Tokens {
		switch same := slices.Index(s.Vote.Tokens[:i], t); {
		case t < 0:
			return []string{"vote", "tokens"}, fmt.Errorf("token %d of candidate %q: use 0 or more", t,
				s.Vote.Candidates[i])
		case same >= 0:
			return []string{"vote", "candidates"}, fmt.Errorf("candidates %q and %q begin with the same token, %d: a "+
				"ballot is the likeliest first token: use other texts", s.Vote.Candidates[same],
				s.Vote.Candidates[i], t)
		}
	}
	return nil, nil
}
