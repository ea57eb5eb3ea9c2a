package swarmcommand

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/rules"
)

// WithSwarm is OnSwarm for a function that needs the connection too.
type WithSwarm func(fn func(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error) func(*cobra.Command,
	[]string) error

// NewEmitted returns exoswarm swarm emitted, for swarms whose rules emit decisions.
func NewEmitted(with WithSwarm) *cobra.Command {
	c := &cobra.Command{
		Use: "emitted NAME", Short: "List the decisions that the rules of a swarm have emitted",
		Args: cobra.ExactArgs(1),
		Long: `List the decisions that the rules of a swarm have emitted (on_decision in its specification,
with emit), the oldest first. Each is in the list once, also after a crash of the GPU agent or the
server. Of each name the last 1,024 of 14 days are kept.

With --follow the command waits for later ones until Ctrl-C. It needs no GPU agent. Programs read
the subjects exo.decision.KEY.NAME of the stream EXO_DECISIONS, see docs/protocol.md.`,
		RunE: with(emitted),
	}
	f := c.Flags()
	f.String("as", "", "list those that were emitted as this name; empty: all")
	f.Bool("follow", false, "wait for later ones")
	return c
}

// emitted prints one item for each emission.
//
// Fields: those of swarms.Emission, seq in the stream, and time.
func emitted(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	name, _ := cmd.Flags().GetString("as")
	follow, _ := cmd.Flags().GetBool("follow")
	if name != "" {
		if err := jobs.CheckID("as", name); err != nil {
			return err
		}
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"TIME", "NAME", "ROUND", "WINNER", "VOTES", "LEADER", "TERM")
	if err != nil {
		return err
	}
	record := s.Record()
	key, of := record.Key(), record.Identity()
	list := c.Emissions.List
	if follow {
		list = c.Emissions.Follow
	}
	var failed error
	if err := list(cmd.Context(), key, name, 0, func(e rules.Stored) bool {
		if e.Identity != of { // of an earlier swarm with the key
			return true
		}
		leader := any("none")
		if e.Leader != nil {
			leader = *e.Leader
		}
		failed = p.Item(e, e.Time.Format(time.RFC3339Nano), e.Name, e.Round, e.Winner, votes(e), leader, e.Term)
		return failed == nil
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return p.End()
}

// votes returns the ballots of an emission for the table.
func votes(e rules.Stored) string {
	var all []string
	for c, n := range e.Votes {
		all = append(all, fmt.Sprintf("%s %d", e.Candidates[c], n))
	}
	return strings.Join(all, ", ")
}
