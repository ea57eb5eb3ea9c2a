package swarm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// Train says how exoswarm train finds the weights of a model for the cell: which columns of its
// input are what, and the settings of the optimizer. A row of the input is an event. GPU agents and
// CPU agents never read it.
type Train struct {
	// Target is the column that the model is to predict: 0 or 1 with Cell.Items, otherwise the number
	// of a candidate. A row that leaves it out is not asked.
	Target string `yaml:"target" json:"target,omitempty"`
	// Sequence is the column that tells the sequences apart. The rows of a sequence are in order.
	Sequence string `yaml:"sequence" json:"sequence,omitempty"`
	// Item is the column of the item that a row asks, with Cell.Items alone.
	Item string `yaml:"item" json:"item,omitempty"`
	// Ahead is 0, the target of a row is asked of the state behind the step with that row, or 1, of
	// the state behind the row before it.
	Ahead int `yaml:"ahead" json:"ahead,omitempty"`
	// Loss is LossCrossEntropy, the default.
	Loss string `yaml:"loss" json:"loss,omitempty"`
	// Window is the most rows of a sequence that gradients pass through; default 200. Longer sequences
	// are cut. Batch is how many windows make a step of the optimizer; default 64.
	Window int `yaml:"window" json:"window,omitempty" zero:"default"`
	Batch  int `yaml:"batch" json:"batch,omitempty" zero:"default"`
	// Epochs is the most passes over the sequences; default 15. Training ends before them after
	// Patience epochs without a lower loss of validation; default 4.
	Epochs   int `yaml:"epochs" json:"epochs,omitempty" zero:"default"`
	Patience int `yaml:"patience" json:"patience,omitempty" zero:"default"`
	// Rate is the step of Adam, default 0.004, Clip the largest norm of a gradient, default 1, and
	// Decay its weight decay.
	Rate  float64 `yaml:"rate" json:"rate,omitempty" zero:"default"`
	Clip  float64 `yaml:"clip" json:"clip,omitempty" zero:"default"`
	Decay float64 `yaml:"decay" json:"decay,omitempty"`
	// Dropout is the share of units that a step of training leaves out at the readout.
	Dropout float64 `yaml:"dropout" json:"dropout,omitempty"`
	// Validate is the share of the sequences on which the best weights are chosen; default 0.1.
	Validate float64 `yaml:"validate" json:"validate,omitempty" zero:"default"`
	// Seed chooses the first weights, the sequences of validation, the order and the dropout.
	Seed uint64 `yaml:"seed" json:"seed,omitempty"`
}

// LossCrossEntropy is the loss of a model that predicts probabilities.
const LossCrossEntropy = "cross_entropy"

// Limits of Train.
const (
	MaxTrainWindow = 4096
	MaxTrainBatch  = 1 << 20
	MaxTrainEpochs = 10_000
)

func (t *Train) ensureDefaults() {
	if *t == (Train{}) {
		return
	}
	setDefault(&t.Loss, LossCrossEntropy)
	setDefault(&t.Window, 200)
	setDefault(&t.Batch, 64)
	setDefault(&t.Epochs, 15)
	setDefault(&t.Patience, 4)
	setDefault(&t.Rate, 0.004)
	setDefault(&t.Clip, 1)
	setDefault(&t.Validate, 0.1)
}

// validateTrain returns the first thing wrong with Train. The cell is valid.
func (s *Spec) validateTrain() (path []string, err error) {
	t := &s.Train
	if *t == (Train{}) {
		return nil, nil
	}
	at := func(key string) []string { return []string{"train", key} }
	switch {
	case s.TakesModel() != nil:
		return []string{"train"}, errors.New("train: only a gru whose agents are addressed is trained: use cell: " +
			"{kind: gru} and addressed: agent")
	case len(s.Hear) > 0:
		return []string{"hear"}, fmt.Errorf("hear %v: agents that hear are not trained: leave hear out, or train",
			s.Hear)
	case s.Cell.Params["bf16"] != 0:
		return []string{"cell", "params"}, errors.New("bf16 1: training keeps units in float32: leave bf16 out, or " +
			"train")
	case t.Target == "":
		return at("target"), errors.New("train.target is missing: name the column that the model is to predict")
	case t.Sequence == "":
		return at("sequence"), errors.New("train.sequence is missing: name the column that tells the sequences " +
			"apart, such as student")
	case t.Item == "" && s.Cell.Items > 0:
		return at("item"), fmt.Errorf("train.item is missing: name the column of the item, 0 to %d, that a row asks",
			s.Cell.Items-1)
	case t.Item != "" && s.Cell.Items == 0:
		return at("item"), fmt.Errorf("train.item %s: the cell has no items: use cell.items: N, or leave it out",
			t.Item)
	case t.Ahead != 0 && t.Ahead != 1:
		return at("ahead"), fmt.Errorf("train.ahead %d: use 0 for the target of a row itself, or 1 for the target of "+
			"the row behind it", t.Ahead)
	case t.Loss != LossCrossEntropy:
		return at("loss"), fmt.Errorf("train.loss %q: did you mean %q? There is no other", t.Loss,
			strictyaml.Nearest(t.Loss, []string{LossCrossEntropy}))
	}
	if slices.Contains(append([]string{t.Target, t.Item}, s.Features...), t.Sequence) {
		return at("sequence"), fmt.Errorf("train.sequence %s: another column has the name: name a column that is no "+
			"feature, target or item", t.Sequence)
	}
	return t.validateNumbers()
}

// validateNumbers returns the first number out of its range.
func (t *Train) validateNumbers() (path []string, err error) {
	for _, n := range []struct {
		key        string
		value, max int
	}{
		{"window", t.Window, MaxTrainWindow},
		{"batch", t.Batch, MaxTrainBatch},
		{"epochs", t.Epochs, MaxTrainEpochs},
		{"patience", t.Patience, MaxTrainEpochs},
	} {
		if n.value < 1 || n.value > n.max {
			return []string{"train", n.key}, fmt.Errorf("train.%s %d: use 1 to %d", n.key, n.value, n.max)
		}
	}
	for _, n := range []struct {
		key             string
		value, min, max float64
	}{
		{"rate", t.Rate, 1e-6, 1},
		{"clip", t.Clip, 1e-6, 1e6},
		{"decay", t.Decay, 0, 1},
		{"dropout", t.Dropout, 0, 0.9},
		{"validate", t.Validate, 0.001, 0.9},
	} {
		if !(n.value >= n.min && n.value <= n.max) {
			return []string{"train", n.key}, fmt.Errorf("train.%s %v: use %v to %v", n.key, n.value, n.min, n.max)
		}
	}
	return nil, nil
}

// Trains returns an error that says what is missing unless the specification says how to train.
func (s *Spec) Trains() error {
	if s.Train == (Train{}) {
		return errors.New("train is missing: name the columns, as in train: {target: right, sequence: student}")
	}
	return nil
}

// TrainColumns returns the columns of numbers that training reads: the features, then the item if
// there is one, then the target, and by column the setting that names it.
func (s *Spec) TrainColumns() (all []string, settings map[string]string) {
	all = slices.Clone(s.Features)
	settings = map[string]string{s.Train.Sequence: "train.sequence", s.Train.Target: "train.target"}
	if s.Train.Item != "" {
		all, settings[s.Train.Item] = append(all, s.Train.Item), "train.item"
	}
	return append(all, s.Train.Target), settings
}
