package swarm

import (
	"context"
	"image"
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/picture"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The picture of a box for which no size is given, in pixels.
const (
	defaultSide = 800 // the longer side
	defaultDot  = 2
)

// fitBox makes the plan one of a box: --width is pixels, and the height follows from the sides.
func (p *renderPlan) fitBox(s *swarmclient.Swarm) error {
	if p.x != 0 || p.y != 0 || p.height != 0 {
		return command.Usage("swarm render: --x, --y and --height: the agents of %s are in a box, which is drawn as a "+
			"whole: use --width for the pixels of a row", s.ID())
	}
	sides := s.Spec().Neighbours.Space.Sides()
	if p.width == 0 {
		p.width = int64(math.Ceil(defaultSide * min(1, sides[0]/sides[1])))
	}
	p.height = int64(math.Ceil(min(float64(p.width)*sides[1]/sides[0], math.MaxInt32)))
	if !p.scaled {
		p.scale = defaultDot
	}
	if err := p.dots().Check(p.frames()); err != nil {
		return command.Usage("swarm render: %v, or choose fewer pixels with --width", err)
	}
	return nil
}

func (p *renderPlan) dots() picture.DotSize {
	return picture.DotSize{Width: p.width, Height: p.height, Side: p.scale}
}

// box draws the agents of a box at their places on the first two axes. The colour of a boid shows
// the direction in which it moves, and the colour of another agent its state.
func box(ctx context.Context, s *swarmclient.Swarm, p renderPlan) (*image.Paletted, error) {
	sides, boids := s.Spec().Neighbours.Space.Sides(), len(s.Spec().Features) > len(s.Spec().Neighbours.Space.Sides())
	width := len(s.Spec().Features)
	all := make([]picture.Dot, 0, s.Spec().Agents)
	ids := make([]uint32, 0, min(swarms.MaxAddressed, swarms.MaxState/(4+1+4*width)))
	for id := range s.Spec().Agents {
		if ids = append(ids, uint32(id)); len(ids) < cap(ids) && id < s.Spec().Agents-1 {
			continue
		}
		found, err := s.AgentStates(ctx, ids)
		if err != nil {
			return nil, err
		}
		for i, state := range found.Vote {
			if s.Spec().IsColony() && state == 0 { // nobody is there
				continue
			}
			v := found.State[i*found.Width:][:found.Width]
			dot := picture.Dot{X: float64(v[0]) / sides[0], Y: float64(v[1]) / sides[1], Colour: picture.Pale}
			switch dims := len(sides); {
			case boids && (v[dims] != 0 || v[dims+1] != 0):
				dot.Colour = picture.Direction(float64(v[dims]), float64(v[dims+1]))
			case state != 0:
				dot.Colour = picture.Plain
			}
			all = append(all, dot)
		}
		ids = ids[:0]
	}
	return p.dots().Frame(all)
}
