package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/conversations"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// conversationState is the State of a swarm whose agents are conversations, or of one shard of such
// a swarm. Entries and answers have the ids of the swarm. It takes no observations. The goroutine
// that serves the shard uses it, after equip.
type conversationState struct {
	all      *conversations.Conversations
	dev      device.Device
	spec     *swarm.Spec
	layout   kernels.Layout // of the records
	groups   GroupRange
	options  conversations.Options
	rounds   *Rounds   // with the leader of the last round
	computer *computer // nil before the first question that needs it
}

// newConversationState allocates the conversations of a shard; see newAgentState.
func newConversationState(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange) (*conversationState,
	error,
) {
	if spec.Cell.CacheBytes == 0 {
		return nil, jobs.Errorf(jobs.CodeInvalid, "cell.cache_bytes is missing, the bytes of a position: create the "+
			"swarm with --snapshots, which fills it in")
	}
	cell, err := spec.Fit()
	if err != nil {
		return nil, err
	}
	layout, err := cell.Layout(int(spec.PageSize))
	if err != nil {
		return nil, err
	}
	s := &conversationState{dev: dev, spec: spec, layout: layout, groups: p, options: conversations.Options{
		Layout: layout, Agents: p.Groups * layout.Agents, First: uint32(p.First * layout.Agents),
		Context: int(cell.Value("context")), Chunk: int(cell.Value("chunk")), Seed: spec.Seed,
		CacheBytes: spec.Cell.CacheBytes,
	}}
	s.all, err = conversations.New(dev, b, s.options)
	return s, err
}

// conversationVariables returns the variables of a conversation that can be asked for.
func conversationVariables(l kernels.Layout) (all []raster.Var) {
	for i, name := range []string{
		cells.ProgressRead: "read", cells.ProgressTokens: "tokens", cells.ProgressLeft: "left",
		cells.ProgressActive: "active", cells.ProgressEnded: "ended",
	} {
		all = append(all, raster.Var{Name: name, Of: cells.ConversationProgress, First: i, Count: 1})
	}
	return append(all, raster.Var{
		Name: "text", Of: cells.ConversationText, Count: l.Vars[cells.ConversationText].Width,
	})
}

// Info implements State. The digest covers everything that decides the meaning of a page.
func (s *conversationState) Info() Info {
	what := fmt.Sprintf("conversations, model %s, exact %v, %d bytes a position\n%+v, seed %d, %v, tokens %d",
		s.spec.Cell.ModelSHA256, s.spec.Cell.Exact, s.options.CacheBytes, s.layout, s.spec.Seed, s.groups,
		s.spec.Vote.Tokens)
	return Info{
		Cell: cells.TransformerName, Agents: int64(s.options.Agents), Stepped: 1, Checkpoint: s.spec.Checkpoint,
		Digest: digestOf(what, languageset.Names()...),
	}
}

func (s *conversationState) Memory() *pages.Memory { return s.all.Memory() }

func (s *conversationState) Reset(ctx context.Context) error { return s.all.Reset(ctx) }

// Restored implements State. Records are read from the pages, and caches that are not there are made
// from the tokens.
func (s *conversationState) Restored(ctx context.Context) error { return s.all.Restored(ctx) }

// Trace implements State. There are no batches.
func (s *conversationState) Trace(*gpubatch.Track) {}

func (s *conversationState) Reduce(on bool) { s.all.Reduce(on) }

// Close implements State.
func (s *conversationState) Close() error { return errors.Join(s.computer.Close(), s.all.Close()) }

// Decode implements State: conversations take no observations.
func (s *conversationState) Decode([]byte) (Observations, error) {
	return Observations{}, jobs.Errorf(jobs.CodeInvalid, "observe: agents of the cell transformer are conversations: "+
		"give them tokens with exoswarm swarm say")
}

// NewBatch implements State. No entry gets into the batch, since Decode refuses all.
func (s *conversationState) NewBatch() Batch { return noBatch{} }

type noBatch struct{}

func (noBatch) Add(Observations) {}

func (noBatch) Observe(context.Context) ([]Answer, error) { return nil, nil }

