package gpujob

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
)

// KindTrain is the kind of job that trains a model: TrainSpec, TrainOutput.
const KindTrain = "train"

// Limits of TrainSpec.
const (
	MaxTrainWindow     = 4096
	MaxTrainBatch      = 1 << 20
	MaxTrainEpochs     = 10_000
	MaxTrainHidden     = 32
	MaxTrainRows       = 1 << 20 // rows of the embedding
	MaxTrainItems      = 1 << 16
	MaxTrainCandidates = 16
	// TrainAttempts is how often a job of kind train is tried: each attempt goes on behind the one
	// before.
	TrainAttempts = 100
	// TrainResult is how long the result of such a job, and with it the last checkpoint, is kept, in
	// seconds.
	TrainResult = 7 * 24 * 3600
)

// TrainSpec asks for the weights of a gru with which it predicts the targets of sequences. A
// sequence has moments; each has an input, and asks a target or none.
type TrainSpec struct {
	// Model is the name under which the agent stores the weights, in its place of models.
	Model string `json:"model"`
	// Hidden is the number of units, and Width the number of inputs of a step.
	Hidden int `json:"hidden"`
	Width  int `json:"width"`
	// Rows is the number of rows of an embedding; 0: inputs are features. Items is the number of
	// items that targets ask, each with a probability; 0: targets are one of Candidates.
	Rows       int `json:"rows,omitempty"`
	Items      int `json:"items,omitempty"`
	Candidates int `json:"candidates,omitempty"`

	Window   int     `json:"window"`
	Batch    int     `json:"batch"`
	Epochs   int     `json:"epochs"`
	Patience int     `json:"patience"`
	Rate     float32 `json:"rate"`
	Clip     float32 `json:"clip,omitempty"` // 0: gradients have any norm
	Decay    float32 `json:"decay,omitempty"`
	Dropout  float32 `json:"dropout,omitempty"`
	Validate float64 `json:"validate"` // share of the sequences of training on which weights are chosen
	Seed     uint64  `json:"seed,omitempty"`

	// Lengths are u32, the moments of each sequence, from 1. The last HeldOut sequences are predicted
	// and not trained with.
	Lengths Array `json:"lengths"`
	HeldOut int   `json:"held_out,omitempty"`
	// Inputs have a row for each moment, sequence after sequence: f32 of shape [moments, Width], or
	// u32 of shape [moments], the numbers of rows of the embedding.
	Inputs Array `json:"inputs"`
	// Asked are i32, the item of each moment or -1; nil without items. Targets are i32: 0 or 1 with
	// items, otherwise a candidate; -1 where none is known.
	Asked   *Array `json:"asked,omitempty"`
	Targets Array  `json:"targets"`
	// Continue names a job whose last checkpoint is gone on from; empty: the training begins from the
	// start.
	Continue string `json:"continue,omitempty"`
}

// Kind implements Spec.
func (*TrainSpec) Kind() string { return KindTrain }

// Check implements Spec. It does not read the arrays, which the agent does.
func (s *TrainSpec) Check() error {
	if err := jobs.CheckID("spec.model", s.Model); err != nil {
		return err
	}
	if s.Continue != "" {
		if err := jobs.CheckID("spec.continue", s.Continue); err != nil {
			return err
		}
	}
	candidates := [2]int{2, MaxTrainCandidates}
	if s.Items > 0 {
		candidates = [2]int{0, 0}
	}
	for _, n := range []struct {
		field           string
		value, min, max int
	}{
		{"hidden", s.Hidden, 1, MaxTrainHidden},
		{"width", s.Width, 1, MaxTrainHidden},
		{"rows", s.Rows, 0, MaxTrainRows},
		{"items", s.Items, 0, MaxTrainItems},
		{"candidates", s.Candidates, candidates[0], candidates[1]},
		{"window", s.Window, 1, MaxTrainWindow},
		{"batch", s.Batch, 1, MaxTrainBatch},
		{"epochs", s.Epochs, 1, MaxTrainEpochs},
		{"patience", s.Patience, 1, MaxTrainEpochs},
	} {
		if n.value < n.min || n.value > n.max {
			return invalid("spec.%s %d: use %d to %d", n.field, n.value, n.min, n.max)
		}
	}
	for _, n := range []struct {
		field           string
		value, min, max float64
	}{
		{"rate", float64(s.Rate), math.SmallestNonzeroFloat32, 1},
		{"clip", float64(s.Clip), 0, math.MaxFloat32},
		{"decay", float64(s.Decay), 0, 1},
		{"dropout", float64(s.Dropout), 0, 0.9},
		{"validate", s.Validate, 0, 0.9},
	} {
		if !(n.value >= n.min && n.value <= n.max) {
			return invalid("spec.%s %v: use %v to %v", n.field, n.value, n.min, n.max)
		}
	}
	return s.checkArrays()
}

