package swarm

import (
	"context"
	"image"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/picture"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type renderPlan struct {
	out                 string
	film, chart         bool // a GIF or an SVG, else a PNG
	ticks, every        int
	x, y, width, height int64 // cells; 0 for a size is up to the edge
	scale, rate         int
	scaled              bool // a scale is given
	states              int  // of an agent of a grid
}

var renderVerb = cli.Verb{
	Use: "render NAME -o FILE.png|FILE.gif|FILE.svg", Short: "Draw the agents of a swarm that have neighbours",
	Long: `Draw the agents of a swarm that are on a grid (neighbours in its specification): a square for each
agent, dark if it is alive. A .png file has one picture, and the command changes nothing.

With --ticks the swarm is stepped that many times first. A .gif file has the picture before these steps, and
one after each --every of them. The steps stay, as after exoswarm swarm tick.

Agents with a custom cell have the colour of the candidate that they vote for. Of a grid of three
dimensions, rows count through all layers: --y 128 --height 64 is layer 2 of layers of 64 rows.

--x, --y, --width and --height choose a part of the grid. A picture has up to 64 million pixels, and
all pictures of a .gif up to 256 million.

A .svg is a chart of how many agents are in each state after each --every of --ticks, for all swarms
whose agents are addressed. Of agents on a graph, a .png has a row for each agent from --y on, 256 or
--height of them, and a column for each step.

Agents in a box are dots of --scale pixels, 2 by default, at their places on the first two axes, and
a boid has a colour for the direction in which it moves. The picture is --width pixels wide, by
default as many as make its longer side 800 pixels.

The file appears when it is complete.`,
	Flags: func(f *pflag.FlagSet) {
		f.StringP("output", "o", "", "file to write, .png, .gif or .svg (required)")
		f.Int("ticks", 0, "number of steps")
		f.Int("every", 1, "steps between two pictures of a .gif, or points of a .svg")
		f.Int64("x", 0, "first column of the part")
		f.Int64("y", 0, "first row of the part")
		f.Int64("width", 0, "columns of the part; 0: all from --x on. Of a box, pixels of a row")
		f.Int64("height", 0, "rows of the part; 0: all from --y on")
		f.Int("scale", 4, "pixels of a side of a square, or of a dot, 1 to 64")
		f.Int("rate", 10, "pictures of a .gif a second, 1 to 50")
		timeoutFlag(f)
	},
	Do: onPlan(renderPlanOf, render),
}

// onPlan is onSwarm for a function that gets what the flags ask for. Mistakes in flags are found
// before the connection is made.
func onPlan[P any](
	planOf func(cmd *cobra.Command) (P, error), fn func(cmd *cobra.Command, s *swarmclient.Swarm, p P) error,
) cli.Action {
	return cli.Link(func(cmd *cobra.Command, args []string) error {
		p, err := planOf(cmd)
		if err != nil {
			return err
		}
		return onSwarm(func(cmd *cobra.Command, s *swarmclient.Swarm) error { return fn(cmd, s, p) }).Run(cmd, args)
	})
}

// renderPlanOf reads and checks the flags, as far as they can be checked without the swarm.
func renderPlanOf(cmd *cobra.Command) (p renderPlan, err error) {
	f := cmd.Flags()
	p.out, _ = f.GetString("output")
	p.ticks, _ = f.GetInt("ticks")
	p.every, _ = f.GetInt("every")
	p.x, _ = f.GetInt64("x")
	p.y, _ = f.GetInt64("y")
	p.width, _ = f.GetInt64("width")
	p.height, _ = f.GetInt64("height")
	p.scale, _ = f.GetInt("scale")
	p.rate, _ = f.GetInt("rate")
	p.scaled = f.Changed("scale")
	switch e := strings.ToLower(filepath.Ext(p.out)); {
	case e != ".png" && e != ".gif" && e != ".svg":
		return p, command.Usage("swarm render: -o %q: name a file that ends with .png, .gif or .svg", p.out)
	case e == ".gif":
		p.film = true
	case e == ".svg":
		p.chart = true
		for _, name := range []string{"x", "y", "width", "height", "scale", "rate"} {
			if f.Changed(name) {
				return p, command.Usage("swarm render: -o %s: --%s is for pictures: leave it out", p.out, name)
			}
		}
		if p.ticks < 1 || p.ticks/max(p.every, 1) > picture.MaxPoints {
			return p, command.Usage("swarm render: -o %s: --ticks %d: a chart has 1 to %d points, one for each "+
				"--every of them", p.out, p.ticks, picture.MaxPoints)
		}
	case f.Changed("every") || f.Changed("rate"):
		return p, command.Usage("swarm render: -o %s: --every and --rate are for a .gif: leave them out", p.out)
	}
	switch {
	case p.ticks < 0:
		return p, command.Usage("swarm render: --ticks %d: use 0 or more", p.ticks)
	case p.every < 1 || p.every > swarms.MaxTicks:
		return p, command.Usage("swarm render: --every %d: use 1 to %d", p.every, swarms.MaxTicks)
	case p.ticks%p.every != 0:
		return p, command.Usage("swarm render: --ticks %d: use a multiple of --every, %d", p.ticks, p.every)
	case p.scale < 1 || p.scale > picture.MaxScale:
		return p, command.Usage("swarm render: --scale %d: use 1 to %d", p.scale, picture.MaxScale)
	case p.rate < 1 || p.rate > picture.MaxRate:
		return p, command.Usage("swarm render: --rate %d: use 1 to %d", p.rate, picture.MaxRate)
	}
	return p, nil
}