// Apply implements State. It completes all entries but ticks after the end of ctx: after an
// interrupted tick the caller discards the pages.
func (s *conversationState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
	wait := context.WithoutCancel(ctx)
	switch e.Kind {
	case swarms.EntryPrompt:
		p, err := swarms.DecodePrompt(e.Data)
		return s.place(p.Agent, err, func(agent int) (int, error) { return s.all.Prompt(wait, agent, p) })
	case swarms.EntryCancel:
		c, err := swarms.DecodeCancel(e.Data)
		return s.place(c.Agent, err, func(agent int) (int, error) { return s.all.Cancel(wait, agent) })
	case swarms.EntryRewind:
		r, err := swarms.DecodeRewind(e.Data)
		return s.place(r.Agent, err, func(agent int) (int, error) { return r.To, s.all.Rewind(wait, agent, r.To) })
	case swarms.EntryFork:
		f, err := swarms.DecodeFork(e.Data)
		return s.place(f.Into, err, func(into int) (int, error) { return s.fork(wait, f, into) })
	case swarms.EntryTick:
		return s.tick(ctx, e.Data)
	case swarms.EntryQuery:
		return s.query(wait, e.Data)
	case swarms.EntryVote:
		return s.vote(ctx, e.Data)
	case swarms.EntryFuse:
		return s.fuse(ctx, e.Data)
	case swarms.EntryCompute:
		return s.compute(ctx, e.Data)
	case swarms.EntryLearn:
		return Answer{}, noKnowledge("learn")
	case swarms.EntryObserve:
		_, err := s.Decode(e.Data)
		return Answer{}, err
	}
	return Answer{}, unknownKind(e)
}

// own returns an agent of the swarm as one of the shard.
func (s *conversationState) own(what string, agent uint32) (int, error) {
	if _, err := s.groups.owns([]uint32{agent}, s.layout.Agents, "agent"); err != nil {
		return 0, jobs.Errorf(jobs.CodeInvalid, "%s: agent %v", what, err)
	}
	return int(agent - s.options.First), nil
}

// place answers an entry for a conversation with how many tokens it has behind what do has done.
func (s *conversationState) place(id uint32, err error, do func(agent int) (at int, err error)) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	agent, err := s.own("conversation", id)
	if err != nil {
		return Answer{}, err
	}
	at, err := do(agent)
	if err != nil {
		return Answer{}, err
	}
	data, err := json.Marshal(swarms.Place{Version: jobs.Version, Agent: id, At: at})
	return Answer{Kind: swarms.EntryPlace, Data: data}, err
}

func (s *conversationState) fork(ctx context.Context, f swarms.Fork, into int) (at int, err error) {
	agent, err := s.own("fork", f.Agent)
	if err != nil {
		return 0, err
	}
	if _, at, _ = s.all.Progress(agent); f.To != nil {
		at = *f.To
	}
	return at, s.all.Fork(ctx, agent, into, at)
}

// tick answers an entry that steps all active conversations, as many times as it says.
func (s *conversationState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err == nil {
		err = merging{}.check(t)
	}
	if err != nil {
		return Answer{}, err
	}
	rows, steps, err := s.all.Tick(ctx, t.Count)
	if err != nil {
		return Answer{}, err
	}
	none := len(s.spec.Vote.Candidates)
	done := swarms.Ticked{
		Version: jobs.Version, Stepped: uint64(t.Count) * uint64(s.options.Agents), Tally: make([]uint64, none),
		Decided: make([]uint64, none), Undecided: uint64(s.groups.Groups), Tokens: rows, Active: s.all.Active(),
	}
	data, err = json.Marshal(done)
	return Answer{Kind: swarms.EntryTicked, Data: data, Steps: int64(steps), Ticked: &done}, err
}

// query answers the text of a conversation, or the progress of some.
func (s *conversationState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	if err != nil {
		return Answer{}, err
	}
	if q.Text != nil {
		agent, err := s.own("query", q.Text.Agent)
		if err != nil {
			return Answer{}, err
		}
		text, err := s.all.Text(agent, q.Text.From)
		if err == nil && q.Text.Embedding {
			err = s.all.Look(ctx, []int{agent}, nil, func(_ int, embedding, _ []float32) {
				text.Embedding = slices.Clone(embedding)
			})
		}
		if err != nil {
			return Answer{}, err
		}
		data, err = json.Marshal(text)
		return Answer{Kind: swarms.EntryText, Data: data}, err
	}
	const width = 3
	if most := swarms.MaxState / (4 + 1 + 4*width); len(q.Agents) == 0 || len(q.Agents) > most {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: %d agents: ask for 1 to %d conversations at a time",
			len(q.Agents), most)
	}
	if _, err := s.groups.owns(q.Agents, s.layout.Agents, "agent"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: agent %v", err)
	}
	found := &batch.AgentStates{Agent: q.Agents, Width: width}
	for _, id := range q.Agents {
		read, tokens, left := s.all.Progress(int(id - s.options.First))
		found.Vote = append(found.Vote, kernels.AgentNoVote)
		found.State = append(found.State, float32(read), float32(tokens), float32(left))
	}
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}

// compute answers folds of expressions over the records.
func (s *conversationState) compute(ctx context.Context, data []byte) (Answer, error) {
	if s.computer == nil {
		s.computer = newComputer(computedShard{
			Device: s.dev, Memory: s.all.Memory(), Layout: s.layout, Vars: conversationVariables(s.layout),
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All,
		})
	}
	return computed(ctx, s.computer, data)
}

// agents returns all agents of the shard.
func (s *conversationState) agents() []int {
	all := make([]int, s.options.Agents)
	for i := range all {
		all[i] = i
	}
	return all
}

