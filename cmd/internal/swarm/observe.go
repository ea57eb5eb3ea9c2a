package swarm

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// observeGroups is swarmObserve for a swarm whose groups are addressed. A row that the
// specification drops has the reason in place of a decision. The caller has checked that the swarm
// takes observations of this client: the swarm of a running job does not.
//
// Fields: group, timestamp as written, score from 0 to 1, decision, round, counts by candidate and
// leader; or group, timestamp and dropped, the reason.
func observeGroups(cmd *cobra.Command, s *swarmclient.Swarm, path string) error {
	o, err := userfile.ReadGroups(path, s.Spec())
	if err != nil {
		return err
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	p, err := command.NewPrinter(w, cmd.Flags(), "GROUP", "TIMESTAMP", "SCORE", "DECISION", "ROUND")
	if err != nil {
		return err
	}
	// The callback gets the decisions of one entry, in the order of its rows, before the next entry
	// is sent.
	entries, err := s.ObserveGroups(cmd.Context(), o, func(d *batch.Decisions) error {
		for i, g := range d.Group {
			decision, counts := s.Candidate(int(d.Decision[i])),
				ballots{s.Spec().Vote.Candidates, d.Counts[i*d.Candidates:][:d.Candidates]}
			item := any(decidedGroup{counts, decision, g, d.Leader[i], d.Round[i], d.Score[i], d.Timestamp[i]})
			// The specification drops rows that are late or that an entity has sent twice; they
			// change no agent and have no decision.
			if d.Dropped != nil && d.Dropped[i] != batch.Applied {
				decision = "dropped: " + batch.Reasons[d.Dropped[i]]
				item = map[string]any{"group": g, "timestamp": d.Timestamp[i], "dropped": batch.Reasons[d.Dropped[i]]}
			}
			if err := p.Item(item, g, d.Timestamp[i], d.Score[i], decision, d.Round[i]); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	return endDecisions(cmd, p, w, o.Len(), entries)
}

// decidedGroup is an item of observeGroups. A struct is encoded three times as fast as a map; its
// members are sorted, as the members of a map are.
type decidedGroup struct {
	Counts    ballots `json:"counts"`
	Decision  string  `json:"decision"`
	Group     uint32  `json:"group"`
	Leader    uint64  `json:"leader"`
	Round     uint64  `json:"round"`
	Score     float32 `json:"score"`
	Timestamp string  `json:"timestamp"`
}

// decidedAgent is an item of swarmObserve for agents, sorted likewise. Score is nil of a row that
// asks for none.
type decidedAgent struct {
	Agent    uint32   `json:"agent"`
	Decision string   `json:"decision"`
	Score    *float32 `json:"score,omitempty"`
	Vote     string   `json:"vote"`
}

// ballots are the votes by candidate. Their JSON is an object in the order of the candidates, as in
// the output of a run; a map would sort them by name.
type ballots struct {
	candidates []string
	counts     []uint32
}

// MarshalJSON implements json.Marshaler. counts has as many elements as candidates.
func (v ballots) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for c, n := range v.counts {
		if c > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(v.candidates[c])
		if err != nil {
			return nil, err
		}
		b = strconv.AppendUint(append(append(b, name...), ':'), uint64(n), 10)
	}
	return append(b, '}'), nil
}

// checkObserve finds a missing input before the connection is made.
func checkObserve(cmd *cobra.Command, _ []string) error {
	path, _ := cmd.Flags().GetString("input")
	if path == "" {
		return command.Usage("swarm observe: --input is missing: name a file with the features, and the column " +
			"agent, or group and the timestamp")
	}
	if _, err := os.Stat(path); err != nil && path != "-" {
		return command.Usage("swarm observe: --input: %v: name a file of observations, or - for standard input", err)
	}
	return nil
}

// swarmObserve reads a file of observations whole, sends them, and prints a decision for each in
// the order of the file, as soon as the entry of the row is answered. Standard input is spooled
// to a file first. A file that is not valid, or was read in part because of a signal, changes
// nothing.
//
// Fields of an item: agent, vote and decision, and the score from 0 to 1 for a row that names an
// item of the readout; for groups see observeGroups. The number of entries goes to stderr. The
// error of an entry has the number of its first row: the rows before it took effect and were
// printed. The rows of the entry may still take effect after a timeout.
func swarmObserve(cmd *cobra.Command, s *swarmclient.Swarm) error {
	path, _ := cmd.Flags().GetString("input")
	given, err := userfile.Spool(cmd.Context(), []string{path}, cmd.InOrStdin())
	// given may be incomplete after an error, and is closed all the same.
	defer func() { _ = given.Close() }()
	if err != nil {
		return err
	}
	if given.Interrupted { // half of a file is none
		return command.ErrInterrupted
	}
	path = given.Paths[0]
	// The two kinds of swarms have different columns and different entries.
	if !s.Spec().Topology().ByAgent {
		if err := s.CanObserveGroups(); err != nil {
			return err
		}
		return observeGroups(cmd, s, path)
	}
	// The whole file is checked before the first entry is sent.
	o, err := userfile.ReadAgents(path, s.Spec())
	if err != nil {
		return err
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	columns := []string{"AGENT", "VOTE", "DECISION"}
	if o.Item != nil {
		columns = append(columns, "SCORE")
	}
	p, err := command.NewPrinter(w, cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	entries, err := s.Observe(cmd.Context(), o, func(d *batch.AgentDecisions) error {
		for i, id := range d.Agent {
			vote, decision := s.Candidate(int(d.Vote[i])), s.Candidate(int(d.Decision[i]))
			item, row := decidedAgent{Agent: id, Decision: decision, Vote: vote}, []any{id, vote, decision}
			if d.Score != nil {
				score := any("-")
				if v := d.Score[i]; v == v { // a NaN is the score of a row that asks for none
					item.Score, score = &v, v
				}
				row = append(row, score)
			}
			if err := p.Item(item, row...); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	return endDecisions(cmd, p, w, len(o.Agent), entries)
}

// endDecisions ends the list of decisions, and prints how many observations and entries there were.
func endDecisions(cmd *cobra.Command, p *command.Printer, w *bufio.Writer, observations, entries int) error {
	if err := errors.Join(p.End(), w.Flush()); err != nil {
		return err
	}
	cmd.PrintErrf("%d observations in %d entries\n", observations, entries)
	return nil
}