func (s *TrainSpec) checkArrays() error {
	if err := s.Lengths.checkType("lengths", 1, U32); err != nil {
		return err
	}
	if n := s.Lengths.Shape[0]; n < 2 || int64(s.HeldOut) > n-2 || s.HeldOut < 0 {
		return invalid("spec.held_out %d of %d sequences: training needs two at least, one of them for validation: "+
			"give more, or hold out fewer", s.HeldOut, n)
	}
	kind, dims, need := F32, 2, "features"
	if s.Rows > 0 {
		kind, dims, need = U32, 1, "rows of the embedding"
	}
	if err := s.Inputs.checkType("inputs", dims, kind); err != nil {
		return fmt.Errorf("%w (inputs are %s)", err, need)
	}
	if dims == 2 && s.Inputs.Shape[1] != int64(s.Width) {
		return invalid("spec.inputs.shape %v: use rows of %d features", []int64(s.Inputs.Shape), s.Width)
	}
	moments := s.Inputs.Shape[0]
	if (s.Asked != nil) != (s.Items > 0) {
		return invalid("spec.asked: it is for items: use both, or none")
	}
	for _, a := range []struct {
		field string
		array *Array
	}{{"targets", &s.Targets}, {"asked", s.Asked}} {
		if a.array == nil {
			continue
		}
		if err := a.array.checkType(a.field, 1, I32); err != nil {
			return err
		}
		if a.array.Shape[0] != moments {
			return invalid("spec.%s: %d elements for %d moments", a.field, a.array.Shape[0], moments)
		}
	}
	return nil
}

// Predictions returns the number of probabilities for each moment: 1 with items, otherwise one for
// each candidate.
func (s *TrainSpec) Predictions() int { return max(1, s.Candidates) }

// Settings returns the bytes of what decides the weights, but for the arrays: a checkpoint is used
// by a job with the same bytes and arrays alone. Epochs and Patience say only when training ends.
func (s *TrainSpec) Settings() []byte {
	of := *s
	of.Model, of.Continue, of.Epochs, of.Patience = "", "", 0, 0
	for _, a := range []*Array{&of.Lengths, &of.Inputs, &of.Targets} {
		*a = Array{Type: a.Type, Shape: a.Shape}
	}
	if of.Asked != nil {
		of.Asked = &Array{Type: of.Asked.Type, Shape: of.Asked.Shape}
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // numbers and texts
	}
	return text
}

// TrainEpoch is what one pass over the sequences of training has reached.
type TrainEpoch struct {
	Epoch      int     `json:"epoch"`      // from 1
	Loss       float64 `json:"loss"`       // mean cross entropy of a target of training
	Validation float64 `json:"validation"` // of a target of validation, behind the epoch
	Saturated  int64   `json:"saturated,omitempty"`
}

// TrainProgress is the progress of a job of kind train.
type TrainProgress struct {
	Stage   string `json:"stage"`             // loading, computing or storing
	Step    int64  `json:"step,omitempty"`    // steps of the optimizer so far
	Resumed int64  `json:"resumed,omitempty"` // the step of the checkpoint that this attempt began with
	Devices int    `json:"devices,omitempty"` // that share each batch
	Epoch   int    `json:"epoch,omitempty"`   // that runs, from 1
	Done    int    `json:"done,omitempty"`    // batches of it that are done, of Batches
	Batches int    `json:"batches,omitempty"`
	// Epochs are the last ones that are done, at most 20.
	Epochs []TrainEpoch `json:"epochs,omitempty"`
}

// TrainOutput is the output of a job of kind train.
type TrainOutput struct {
	Name string `json:"name"` // of the model
	// SHA256 is the digest of the model, which pins it. Weights is the SHA-256 of its file.
	SHA256  string `json:"sha256"`
	Weights string `json:"weights"`
	// Best is the epoch whose weights the model has.
	Best   int          `json:"best"`
	Epochs []TrainEpoch `json:"epochs"`
	Steps  int64        `json:"steps"`
	// Predictions are f32 of shape [moments of the sequences that are held out, probabilities]; nil if
	// none is. A moment that asks nothing has NaN. HeldOutLoss is the mean cross entropy of a target
	// of these sequences.
	Predictions *Array  `json:"predictions,omitempty"`
	HeldOutLoss float64 `json:"held_out_loss,omitempty"`
	Devices     int     `json:"devices"`         // that have trained in the last attempt
	Route       string  `json:"route,omitempty"` // nccl or host: between the devices; empty for one
	Ran
}
