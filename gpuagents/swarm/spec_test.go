package swarm

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/internal/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
)

func TestDefaults(t *testing.T) {
	got, err := Parse("a.yaml", []byte("name: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Spec{
		Name: "x", Cell: Cell{Kind: "predictor"}, AgentsPerGroup: 256, Timestamp: "timestamp", Features: []string{"value"},
		Vote: Vote{Candidates: []string{"normal", "suspicious", "anomalous"}, Rule: "weighted"}, PageSize: 2 << 20,
		Checkpoint: Checkpoint{Interval: strictyaml.Duration(5 * time.Second), Entries: 1024},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	back, err := FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, back); d != "" {
		t.Fatal(d)
	}
}

func TestExamplesParse(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(file, data); err != nil {
			t.Error(err)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"nam: x":                              `a.yaml:1: unknown key "nam": did you mean "name"?`,
		"cell: {kind: predictor}":             `a.yaml: name "": use 1 to 64 letters, digits, '-' or '_'`,
		"name: a b":                           `a.yaml:1: name "a b": use 1 to 64 letters`,
		"name: x\ncell: {kind: predicter}":    `a.yaml:2: cell kind "predicter": did you mean "predictor"? There are [gru leaky lif predictor]`,
		"name: x\ncell:\n  params: {lern: 1}": `a.yaml:3: invalid cell parameter: predictor has no parameter "lern"`,
		"name: x\ncell: {kind: gru, params: {hidden: 65}}":  "a.yaml:2: invalid cell parameter: gru: hidden = 65, want 4 to 64",
		"name: x\ncell: {kind: gru, params: {hidden: 4.5}}": "a.yaml:2: invalid cell parameter: gru: hidden = 4.5, want a whole number",
		"name: x\ncell: {kind: lif, params: {adapt: -1}}":   "a.yaml:2: invalid cell parameter: lif: adapt = -1, want 0 to 100",
		"name: x\nagents_per_group: -1":                     "a.yaml:2: agents_per_group -1: use 1 to 4096",
		"name: x\nagents_per_group: 5000":                   "a.yaml:2: agents_per_group 5000: use 1 to 4096",
		"name: x\nfeatures: [a, a]":                         `a.yaml:2: feature column "a" is empty or named twice`,
		"name: x\nfeatures: [timestamp]":                    `a.yaml:2: feature column "timestamp" is empty or named twice`,
		"name: x\nvote: {candidates: [a, b]}":               "a.yaml:2: 2 candidates: the cell predictor votes between 3: [normal suspicious anomalous]",
		"name: x\nvote: {candidates: [a, b, none]}":         `a.yaml:2: candidate "none" is empty, named twice, or the reserved name none`,
		"name: x\nvote: {rule: weigted}":                    `a.yaml:2: rule "weigted": did you mean "weighted"? There are [majority plurality quorum unanimous weighted]`,
		"name: x\nvote: {rule: quorum}":                     "a.yaml:2: quorum 0: the rule quorum needs a share above 0 and at most 1",
		"name: x\nvote: {rule: majority, quorum: .5}":       "a.yaml:2: quorum 0.5: only the rule quorum takes one, the rule is majority",
		"name: x\npage_size: 1000":                          "a.yaml:2: page_size 1000: use a multiple of 4 KiB from 64KiB to 1GiB",
		"name: x\ncheckpoint: {interval: 10ms}":             "a.yaml:2: checkpoint interval 10ms: use a duration from 100ms to 1h, such as 5s",
		"name: x\ncheckpoint: {interval: 5}":                `a.yaml: line 2: duration "5": write a number with ms, s, m or h, as in 5s`,
		"name: x\ncheckpoint:\n  entries: -2":               "a.yaml:3: checkpoint entries -2: use 1 to 1000000",
		"name: x\nseed: -1":                                 "a.yaml: line 2: cannot unmarshal",
		"name: x\nagents_per_group: 4096\npage_size: 64KiB": "a.yaml:3: layout: a group of 4096 agents needs a page of",
	} {
		_, err := Parse("a.yaml", []byte(text))
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInput || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestFromJSONIsStrictToo(t *testing.T) {
	if _, err := FromJSON(json.RawMessage(`{"name":"x","agents_per_group":-3}`)); err == nil {
		t.Error("accepted -3 agents")
	}
	if _, err := FromJSON(json.RawMessage(`[`)); err == nil {
		t.Error("accepted broken JSON")
	}
}
