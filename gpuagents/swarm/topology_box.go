package swarm

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Space is a box of two or three dimensions. The agents within the radius of an agent are its
// neighbours.
type Space struct {
	Size Sides `yaml:"size" json:"size"`
	// Radius is above 0, and at most a quarter of each side.
	Radius float64 `yaml:"radius" json:"radius"`
	// Nearest is how many agents an agent of boids hears at the most, the nearest of those within the
	// radius; 0: all of them. YAML has 1 to spaceset.MostNearest.
	Nearest Nearest `yaml:"nearest" json:"nearest,omitempty"`
	// Periodic says that who leaves the box on one side comes back on the other, and that agents are
	// near each other across the sides. Else boids bounce off the walls, and circles stop there.
	Periodic bool `yaml:"periodic" json:"periodic,omitempty"`
}

// Sides are the lengths of a box on its axes. YAML has a list of two or three, and the third is 0
// of a box of two dimensions.
type Sides [3]float64

// UnmarshalYAML reads the form that Sides documents.
func (s *Sides) UnmarshalYAML(n *yaml.Node) error {
	var all []float64
	if err := n.Decode(&all); err != nil || len(all) < 2 || len(all) > 3 {
		return fmt.Errorf("line %d: neighbours: size: write a list of two or three numbers, as in [100, 100]", n.Line)
	}
	for k, side := range all {
		if !(side > 0 && side <= math.MaxFloat32) { // a NaN is not
			return fmt.Errorf("line %d: neighbours: size: side %d is %v: use a number above 0", n.Line, k+1, side)
		}
	}
	*s = Sides{}
	copy(s[:], all)
	return nil
}

// Nearest is a number of nearest agents.
type Nearest int

// UnmarshalYAML reads the form that Space.Nearest documents.
func (m *Nearest) UnmarshalYAML(n *yaml.Node) error {
	// A number with a fraction would be cut off.
	if err := n.Decode((*int)(m)); err != nil || n.ShortTag() != "!!int" || *m < 1 || *m > spaceset.MostNearest {
		return fmt.Errorf("line %d: %w", n.Line, errNearest(n.Value))
	}
	return nil
}

func errNearest(value any) error {
	return fmt.Errorf("neighbours: nearest %v: use a whole number from 1 to %d, or leave it out, so that agents hear "+
		"all within the radius", value, spaceset.MostNearest)
}

// String returns the sides as YAML has them.
func (s Sides) String() string {
	var all []string
	for _, side := range s[:s.dimensions()] {
		all = append(all, fmt.Sprint(side))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (s Sides) dimensions() int {
	if s[2] == 0 {
		return 2
	}
	return 3
}

// Sides returns the lengths of the box on its axes.
func (s Space) Sides() []float64 { return s.Size[:s.Size.dimensions():s.Size.dimensions()] }

// String implements fmt.Stringer. It tells different boxes from each other.
func (s Space) String() string {
	text := fmt.Sprintf("box of %v, radius %v", s.Size, s.Radius)
	if s.Nearest > 0 {
		text += fmt.Sprintf(", the nearest %d", s.Nearest)
	}
	if s.Periodic {
		text += ", periodic"
	}
	return text
}

type boxRules struct{ agentRules }

func (r boxRules) defaults(s *Spec) {
	r.agentRules.defaults(s)
	if s.Agents < 1 || s.Neighbours.Space == (Space{}) {
		return
	}
	if len(s.Features) == 0 {
		s.Features = cells.BoxFeatures(s.Cell.Kind, s.Neighbours.Space.Size.dimensions())
	}
	s.defaultAgents(s.Agents, s.Agents)
}

func (boxRules) missing(kind string) error {
	return fmt.Errorf("neighbours: agents of the cell %s are in a box: write "+
		"neighbours: {space: {size: [100, 100], radius: 2, periodic: true}}, or the size that you want", kind)
}

// IsColony reports whether the agents die and give birth.
func (s *Spec) IsColony() bool { return s.Cell.Kind == cells.ColonyName }

func (boxRules) validate(s *Spec) (path []string, err error) {
	n, at := s.Neighbours, func(keys ...string) []string { return append([]string{"neighbours"}, keys...) }
	box := n.Space
	n.Space = Space{}
	switch {
	case n.Periodic && n.Width == 0 && n.Height == 0:
		return at("periodic"), errors.New("neighbours: periodic: a box has this key in space: write " +
			"space: {periodic: true}")
	case box == Space{} || n != Neighbours{}:
		return at(), fmt.Errorf("neighbours: agents of the cell %s are in a box: write space: {size: [100, 100], "+
			"radius: 2}, or the size that you want, and nothing else", s.Cell.Kind)
	}
	dims := box.Size.dimensions()
	for k, side := range box.Size[:dims] {
		switch {
		case !(side > 0 && side <= math.MaxFloat32): // a NaN is not
			return at("space", "size"), fmt.Errorf("neighbours: size %v: side %d is %v: use a number above 0", box.Size,
				k+1, side)
		case !(box.Radius > 0):
			return at("space", "radius"), fmt.Errorf("neighbours: radius %v: use a number above 0", box.Radius)
		case box.Radius > side/spaceset.Least:
			return at("space", "radius"), fmt.Errorf("neighbours: radius %v: use at most a quarter of each side of "+
				"%v, %v", box.Radius, box.Size, side/spaceset.Least)
		case side/box.Radius > spaceset.MostRadii:
			return at("space", "radius"), fmt.Errorf("neighbours: radius %v: use at least a millionth of each side of "+
				"%v, %v", box.Radius, box.Size, side/spaceset.MostRadii)
		}
	}
	if path, err := s.validateNearest(box.Nearest); err != nil {
		return path, err
	}
	if s.Agents < 1 {
		return []string{"agents"}, fmt.Errorf("agents %d: a box has 1 or more, below 2^32", s.Agents)
	}
	if want := cells.BoxFeatures(s.Cell.Kind, dims); len(s.Features) != len(want) {
		return []string{"features"}, fmt.Errorf("%d features: an agent of the cell %s in %d dimensions has %d: "+
			"write %s, or names of your own, or leave it out", len(s.Features), s.Cell.Kind, dims, len(want),
			strings.Join(want, ", "))
	}
	if s.Cell.Kind == cells.BoidsName {
		return s.validateSpeeds()
	}
	return nil, nil
}

func (s *Spec) validateNearest(most Nearest) (path []string, err error) {
	path = []string{"neighbours", "space", "nearest"}
	switch {
	case most < 0 || most > spaceset.MostNearest:
		return path, errNearest(most)
	case most > 0 && s.Cell.Kind != cells.BoidsName:
		return path, fmt.Errorf("neighbours: nearest %d: it is for the cell boids: agents of the cell %s hear all "+
			"within the radius: leave it out", most, s.Cell.Kind)
	}
	return nil, nil
}

// validateSpeeds validates the two bounds of the speeds of boids against each other.
func (s *Spec) validateSpeeds() (path []string, err error) {
	cell, _ := cells.LookupAddressed(cells.BoidsName)
	value := map[string]float64{}
	for _, p := range cell.Params {
		value[p.Name] = p.Default
	}
	for name, v := range s.Cell.Params {
		value[name] = v
	}
	if least, most := value["speed_min"], value["speed_max"]; least > most {
		return []string{"cell", "params"}, fmt.Errorf("speed_min %v: use at most speed_max, %v", least, most)
	}
	return nil, nil
}
