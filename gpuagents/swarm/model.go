package swarm

import (
	"errors"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Model returns the model whose weights the agents begin with; nil: the weights are random, by the
// seed. Without Cell.ModelSHA256 it is not valid, and no agent serves the swarm.
func (s *Spec) Model() *swarms.ModelRef {
	if s.Cell.Model == "" {
		return nil
	}
	return &swarms.ModelRef{Name: s.Cell.Model, SHA256: s.Cell.ModelSHA256}
}

// TakesModel returns an error of jobs.CodeInvalid unless the weights of the agents can be of a
// model.
func (s *Spec) TakesModel() error {
	if !s.Topology().ByAgent || s.Cell.Kind != "gru" && !s.quantum() && !s.Conversations() {
		return jobs.Errorf(jobs.CodeInvalid, "model: only a gru whose agents are addressed has weights of a model, "+
			"quantum angles, and transformer a language model: use cell: {kind: gru} and addressed: agent")
	}
	return nil
}

// Adopts returns an error of jobs.CodeInvalid unless the agents can change to another model.
func (s *Spec) Adopts() error {
	if s.Conversations() {
		return jobs.Errorf(jobs.CodeInvalid, "adopt: what conversations have read is kept as their model computes it: "+
			"create another swarm with the other model")
	}
	return s.TakesModel()
}

func (s *Spec) validateModel() (path []string, err error) {
	if s.Cell.Model == "" {
		if s.Cell.ModelSHA256 != "" {
			return []string{"cell", "model_sha256"}, errors.New("model_sha256: it is of no model: name the model, as " +
				"in model: NAME, or leave it out")
		}
		return nil, nil
	}
	if err := s.TakesModel(); err != nil {
		return []string{"cell", "model"}, err
	}
	if err := jobs.CheckID("model", s.Cell.Model); err != nil {
		return []string{"cell", "model"}, err
	}
	if s.Cell.ModelSHA256 == "" {
		return nil, nil
	}
	return []string{"cell", "model_sha256"}, s.Model().Validate()
}
