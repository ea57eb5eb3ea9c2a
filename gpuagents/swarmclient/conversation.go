package swarmclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Prompt gives a conversation tokens to read, and has it make an answer in the next ticks. It
// returns the position of the first token of the answer.
func (s *Swarm) Prompt(ctx context.Context, p swarms.Prompt) (at int, err error) {
	p.Version = jobs.Version
	return s.place(ctx, p.Agent, swarms.EntryPrompt, p)
}

// Cancel ends the answer of a conversation. It returns how many tokens the conversation has.
func (s *Swarm) Cancel(ctx context.Context, agent uint32) (at int, err error) {
	return s.place(ctx, agent, swarms.EntryCancel, swarms.Cancel{Version: jobs.Version, Agent: agent})
}

// Rewind shortens a conversation to its first tokens, and ends its answer.
func (s *Swarm) Rewind(ctx context.Context, agent uint32, to int) error {
	_, err := s.place(ctx, agent, swarms.EntryRewind, swarms.Rewind{Version: jobs.Version, Agent: agent, To: to})
	return err
}

// Fork makes an agent a copy of the first tokens of another one of the same shard; nil: of all. It
// returns how many tokens the copy has.
func (s *Swarm) Fork(ctx context.Context, agent, into uint32, to *int) (at int, err error) {
	return s.place(ctx, into, swarms.EntryFork, swarms.Fork{
		Version: jobs.Version, Agent: agent, Into: into, To: to,
	})
}

// place appends an entry to the log of the shard of a conversation.
func (s *Swarm) place(ctx context.Context, agent uint32, kind string, entry any) (at int, err error) {
	p, err := askAgent(ctx, s, agent, kind, entry, swarms.EntryPlace, swarms.DecodePlace)
	return p.At, err
}

// Text returns the tokens of a conversation from a position on, at most swarms.MaxPromptTokens, and
// its progress. It changes nothing.
func (s *Swarm) Text(ctx context.Context, agent uint32, from int) (swarms.Text, error) {
	return askAgent(ctx, s, agent, swarms.EntryQuery, swarms.Query{
		Version: jobs.Version, Text: &swarms.TextRange{Agent: agent, From: from},
	}, swarms.EntryText, swarms.DecodeText)
}

func askAgent[T any](ctx context.Context, s *Swarm, agent uint32, kind string, entry any, want string,
	decode func([]byte) (T, error),
) (none T, _ error) {
	if !s.spec.Conversations() {
		return none, jobs.Errorf(jobs.CodeInvalid, "%s: agents of swarm %s are no conversations: use one of the cell "+
			"transformer", kind, s.record.ID)
	}
	if int64(agent) >= s.spec.Agents {
		return none, jobs.Errorf(jobs.CodeInvalid, "%s: agent %d of %d", kind, agent, s.spec.Agents)
	}
	of := s.record.ShardOf(int(agent) / s.spec.AgentsPerGroup)
	all, err := ask(ctx, s, kind, func(k int) bool { return k == of }, func(int) ([]byte, error) {
		return json.Marshal(entry)
	}, want, decode)
	if err != nil {
		return none, err
	}
	return all[of], nil
}

// Answer ticks the swarm until the answer of a conversation ends, and calls fn with each of its
// tokens from a position on, in order and once. Ticks of other clients may make tokens of it too.
// ended is why the answer ends, as in swarms.TokenRow; empty: it was cancelled. A call with the
// position behind the last token continues an earlier one.
func (s *Swarm) Answer(ctx context.Context, agent uint32, from int, fn func(token int32) error) (ended string,
	err error,
) {
	next := from
	for {
		t, err := s.Tick(ctx, 1)
		if err != nil {
			return "", err
		}
		here := false
		for _, row := range t.Tokens {
			if row.Agent != agent || row.At != next {
				continue
			}
			here = true
			if row.Token != swarms.NoToken {
				next++
				if err := fn(row.Token); err != nil {
					return "", err
				}
			}
			if row.Ended != "" {
				return row.Ended, nil
			}
		}
		if here {
			continue
		}
		text, err := s.Text(ctx, agent, next) // it reads, or another client was faster
		if err != nil {
			return "", fmt.Errorf("continue the answer of agent %d: %w", agent, err)
		}
		for _, token := range text.Tokens {
			next++
			if err := fn(token); err != nil {
				return "", err
			}
		}
		if !text.Active && next == text.At {
			return text.Ended, nil
		}
	}
}
