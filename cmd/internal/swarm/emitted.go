package swarm

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
)

// emittedVerb is exoswarm swarm emitted, for swarms whose rules emit decisions.
var emittedVerb = cli.Verb{
	Use: "emitted NAME", Short: "List the decisions that the rules of a swarm have emitted", Lists: true,
	Long: `List the decisions that the rules of a swarm have emitted (on_decision in its specification,
with emit), the oldest first. Each is in the list once, also after a crash of the GPU agent or the
server. Of each name the last 1,024 of 14 days are kept.

With --follow the command waits for later ones until Ctrl-C. It needs no GPU agent. Programs read
the subjects exo.decision.KEY.NAME of the stream EXO_DECISIONS, see docs/protocol.md.`,
	Flags: func(f *pflag.FlagSet) {
		f.String("as", "", "list decisions that were emitted as this name; empty: all")
		f.Bool("follow", false, "wait for later ones")
		timeoutFlag(f)
	},
	Do: withSwarm(emitted),
}

// emitted prints one item for each emission.
//
// Fields: the fields of swarms.Emission, seq in the stream, and time.
func emitted(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	name, _ := cmd.Flags().GetString("as")
	follow, _ := cmd.Flags().GetBool("follow")
	if name != "" {
		if err := jobs.CheckID("as", name); err != nil {
			return err
		}
	}
	record := s.Record()
	key, of := record.Key(), record.Identity()
	emissions := gateway.NewEmissions(c.Conn)
	list := emissions.List
	if follow {
		list = emissions.Follow
	}
	return cli.Table[gateway.StoredEmission]{
		Columns: []string{"TIME", "NAME", "ROUND", "WINNER", "VOTES", "LEADER", "TERM"},
		Row: func(e gateway.StoredEmission) []any {
			leader := any("none")
			if e.Leader != nil {
				leader = *e.Leader
			}
			return []any{e.Time.Format(time.RFC3339Nano), e.Name, e.Round, e.Winner, votes(e), leader, e.Term}
		},
	}.Stream(cmd, 0, func(fn func(gateway.StoredEmission) bool) error {
		return list(cmd.Context(), key, name, 0, func(e gateway.StoredEmission) bool {
			return e.Identity != of || fn(e) // others are of an earlier swarm with the key
		})
	})
}

func votes(e gateway.StoredEmission) string {
	var all []string
	for c, n := range e.Votes {
		all = append(all, fmt.Sprintf("%s %d", e.Candidates[c], n))
	}
	return strings.Join(all, ", ")
}
