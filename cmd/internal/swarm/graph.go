package swarm

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/picture"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// chart steps the swarm, and draws how many agents vote for each candidate after each --every
// steps.
func chart(cmd *cobra.Command, s *swarmclient.Swarm, p renderPlan) error {
	if !s.Spec().Topology().ByAgent {
		return command.Usage("swarm render: -o %s: agents of %s do not tick: its groups are addressed", p.out, s.ID())
	}
	c := picture.Chart{
		Title: fmt.Sprintf("%s: agents by state, of %d", s.ID(), s.Spec().Agents), Names: s.Spec().Vote.Candidates,
		Axis: "steps since the command began",
	}
	for done := p.every; done <= p.ticks; done += p.every {
		t, err := s.Tick(cmd.Context(), p.every)
		if err != nil {
			return err
		}
		c.Ticks, c.Count = append(c.Ticks, done), append(c.Count, t.Tally)
	}
	text, err := c.SVG()
	if err != nil {
		return err
	}
	if err := userfile.WriteFile(p.out, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}); err != nil {
		return err
	}
	cmd.PrintErrf("%s: %d counts of %d agents\n", p.out, len(c.Ticks), s.Spec().Agents)
	return nil
}

// defaultRows is the agents of a raster for which no number is given.
const defaultRows = 256

// raster draws agents of a graph, a row for each, over steps, a column for each.
func raster(cmd *cobra.Command, s *swarmclient.Swarm, p renderPlan) error {
	agents := s.Spec().Agents
	switch {
	case p.film:
		return command.Usage("swarm render: -o %s: the agents of %s are on a graph, which has no film: use .png for "+
			"a row of each agent, or .svg for a chart", p.out, s.ID())
	case p.x != 0 || p.width != 0:
		return command.Usage("swarm render: --x and --width: the agents of %s are on a graph: columns are steps: use "+
			"--ticks, and --y and --height for the agents", s.ID())
	case p.y < 0 || p.y >= agents:
		return command.Usage("swarm render: --y %d: the first agent of the picture: use 0 to %d", p.y, agents-1)
	}
	if p.height == 0 {
		p.height = min(defaultRows, agents-p.y)
	}
	if most := min(agents-p.y, swarms.MaxAddressed); p.height < 0 || p.height > most {
		return command.Usage("swarm render: --height %d from --y %d on: use 1 to %d", p.height, p.y, most)
	}
	p.width = int64(p.ticks) + 1
	if err := p.size().Check(1); err != nil {
		return command.Usage("swarm render: %v, or choose fewer agents with --height, or fewer --ticks", err)
	}
	ids := make([]uint32, p.height)
	for i := range ids {
		ids[i] = uint32(p.y) + uint32(i)
	}
	states := make([]byte, p.width*p.height)
	for column := range p.width {
		if column > 0 {
			if _, err := s.Tick(cmd.Context(), 1); err != nil {
				return err
			}
		}
		found, err := s.AgentStates(cmd.Context(), ids)
		if err != nil {
			return err
		}
		for row, state := range found.Vote {
			states[int64(row)*p.width+column] = state
		}
	}
	m, err := p.size().Raster(states, picture.Axes{
		Title: s.ID(), Rows: "agent", Columns: "steps since the command began", FirstRow: p.y,
		States: s.Spec().Vote.Candidates,
	})
	if err != nil {
		return err
	}
	if err := userfile.WriteFile(p.out, func(w io.Writer) error { return picture.PNG(w, m) }); err != nil {
		return err
	}
	cmd.PrintErrf("%s: %d agents after 0 to %d steps\n", p.out, p.height, p.ticks)
	return nil
}
