package swarm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/internal/strictyaml"
)

// What agents may hear of the last round of their swarm. Candidate c of n is (c+1)/n, and 0 is none.
const (
	HearDecision = "decision" // the candidate that has won
	HearLeader   = "leader"   // the candidate that the leader votes for
)

// validateHear is the part of validate about what agents hear.
func (s *Spec) validateHear() (path []string, err error) {
	path, known := []string{"hear"}, []string{HearDecision, HearLeader}
	if len(s.Hear) > 0 && !s.ByAgent() {
		return path, errors.New("hear: agents of a swarm whose groups are addressed hold no inputs: write addressed: " +
			"agent, or leave it out")
	}
	for i, what := range s.Hear {
		if !slices.Contains(known, what) {
			return path, fmt.Errorf("hear %q: did you mean %q? There are %v", what, strictyaml.Nearest(what, known),
				known)
		}
		if slices.Contains(s.Hear[:i], what) {
			return path, fmt.Errorf("hear %q: it is named twice: leave one out", what)
		}
	}
	if a, err := s.deaf(); err == nil { // the caller finds what is wrong with the cell
		if _, err := a.Hearing(len(s.Hear)); err != nil {
			return path, err
		}
	}
	return nil, nil
}
