package gpujob

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/jobs"
)

// KindTrainProgram is the kind of job that trains the weights of an expression: TrainProgramSpec,
// TrainProgramOutput.
const KindTrainProgram = "train_program"

// Limits of TrainProgramSpec.
const (
	MaxProgramSteps   = 1 << 20
	MaxProgramWeights = 20
)

// Trains reports whether jobs of a kind train: they take hours, have checkpoints, and go on from
// them.
func Trains(kind string) bool { return kind == KindTrain || kind == KindTrainProgram }

// TrainProgramSpec asks for weights with a small loss. The loss is an expression over arrays and
// weights; each step computes it over all rows, and its derivatives, and changes the weights by
// Adam.
type TrainProgramSpec struct {
	// Expr is the text. It has one output, the loss, which is one number of f32.
	Expr string `json:"expr"`
	// In are the arrays of data and Numbers f32 by the names in the text, as of ComputeSpec.
	In      map[string]*Array  `json:"in,omitempty"`
	Numbers map[string]float32 `json:"numbers,omitempty"`
	// Weights are the first values of the weights: f32 of one or two dimensions. A row of shape [1, n]
	// is combined with every row of the data.
	Weights map[string]*Array `json:"weights"`
	Steps   int               `json:"steps"`
	Rate    float64           `json:"rate"`            // of Adam
	Decay   float64           `json:"decay,omitempty"` // times the weights, added to the derivatives
	// Inexact allows products of more than 64 columns, whose bits differ between devices.
	Inexact bool `json:"inexact,omitempty"`
	// Continue names a job whose last checkpoint is gone on from; empty: the training begins with
	// Weights.
	Continue string `json:"continue,omitempty"`
}

// Kind implements Spec.
func (*TrainProgramSpec) Kind() string { return KindTrainProgram }

// Check implements Spec. It does not read the text, which the agent does.
func (s *TrainProgramSpec) Check() error {
	c := ComputeSpec{Expr: s.Expr, In: maps.Clone(s.In), Numbers: s.Numbers}
	if c.In == nil {
		c.In = map[string]*Array{}
	}
	for name, a := range s.Weights {
		if c.In[name] != nil {
			return invalid("spec.weights.%s: spec.in has it too: use it once", name)
		}
		c.In[name] = a
	}
	if err := c.Check(); err != nil {
		return err
	}
	for _, name := range s.Names() {
		if err := s.Weights[name].checkType("weights."+name, 0, F32); err != nil {
			return err
		}
		if n, _ := s.Weights[name].Shape.Count(); n == 0 {
			return invalid("spec.weights.%s: no elements: use one at least", name)
		}
	}
	if s.Continue != "" {
		if err := jobs.CheckID("spec.continue", s.Continue); err != nil {
			return err
		}
	}
	switch {
	case len(s.Weights) < 1 || len(s.Weights) > MaxProgramWeights:
		return invalid("spec.weights: %d weights: use 1 to %d", len(s.Weights), MaxProgramWeights)
	case s.Steps < 1 || s.Steps > MaxProgramSteps:
		return invalid("spec.steps %d: use 1 to %d", s.Steps, MaxProgramSteps)
	case !(s.Rate > 0 && s.Rate <= 1):
		return invalid("spec.rate %v: use a number above 0, up to 1, as in 0.001", s.Rate)
	case !(s.Decay >= 0 && s.Decay <= 1):
		return invalid("spec.decay %v: use 0 to 1", s.Decay)
	}
	return nil
}

// Names returns the names of the weights in alphabetical order.
func (s *TrainProgramSpec) Names() []string { return slices.Sorted(maps.Keys(s.Weights)) }

// Settings returns the bytes of what decides the weights of a step, but for the elements of the
// arrays: a checkpoint is used by a job with the same bytes and arrays alone.
func (s *TrainProgramSpec) Settings() []byte {
	of := *s
	of.Steps, of.Continue = 0, ""
	shapes := func(all map[string]*Array) map[string]*Array {
		out := map[string]*Array{}
		for name, a := range all {
			out[name] = &Array{Type: a.Type, Shape: a.Shape}
		}
		return out
	}
	of.In, of.Weights = shapes(s.In), shapes(s.Weights)
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // numbers and texts
	}
	return text
}

// TrainProgramProgress is the progress of a job of kind train_program.
type TrainProgramProgress struct {
	Stage   string  `json:"stage"`             // loading, computing or storing
	Step    int     `json:"step,omitempty"`    // steps so far
	Resumed int     `json:"resumed,omitempty"` // the step of the checkpoint that this attempt began with
	Loss    float32 `json:"loss,omitempty"`    // before the last of them
}

// TrainProgramOutput is the output of a job of kind train_program.
type TrainProgramOutput struct {
	Weights map[string]Array `json:"weights"` // behind the last step
	// Losses are f32 of shape [steps], each of the weights before the step.
	Losses Array   `json:"losses"`
	Loss   float32 `json:"loss"` // the last one
	Ran
}
