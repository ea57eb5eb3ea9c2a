package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func swarmGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show who serves each shard of a swarm, and how far that is", Args: cobra.ExactArgs(1),
		RunE: connected(swarmGet),
		Long: `Show each shard of a swarm: the GPU agent that serves it, its state, and the last
entries of its logs. ENTRIES are those of its log, ANSWERED is the last one that has an answer. A
shard that another agent has taken over is replayed first: it answers nothing before the replay is
over.`,
	}
}

func swarmGet(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
	s, err := client.Open(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "SHARD", "AGENTS", "HOLDER", "STATE", "ENTRIES", "ANSWERED")
	if err != nil {
		return err
	}
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	positions, err := s.Positions(cmd.Context())
	if err != nil {
		return err
	}
	type item struct {
		swarmclient.ShardState
		First    int64  `json:"first_agent"`
		End      int64  `json:"end_agent"` // behind the last one
		Entries  uint64 `json:"entries"`
		Answered uint64 `json:"answered"`
	}
	for i, st := range swarmclient.ShardStates(s.Record(), census.Holders, census) {
		at := positions[i]
		one := item{st, at.First, at.End, at.Entries, at.Answered}
		if err := p.Item(one, st.Shard, fmt.Sprintf("%d to %d", at.First, at.End-1), st.Holder, st.State, one.Entries,
			one.Answered); err != nil {
			return err
		}
	}
	return p.End()
}