// vote answers a vote of all conversations that have read tokens: the ballot of each is the
// candidate whose first token is the likeliest behind them. The end of ctx interrupts it between two
// sets of pages.
func (s *conversationState) vote(ctx context.Context, data []byte) (Answer, error) {
	v, err := swarms.DecodeVote(data)
	if err != nil {
		return Answer{}, err
	}
	rule, err := swarm.VoteRule(v)
	if err != nil {
		return Answer{}, err
	}
	if err := s.votes(); err != nil {
		return Answer{}, err
	}
	e, err := s.election(ctx, v.Round)
	if err != nil {
		return Answer{}, err
	}
	elected := v.Priority == swarms.PriorityElected
	d, err := e.Decide(rule)
	if d.Round = v.Round; !elected {
		d.Leader = s.groups.leader(s.spec.Seed, v.Round, s.layout.Agents, v.Priority == swarms.PrioritySeeded)
	}
	if err != nil {
		return Answer{}, err
	}
	voted := swarm.NewVoted(d)
	switch {
	case elected && s.groups.Shards == 1:
		voted = swarm.NewElected(d)
	case elected: // the winner of the swarm is not known here
		voted.Leader, voted.Bids = nil, swarm.NewBids(e)
	}
	data, err = json.Marshal(voted)
	return Answer{Kind: swarms.EntryVoted, Data: data, Voted: &voted}, err
}

// votes refuses what needs ballots in a swarm whose record has no tokens of its candidates.
func (s *conversationState) votes() error {
	if len(s.spec.Vote.Tokens) == 0 {
		return jobs.Errorf(jobs.CodeInvalid, "vote: the swarm has no tokens of its candidates: create it with "+
			"--snapshots, and a model with a tokenizer, or write vote.tokens")
	}
	return nil
}

// election returns the ballots of all conversations, with the best bid for each candidate.
func (s *conversationState) election(ctx context.Context, round uint64) (consensus.Election, error) {
	e, err := consensus.NewElection(len(s.spec.Vote.Candidates))
	if err != nil {
		return e, err
	}
	draw, leads := consensus.NewDraw(s.spec.Seed, round), consensus.Leader{}
	if last := s.rounds.Outcome(); last != nil && last.Leader != nil {
		leads = consensus.Leader{Agent: uint64(last.Leader.Agent), Term: last.Term, Elected: true}
	}
	cast := uint64(0)
	err = s.all.Look(ctx, s.agents(), s.spec.Vote.Tokens, func(agent int, _, logits []float32) {
		id := s.options.First + uint32(agent)
		of := conversations.Ballot(logits)
		bid := consensus.Leader{Agent: uint64(id), Priority: draw.Priority(id), Elected: true}
		if leads.Elected && leads.Agent == bid.Agent {
			bid.Term = leads.Term
		}
		e.Bid(of, bid)
		e.Tally.Counts[of]++
		cast++
	})
	e.Tally.Total = uint64(s.options.Agents)
	e.Tally.Abstentions = e.Tally.Total - cast
	return e, err
}

// fuse answers the means of the embeddings of conversations that have read tokens, by node.
func (s *conversationState) fuse(ctx context.Context, data []byte) (Answer, error) {
	want, err := swarms.DecodeFuse(data)
	if err != nil {
		return Answer{}, err
	}
	all, first, n := 1, 0, 1
	switch want.By {
	case swarms.ByVote:
		if err := s.votes(); err != nil {
			return Answer{}, err
		}
		all = len(s.spec.Vote.Candidates)
		n = all
	case swarms.ByGroup:
		g := s.groups
		if all = want.Nodes; all == 0 {
			all = g.All
		}
		if all > g.All {
			return Answer{}, jobs.Errorf(jobs.CodeInvalid, "fuse: nodes %d: the swarm has %d groups: use at most as "+
				"many", want.Nodes, g.All)
		}
		first = g.First * all / g.All
		n = (g.First+g.Groups-1)*all/g.All - first + 1
	}
	width := s.all.EmbeddingWidth()
	if err := checkNodes(n, width); err != nil {
		return Answer{}, err
	}
	nodes, err := fusion.NewNodes(n, width)
	if err != nil {
		return Answer{}, err
	}
	var members []uint32
	var embeddings []float32
	err = s.all.Look(ctx, s.agents(), s.spec.Vote.Tokens, func(agent int, embedding, logits []float32) {
		node := 0
		switch want.By {
		case swarms.ByVote:
			node = conversations.Ballot(logits)
		case swarms.ByGroup:
			node = (s.groups.First+agent/s.layout.Agents)*all/s.groups.All - first
		}
		members, embeddings = append(members, uint32(node)), append(embeddings, embedding...)
	})
	if err != nil {
		return Answer{}, err
	}
	if _, err := nodes.Accumulate(members, embeddings, nil); err != nil {
		return Answer{}, err
	}
	return answerFusion(want, first, nodes, 0)
}
