package swarm

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

var getVerb = cli.Verb{
	Use: "get NAME", Short: "Show which agent serves each shard of a swarm, and its progress", Lists: true,
	Long: `Show each shard of a swarm: the GPU agent that serves it, its state, and the ends of
its logs. ENTRIES is the number of the last entry of its log, ANSWERED the number of the last
entry with an answer. A new agent of a shard first replays the log, and answers nothing until the replay is
complete.`,
	Flags: timeoutFlag, Do: cli.Queue(swarmGet),
}

// swarmGet prints one item for each shard of a swarm, in their order: its agents, its holder and
// state, and the ends of its logs. It asks no GPU agent, and so answers while none serves the
// swarm.
//
// Fields: shard, holder, state, recovering with the progress of a replay, lost_holder and
// lost_since of the last agent, first_agent and end_agent (the first id behind the shard), entries
// and answered, and devices of the holder where several make the ticks. A holder that is empty with
// a lost_holder is a shard that waits for a takeover.
func swarmGet(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	s, err := openSwarm(cmd, c, args[0])
	if err != nil {
		return err
	}
	// Holders and ends of logs are read one after the other, so a shard that moves meanwhile may
	// show its old holder with new entries.
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	positions, err := s.Positions(cmd.Context())
	if err != nil {
		return err
	}
	var all []shardItem
	for i, st := range swarmclient.ShardStates(s.Record(), census.Holders, census) {
		at := positions[i]
		all = append(all, shardItem{st, at.First, at.End, at.Entries, at.Answered})
	}
	return shardTable.Print(cmd, all...)
}

// shardItem is an item of swarm get. The fields of ShardState come first, since JSON keeps the
// order.
type shardItem struct {
	swarmclient.ShardState
	First    int64  `json:"first_agent"`
	End      int64  `json:"end_agent"` // behind the last one
	Entries  uint64 `json:"entries"`
	Answered uint64 `json:"answered"`
}

var shardTable = cli.Table[shardItem]{
	Columns: []string{"SHARD", "AGENTS", "HOLDER", "STATE", "ENTRIES", "ANSWERED"},
	Row: func(s shardItem) []any {
		holder := s.Holder
		if len(s.Devices) > 0 {
			holder += " on " + strings.Join(s.Devices, ", ")
		}
		return []any{s.Shard, fmt.Sprintf("%d to %d", s.First, s.End-1), holder, s.State, s.Entries, s.Answered}
	},
}
