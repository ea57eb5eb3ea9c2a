package swarm

import (
	"strings"
	"testing"
)

const trained = "name: x\naddressed: agent\nagents: 256\nfeatures: [a]\nvote: {candidates: [no, yes]}\n"

// TestTrain: what is left out has its default, and a record keeps all.
func TestTrain(t *testing.T) {
	s, err := Parse("x.yaml", []byte(trained+"train: {target: y, sequence: s, rate: 0.01}\n"))
	if err != nil {
		t.Fatalf("Parse: %v, want no error", err)
	}
	want := Train{
		Target: "y", Sequence: "s", Loss: LossCrossEntropy, Window: 200, Batch: 64, Epochs: 15, Patience: 4, Rate: 0.01,
		Clip: 1, Validate: 0.1,
	}
	if s.Train != want || s.Trains() != nil {
		t.Errorf("train is %+v, want %+v; Trains %v", s.Train, want, s.Trains())
	}
	columns, settings := s.TrainColumns()
	if strings.Join(columns, " ") != "a y" || settings["y"] != "train.target" || settings["s"] != "train.sequence" {
		t.Errorf("columns %q, settings %v", columns, settings)
	}
	if s, err = Parse("x.yaml", []byte(trained)); err != nil || s.Train != (Train{}) || s.Trains() == nil {
		t.Errorf("a specification without train: %+v, %v", s, err)
	}
}

// TestTrainMistakes: an error has the line, the key and the cure.
func TestTrainMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"train: {sequence: s}\n":                                     "x.yaml:6: train.target is missing",
		"train: {target: y}\n":                                       "x.yaml:6: train.sequence is missing",
		"train: {target: y, sequence: a}\n":                          "train.sequence a: another column has the name",
		"train: {target: y, sequence: y}\n":                          "train.sequence y: another column has the name",
		"train: {target: y, sequence: s, item: i}\n":                 "the cell has no items: use cell.items: N",
		"train: {target: y, sequence: s, ahead: 2}\n":                "train.ahead 2: use 0",
		"train: {target: y, sequence: s, loss: square}\n":            `did you mean "cross_entropy"`,
		"train: {target: y, sequence: s, rate: 2}\n":                 "train.rate 2: use 1e-06 to 1",
		"train: {target: y, sequence: s, rate: .nan}\n":              "rate",
		"train:\n  target: y\n  sequence: s\n  window: 5000\n":       "x.yaml:9: train.window 5000: use 1 to 4096",
		"train: {target: y, sequence: s}\ncell: {kind: leaky}\n":     "only a gru whose agents are addressed",
		"train: {target: y, sequence: s}\nhear: [decision]\n":        "agents that hear are not trained",
		"train: {target: y, sequence: s, epochs: 0}\n":               "train.epochs is 0: write a value above it",
		"train: {target: y, sequence: s}\ncell: {params: {bf16: 1}}": "training keeps units in float32",
	} {
		base := trained
		if strings.Contains(text, "leaky") {
			base = strings.ReplaceAll(base, "[no, yes]", "[quiet, spike]")
		}
		if _, err := Parse("x.yaml", []byte(base+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