func (p *renderPlan) frames() int {
	if !p.film {
		return 1
	}
	return 1 + p.ticks/p.every
}

// fit makes the part of the plan one of the grid of a swarm.
func (p *renderPlan) fit(s *swarmclient.Swarm) error {
	n := s.Spec().Neighbours
	p.states = len(s.Spec().Vote.Candidates)
	for _, part := range []struct {
		first, size   *int64
		all           int64
		place, length string
	}{{&p.x, &p.width, n.Width, "--x", "--width"}, {&p.y, &p.height, n.Rows(), "--y", "--height"}} {
		if *part.first < 0 || *part.first >= part.all {
			return command.Usage("swarm render: %s %d: the grid is %v: use 0 to %d", part.place, *part.first, n,
				part.all-1)
		}
		if *part.size == 0 {
			*part.size = part.all - *part.first
		}
		if *part.size < 0 || *part.size > part.all-*part.first {
			return command.Usage(
				"swarm render: %s %d from %s %d on: the grid is %v: use 1 to %d",
				part.length,
				*part.size,
				part.place,
				*part.first,
				n,
				part.all-*part.first,
			)
		}
	}
	if err := p.size().Check(p.frames()); err != nil {
		return command.Usage("swarm render: %v, or choose a part of the grid with --width and --height", err)
	}
	return nil
}

func (p *renderPlan) size() picture.GridSize {
	return picture.GridSize{Width: p.width, Height: p.height, Scale: p.scale, States: p.states}
}

// render draws the pictures, and writes the file at the end. Steps that were made before an error
// stay. The only output is a line on stderr.
func render(cmd *cobra.Command, s *swarmclient.Swarm, p renderPlan) error {
	if p.chart {
		return chart(cmd, s, p)
	}
	fit, draws, of := p.fit, cells, "agents"
	switch s.Spec().Topology().Picture {
	case swarm.PictureNone:
		return command.Usage("swarm render: the agents of %s are on no grid: its specification has no neighbours: "+
			"name a .svg for a chart", s.ID())
	case swarm.PictureTicks:
		return raster(cmd, s, p)
	case swarm.PictureBox:
		fit, draws, of = p.fitBox, box, "pixels"
	}
	if err := fit(s); err != nil {
		return err
	}
	var frames []*image.Paletted
	draw := func() error {
		m, err := draws(cmd.Context(), s, p)
		frames = append(frames, m)
		return err
	}
	each := p.every
	if p.film {
		if err := draw(); err != nil {
			return err
		}
	} else {
		each = max(1, p.ticks)
	}
	for done := 0; done < p.ticks; done += each {
		if _, err := s.Tick(cmd.Context(), each); err != nil {
			return err
		}
		if p.film {
			if err := draw(); err != nil {
				return err
			}
		}
	}
	if !p.film {
		if err := draw(); err != nil {
			return err
		}
	}
	err := userfile.WriteFile(p.out, func(w io.Writer) error {
		if p.film {
			return picture.GIF(w, frames, p.rate)
		}
		return picture.PNG(w, frames[0])
	})
	if err != nil {
		return err
	}
	cmd.PrintErrf("%s: %d pictures of %d x %d %s\n", p.out, len(frames), p.width, p.height, of)
	return nil
}

// cells draws the agents of the part of a grid.
func cells(ctx context.Context, s *swarmclient.Swarm, p renderPlan) (*image.Paletted, error) {
	states, err := renderStates(ctx, s, p)
	if err != nil {
		return nil, err
	}
	return p.size().Frame(states)
}

// renderStates asks for the agents of the part, row by row.
func renderStates(ctx context.Context, s *swarmclient.Swarm, p renderPlan) ([]byte, error) {
	all := make([]byte, 0, p.width*p.height)
	ids := make([]uint32, 0, min(swarms.MaxAddressed, swarms.MaxState/(4+1+4*len(s.Spec().Features))))
	ask := func() error {
		if len(ids) == 0 {
			return nil
		}
		found, err := s.AgentStates(ctx, ids)
		if err != nil {
			return err
		}
		all, ids = append(all, found.Vote...), ids[:0]
		return nil
	}
	for y := p.y; y < p.y+p.height; y++ {
		for x := p.x; x < p.x+p.width; x++ {
			if ids = append(ids, uint32(y*s.Spec().Neighbours.Width+x)); len(ids) == cap(ids) {
				if err := ask(); err != nil {
					return nil, err
				}
			}
		}
	}
	err := ask()
	return all, err
}
