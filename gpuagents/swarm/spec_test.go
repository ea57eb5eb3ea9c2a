package swarm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

func TestDefaults(t *testing.T) {
	got, err := Parse("a.yaml", []byte("name: x\n"))
	if err != nil {
		t.Fatalf("Parse: %v, want no error", err)
	}
	want := &Spec{
		Name: "x", Addressed: ByGroup, Cell: Cell{Kind: "predictor"}, AgentsPerGroup: 256, Timestamp: "timestamp",
		Features:     []string{"value"},
		Observations: Observations{Late: Reject, Duplicate: Apply},
		Vote:         Vote{Candidates: []string{"normal", "suspicious", "anomalous"}, Rule: "weighted"},
		PageSize:     2 << 20,
		Checkpoint:   Checkpoint{Interval: strictyaml.Duration(5 * time.Second), Entries: 1024},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("difference (-want +got):\n%s", d)
	}
	back := throughJSON(t, got)
	if d := cmp.Diff(got, back); d != "" {
		t.Fatalf("difference (-want +got):\n%s", d)
	}
}

// TestGroups: a swarm whose groups are addressed has the groups of its spec, or is the swarm of a
// run.
func TestGroups(t *testing.T) {
	for text, want := range map[string]int{"name: x\n": 0, "name: x\ngroups: 7\n": 7} {
		s, err := Parse("a.yaml", []byte(text))
		if err != nil || s.Groups() != want || s.OfRun() != (want == 0) {
			t.Errorf("%q: %d groups, of a run %v: %v", text, s.Groups(), s.OfRun(), err)
		}
	}
	if _, err := Parse("a.yaml", []byte("name: x\nfeatures: [group]\n")); err != nil { // of a run
		t.Errorf("Parse: %v, want no error", err)
	}
}

func TestExamplesParse(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %q, %v, want 3 or more", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("os.ReadFile: %v, want no error", err)
		}
		if _, err := ParseIn(os.DirFS(filepath.Dir(file)), file, data); err != nil {
			t.Errorf("ParseIn: %v, want no error", err)
		}
	}
}

// byAgent is a spec of a swarm whose agents are addressed, with more lines from line 4 on.
func byAgent(lines string) string { return "name: x\naddressed: agent\nagents: 512\n" + lines }

// onGrid is a spec of a swarm of life, with more lines from line 4 on.
func onGrid(lines string) string { return "name: x\naddressed: agent\ncell: {kind: life}\n" + lines }

// onGraph is a spec of a swarm of sir, with more lines from line 5 on.
func onGraph(lines string) string { return byAgent("cell: {kind: sir}\n") + lines }

// TestNeurons: types of neurons give the parameters that a spec leaves out, also in its JSON.
func TestNeurons(t *testing.T) {
	spec, err := Parse("a.yaml", []byte(byAgent("cell: {kind: izhikevich, neurons: chattering, inhibitory_neurons: "+
		"low_threshold_spiking, params: {c: -51}}\nneighbours: {ring: {reach: 2}}")))
	if err != nil {
		t.Fatalf("Parse: %v, want no error", err)
	}
	again := throughJSON(t, spec)
	for _, s := range []*Spec{spec, again} {
		cell, err := s.Address()
		if err != nil {
			t.Fatalf("s.Address: %v, want no error", err)
		}
		for name, want := range map[string]float64{
			"a": 0.02, "c": -51, "d": 2, "inhibitory_a": 0.02, "inhibitory_b": 0.25, "inhibitory_d": 2,
		} {
			if got := cell.Value(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
}

// TestGraph: what specs of graphs leave out, also one that names a file of edges, and that their
// JSON is the same spec.
func TestGraph(t *testing.T) {
	files := fstest.MapFS{
		"a.csv": {Data: []byte("a,b\n0,1\n5,1\n")}, "w.csv": {Data: []byte("0 1 0.5\n1 2 1\n")},
		"empty.csv": {}, "bad.csv": {Data: []byte("0,1\n0,NaN\n")}, "nan.csv": {Data: []byte("0,1,NaN\n")},
		"heavy.csv": {Data: []byte("0 1 0.5\n1 2 1.5\n")}, "far.csv": {Data: []byte("0,600\n")},
	}
	for text, want := range map[string][2]int64{ // agents, agents a group
		onGraph("neighbours: {random: {degree: 2}}"):                                               {512, 512},
		onGraph("neighbours: {ring: {reach: 2, rewire: 0.5, seed: 3}}\nagents_per_group: 4"):       {512, 4},
		onGraph("neighbours: {graph: a.csv}"):                                                      {512, 512},
		"name: x\naddressed: agent\ncell: {kind: sir}\nneighbours: {graph: a.csv}":                 {6, 6},
		"name: x\naddressed: agent\ncell: {kind: sir}\nneighbours: {graph: w.csv, directed: true}": {3, 3},
	} {
		got, err := ParseIn(files, "a.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v, want no error", text, err)
			continue
		}
		if got.Agents != want[0] || int64(got.AgentsPerGroup) != want[1] || got.Residency != ResidencyGPU ||
			len(got.Vote.Candidates) != 3 {
			t.Errorf("%q: %+v, want %v", text, got, want)
		}
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON(data)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%q: its JSON is %+v, %v", text, again, err)
		}
		links, err := again.Links()
		rows := links.Rows
		if err != nil || (rows != nil) != strings.Contains(text, "csv") || rows != nil && rows.Weights != nil !=
			strings.Contains(text, "w.csv") {
			t.Errorf("%q: %+v, %v", text, rows, err)
		}
	}
	for file, want := range map[string]string{
		"none.csv": "a.yaml:5: neighbours: graph: open none.csv: file does not exist: name a file below the spec's " +
			"own",
		"empty.csv": "a.yaml:5: neighbours: graph empty.csv: invalid list of edges: it has no edge: write FROM,TO",
		"bad.csv": `a.yaml:5: neighbours: graph bad.csv: invalid list of edges: line 2: agent "NaN": use a whole ` +
			`number`,
		"nan.csv": `a.yaml:5: neighbours: graph nan.csv: invalid list of edges: line 1: weight "NaN": use a number`,
		"heavy.csv": "a.yaml:5: neighbours: graph heavy.csv: weights from 0.5 to 1.5: weights of the cell sir are " +
			"chances",
		"far.csv": "a.yaml:3: agents 512: the graph far.csv has agent 600, and the first is 0: use 601 or more, or " +
			"leave " +
			"it out",
	} {
		_, err := ParseIn(files, "a.yaml", []byte(onGraph("neighbours: {graph: "+file+"}")))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", file, err, want)
		}
	}
	var b strings.Builder
	for i := range 200_000 {
		fmt.Fprintln(&b, i*7919%999983, (i+1)*i%999983)
	}
	files["large.csv"] = &fstest.MapFile{Data: []byte(b.String())}
	large, err := ParseIn(files, "a.yaml", []byte("name: x\naddressed: agent\ncell: {kind: sir}\nneighbours: "+
		"{graph: large.csv}"))
	if err != nil || !large.Neighbours.Large() {
		t.Fatalf("200,000 edges: %v, or they fit a record", err)
	}
	// Its record has the digest of the edges alone.
	text, agents := large.Neighbours.String(), large.Agents
	object, packed := large.Detach()
	data, err := json.Marshal(large)
	if err != nil || len(data) > 2000 {
		t.Fatalf("the record without edges has %d bytes, %v", len(data), err)
	}
	again, err := FromJSON(data)
	if err != nil || again.Neighbours.Object() != object || again.Neighbours.String() != text ||
		again.Agents != agents {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := again.Links(); err == nil || !strings.Contains(err.Error(), object) {
		t.Errorf("rows without edges: %v", err)
	}
	if err := again.Attach(packed[1:]); err == nil || !strings.Contains(err.Error(), "has other edges") {
		t.Errorf("other edges: %v", err)
	}
	if err := again.Attach(packed); err != nil {
		t.Error(err)
	}
	if l, err := again.Links(); err != nil || l.Count(again.Agents) != 399_998 { // two are between an agent and itself
		t.Errorf("%d links, %v", l.Count(again.Agents), err)
	}
	broken := []byte(`{"name":"x","addressed":"agent","agents":6,"cell":{"kind":"sir"},` +
		`"neighbours":{"graph":"a","edges":"AAAA"}}`)
	if _, err := FromJSON(broken); err == nil || !strings.Contains(err.Error(), "packed edges") {
		t.Errorf("broken edges: %v", err)
	}
}

// TestOnGrid: what a spec of a grid leaves out, and that its JSON is the same spec.
func TestOnGrid(t *testing.T) {
	for text, want := range map[string][2]int64{ // agents, agents a group
		onGrid("neighbours: {width: 512, height: 3, periodic: true}"):     {1536, 512},
		onGrid("neighbours: {width: 16384, height: 16384}"):               {1 << 28, 4096},
		onGrid("neighbours: {width: 8191, height: 1}"):                    {8191, 1},
		onGrid("neighbours: {width: 12, height: 1}\nagents_per_group: 4"): {12, 4},
		onGrid("neighbours: {width: 10000, height: 2}\nagents: 20000"):    {20000, 2500},
	} {
		got, err := Parse("a.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: %v, want no error", text, err)
			continue
		}
		if got.Agents != want[0] || int64(got.AgentsPerGroup) != want[1] || got.Residency != ResidencyGPU ||
			!slices.Equal(got.Vote.Candidates, []string{"dead", "alive"}) {
			t.Errorf("%q: %+v, want %v", text, got, want)
		}
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON(data)
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%q: its JSON is %+v, %v", text, again, err)
		}
	}
}

// TestByAgent: what a spec that addresses agents leaves out, and that its JSON is the same spec.
func TestByAgent(t *testing.T) {
	for text, want := range map[string]*Spec{
		byAgent("vote: {candidates: [a, b]}"): {
			Cell: Cell{Kind: "gru"},
			Vote: Vote{Candidates: []string{"a", "b"}, Rule: "plurality"},
		},
		byAgent("cell: {kind: leaky}"): {
			Cell: Cell{Kind: "leaky"},
			Vote: Vote{Candidates: []string{"quiet", "spike"}, Rule: "plurality"},
		},
	} {
		want.Name, want.Addressed, want.Agents, want.AgentsPerGroup, want.Features, want.PageSize = "x", ByAgent, 512,
			256, []string{"value"}, 2<<20
		want.Shards = 1
		want.Checkpoint = Checkpoint{Interval: strictyaml.Duration(5 * time.Second), Entries: 1024}
		got, err := Parse("a.yaml", []byte(text))
		if err != nil {
			t.Fatalf("Parse: %v, want no error", err)
		}
		back := throughJSON(t, got)
		for _, s := range []*Spec{got, back} {
			if d := cmp.Diff(want, s); d != "" {
				t.Fatalf("difference (-want +got):\n%s", d)
			}
		}
		if got.Groups() != 2 {
			t.Errorf("%d groups", got.Groups())
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		onGrid("neighbours: {width: 9, height: 4}\ndevices: 9"):  "a.yaml:5: devices 9: use 1 to 8, or leave it out",
		onGrid("neighbours: {width: 9, height: 4}\ndevices: -1"): "a.yaml:5: devices -1: use 1 to 8",
		byAgent("devices: 2"): "a.yaml:4: devices 2: several make the ticks of agents of the cells life, sir, lif and",
		"name: x\ndevices: 3": "a.yaml:2: devices 3: several make the ticks of agents of the cells life, sir, lif and",
		onGraph("neighbours: {random: {degree: 2}}\ndevices: 99"): "a.yaml:6: devices 99: use 1 to 8",
		byAgent("cell: {kind: lif}\ndevices: 2"):                  "a.yaml:5: devices 2: several make the ticks",
		byAgent("cell: {kind: boids}\nneighbours: {space: {size: [9, 9], radius: 1}}\ndevices: 2"): "a.yaml:6: " +
			"devices 2: several make the ticks of agents of the cells life, sir, lif and izhikevich",
		byAgent("shards: 3\ncell: {kind: leaky}"): "a.yaml:4: shards 3: use 1 to 64, and no more than " +
			"the number of groups, 2",
		byAgent("shards: -1\ncell: {kind: leaky}"):    "a.yaml:4: shards -1: use 1 to 64",
		"name: x\nshards: 65":                         "a.yaml:2: shards 65: use 1 to 64",
		"name: x\ngroups: 3\nshards: 4":               "a.yaml:3: shards 4: use 1 to 3, and no more than groups",
		"name: x\nkey: a\nmax_entities: 3\nshards: 4": "a.yaml:4: shards 4: use 1 to 3, and no more than groups",
		"name: x\nkey: a\nshards: 2\ncell: {kind: gru, weights: group}": "a.yaml:3: shards: the weights of a group " +
			"depend on its number",
		"nam: x":                  `a.yaml:1: unknown key "nam": did you mean "name"?`,
		"cell: {kind: predictor}": `a.yaml: name "": use 1 to 64 letters, digits, '-' or '_'`,
		"name: a b":               `a.yaml:1: name "a b": use 1 to 64 letters`,
		"name: x\ncell: {kind: predicter}": `a.yaml:2: cell kind "predicter": did you mean "predictor"? There are ` +
			`[custom gru leaky lif predictor region]`,
		"name: x\ncell:\n  params: {lern: 1}": `a.yaml:3: invalid cell parameter: predictor has no parameter "lern"`,
		"name: x\ncell: {kind: gru, params: {hidden: 65}}": "a.yaml:2: invalid cell parameter: gru: hidden = 65, " +
			"want 4 to 64",
		"name: x\ncell: {kind: gru, params: {hidden: 4.5}}": "a.yaml:2: invalid cell parameter: gru: hidden = 4.5, " +
			"want a whole number",
		"name: x\ncell: {kind: lif, params: {adapt: -1}}": "a.yaml:2: invalid cell parameter: lif: adapt = -1, " +
			"want 0 to 100",
		"name: x\nagents_per_group: -1":   "a.yaml:2: agents_per_group -1: use 1 to 4096",
		"name: x\nagents_per_group: 5000": "a.yaml:2: agents_per_group 5000: use 1 to 4096",
		"name: x\nfeatures: [a, a]":       `a.yaml:2: feature column "a" is empty or named twice`,
		"name: x\nfeatures: [timestamp]":  `a.yaml:2: feature column "timestamp" is empty or named twice`,
		"name: x\nvote: {candidates: [a, b]}": "a.yaml:2: 2 candidates: the cell predictor votes " +
			"between 3: [normal suspicious anomalous]",
		"name: x\nvote: {candidates: [a, b, none]}": `a.yaml:2: candidate "none" is empty, named twice, or the ` +
			`reserved name none`,
		"name: x\nvote: {rule: weigted}": `a.yaml:2: rule "weigted": did you mean "weighted"? There are [majority ` +
			`plurality quorum unanimous weighted]`,
		"name: x\nvote: {rule: quorum}": "a.yaml:2: quorum 0: the rule quorum needs a share " +
			"above 0 and at most 1",
		"name: x\nvote: {rule: majority, quorum: .5}": "a.yaml:2: quorum 0.5: only the rule quorum takes one, " +
			"the rule is majority",
		"name: x\npage_size: 1000": "a.yaml:2: page_size 1000: use a multiple of 4 KiB " +
			"from 64KiB to 1GiB",
		"name: x\ncheckpoint: {interval: 10ms}": "a.yaml:2: checkpoint interval 10ms: use a duration " +
			"from 100ms to 1h, such as 5s",
		"name: x\ncheckpoint: {interval: 5}": `a.yaml: line 2: duration "5": write a number with ms, s, m or h, ` +
			`as in 5s`,
		"name: x\ncheckpoint:\n  entries: -2":               "a.yaml:3: checkpoint entries -2: use 1 to 1000000",
		"name: x\nseed: -1":                                 "a.yaml: line 2: cannot unmarshal",
		"name: x\nagents_per_group: 4096\npage_size: 64KiB": "a.yaml:3: layout: a group of 4096 agents needs a page of",

		"name: x\ngroups: -1": "a.yaml:2: groups -1: use 1 to 134217728, or leave it out " +
			"for a run",
		"name: x\ngroups: 134217729":            "a.yaml:2: groups 134217729: use 1 to",
		"name: x\ngroups: 4\nfeatures: [group]": `a.yaml:3: feature column "group" is empty or named twice`,
		byAgent("groups: 2\nvote: {candidates: [a, b]}"): "a.yaml:4: groups 2: agents over agents_per_group says " +
			"how many there are: leave it out",

		"name: x\nfleet:\n  false_discoveries: 0.6":       "a.yaml:3: false_discoveries 0.6: use a share of 0 to 0.5",
		"name: x\nfleet: {alarms_per_day: -1}":            "a.yaml:2: alarms_per_day -1: use 0 to 1e+06",
		"name: x\nfleet: {alarms_per_day: 1, window: 5m}": "a.yaml:2: window 5m0s: use 12m0s to 87600h0m0s",
		"name: x\nfleet: {together: 25h}":                 "a.yaml:2: together 25h0m0s: use 1s to 24h0m0s",
		"name: x\nfleet: {window: 24h}": "a.yaml:2: fleet: it limits nothing: name false_discoveries, " +
			"alarms_per_day or together",
		"name: x\ncell: {kind: gru}\nfleet: {false_discoveries: 0.1}": "a.yaml:3: fleet: it reads the scores of the " +
			"cell predictor, not of gru: leave it out",
		"name: x\ncell: {params: {alarms_per_day: 1}}\nfleet: {false_discoveries: 0.1}": "a.yaml:3: fleet: " +
			"alarms_per_day of the cell sets an alarm for each entity: leave it out of cell.params",
		byAgent("fleet: {alarms_per_day: 1}"): "a.yaml:4: fleet: it limits the incidents of groups: leave it out",

		"name: x\nobservations: {late: never}":        `a.yaml:2: late "never": use reject, apply or drop`,
		"name: x\nobservations:\n  duplicate: reject": `a.yaml:3: duplicate "reject": use apply or drop`,
		byAgent("observations: {late: drop}"): "a.yaml:4: observations: agents have observations without " +
			"a time, none is late: leave it out",
		"name: x\ncell: {kind: gru, model: m}":   "a.yaml:2: model: only a gru whose agents are addressed",
		byAgent("cell: {kind: leaky, model: m}"): "a.yaml:4: model: only a gru whose agents are addressed",
		byAgent("cell: {model: a b}"):            `a.yaml:4: model "a b": use 1 to 64 letters`,
		byAgent("cell: {model_sha256: ab}"):      "a.yaml:4: model_sha256: it is of no model",
		byAgent("cell: {model: m, model_sha256: ab}"): `a.yaml:4: model m: sha256 "ab": use the 64 hexadecimal ` +
			"digits",
		"name: x\ncell: {kind: gru, embed: {rows: 2}}": "a.yaml:2: embed: only a gru whose agents are addressed",
		byAgent("cell: {kind: leaky, items: 2}"):       "a.yaml:4: items: only a gru whose agents are addressed",
		byAgent("cell:\n  embed:\n    rows: -1"):       "a.yaml:6: rows -1: use 1 to 1048576",
		byAgent("cell:\n  embed:\n    width: 3"):       "a.yaml:5: rows 0: use 1 to 1048576",
		byAgent("cell: {embed: {rows: 9, width: 33}}"): "a.yaml:4: width 33: use 1 to 8, or more units",
		byAgent("cell: {embed: {rows: 9}}\nfeatures: [a, b]"): "a.yaml:5: 2 features: with cell.embed an " +
			"observation has one, the number of a row",
		byAgent("cell: {items: 65537}"): "a.yaml:4: items 65537: use 1 to 65536",
		byAgent("cell: {items: 3}\nvote: {candidates: [a, b, c]}"): "a.yaml:5: 3 candidates: with cell.items agents " +
			"vote between two",
		byAgent("cell: {items: 3}\nfeatures: [item]\nvote: {candidates: [a, b]}"): `a.yaml:5: feature column "item" ` +
			"is empty or named twice",

		"name: x\ncell: {kind: gru, weights: own}": `a.yaml:2: weights "own": use shared or group`,
		"name: x\ncell: {kind: lif, weights: group}": "a.yaml:2: weights group: only a gru whose groups are " +
			"addressed has some for each group",
		byAgent("cell: {kind: gru, weights: group}"): "a.yaml:4: weights group: only a gru whose groups are " +
			"addressed has some for each group",
		"name: x\npage_size: 64KiB\nagents_per_group: 40\ncell: {kind: gru, weights: group, params: " +
			"{hidden: 64}}": "a.yaml:2: layout: a group of 40 agents needs a page of",
		"name: x\naddressed: agents": `a.yaml:2: addressed "agents": use group or agent`,
		"name: x\nagents: 5": "a.yaml:2: agents 5: " +
			"the input says how many there are",
		byAgent("cell: {kind: lifx}"): `a.yaml:4: cell kind "lifx": did you mean "life"? There are [boids ` +
			`circles colony custom gru izhikevich leaky life lif quantum sir transformer]`,
		byAgent("cell: {kind: lif}"): "a.yaml:4: neighbours: agents of the cell lif are on a graph: write " +
			"neighbours: " +
			"{random: {degree: 10}}",
		byAgent("cell: {kind: izhikevich, neurons: chatering}\nneighbours: {ring: {reach: 2}}"): "a.yaml:4: neurons " +
			`"chatering": did you mean "chattering"? There are [regular_spiking fast_spiking`,
		byAgent("cell: {kind: izhikevich, inhibitory_neurons: fs}\nneighbours: {ring: {reach: 2}}"): "a.yaml:4: " +
			`inhibitory_neurons "fs": did you mean`,
		byAgent("cell: {kind: lif, neurons: chattering}\nneighbours: {ring: {reach: 2}}"): "a.yaml:4: neurons: it is " +
			"for the cell izhikevich: write cell: {kind: izhikevich}, or leave it out",
		byAgent("cell: {kind: izhikevich, params: {a: 2}}\nneighbours: {ring: {reach: 2}}"): "a.yaml:4: invalid cell " +
			"parameter: izhikevich: a = 2, want 0 to 1",
		"name: x\naddressed: agent\nvote: {candidates: [a, b]}": "a.yaml: agents 0: use " +
			"a multiple of agents_per_group, 256, below 2^32, such as 256",
		"name: x\naddressed: agent\nagents: 300": "a.yaml:3: agents 300: " +
			"use a multiple of agents_per_group, 256, below 2^32, such as 512",
		"name: x\naddressed: agent\nagents: 4294967296": "a.yaml:3: agents " +
			"4294967296: use a multiple of agents_per_group, 256, below 2^32, such as 4294967040",
		"name: x\naddressed: agent\nagents: 4294967294\nagents_per_group: 1": "a.yaml:3: agents " +
			"4294967294: they are 4294967294 groups of 1, at most 134217728: use larger groups",
		byAgent("timestamp: t"):      `a.yaml:4: timestamp "t": observations of agents have none: leave it out`,
		byAgent("features: [agent]"): `a.yaml:4: feature column "agent" is empty or named twice`,
		byAgent("vote: {rule: weighted, candidates: [a, b]}"): "a.yaml:4: rule " +
			"weighted: votes of agents that are addressed weigh the same: use plurality",
		byAgent("vote: {candidates: [a]}"): "a.yaml:4: 1 candidates: name 2 to 16",
		byAgent("seed: 4"):                 "a.yaml: 0 candidates: name 2 to 16",
		byAgent("cell: {kind: leaky}\nvote: {candidates: [a, b, c]}"): "a.yaml:5: 3 " +
			"candidates: the cell leaky votes between 2: [quiet spike]",
		byAgent("vote: {candidates: [a, b]}\ncell: {params: {hidden: 33}}"): "a.yaml:5: invalid " +
			"cell parameter: gru: hidden = 33, want 1 to 32",
		byAgent("vote: {candidates: [a, b]}\nfeatures: [a, b, c, d, e, f, g, h, i]"): "a.yaml: invalid cell " +
			"parameter: gru: 9 features, want 1 to 8",
		byAgent("cell: {kind: leaky}\nagents_per_group: 4096\npage_size: 64KiB"): "a.yaml:3: agents 512: " +
			"use a multiple of agents_per_group, 4096",
		"name: x\nhear: [decision]": "a.yaml:2: hear: agents of a swarm whose groups are addressed hold no inputs: " +
			"write addressed: agent",
		byAgent("vote: {candidates: [a, b]}\nhear: [decisions]"): `a.yaml:5: hear "decisions": did you mean ` +
			`"decision"? There are [decision leader group knowledge]`,
		byAgent("vote: {candidates: [a, b]}\nhear: [leader, decision, leader]"): `a.yaml:5: hear "leader": it is ` +
			`named twice: leave one out`,
		byAgent("cell: {kind: leaky}\nhear: [decision]"): "a.yaml:5: invalid cell parameter: leaky: it takes a " +
			"current and a gain and hears nothing: use gru, or leave hear out",
		byAgent("vote: {candidates: [a, b]}\nfeatures: [a, b, c, d, e, f, g]\nhear: [leader, decision]"): "a.yaml:6: " +
			"invalid cell parameter: gru: 7 features and 2 inputs that are heard: use at most 8 together, " +
			"or more units",
		byAgent("cell: {kind: life}"): "a.yaml:4: neighbours: agents of the cell life are on a grid: write " +
			"neighbours: {width: 512, height: 512, periodic: true}",
		byAgent("neighbours: {width: 2, height: 2}"): "a.yaml:4: neighbours: agents of the cell gru have none: write " +
			"addressed: agent and cell: {kind: life}, or kind custom, sir, lif, izhikevich, boids, circles or colony",
		"name: x\nneighbours: {width: 2, height: 2}": "a.yaml:2: neighbours: agents of the cell predictor have none",
		onGrid("neighbours: {width: 0, height: 4}"):  "a.yaml:4: neighbours: width 0: use 1 or more",
		onGrid("neighbours: {width: 4, height: -1}"): "a.yaml:4: neighbours: height -1: use 1 to 1073741823, so that " +
			"there are fewer than 2^32 agents in all",
		onGrid("neighbours: {width: 65536, height: 65536}"): "a.yaml:4: neighbours: height 65536: use 1 to 65535",
		onGrid("neighbours: {width: 4, height: 4}\nagents: 17"): "a.yaml:5: agents 17: the grid of 4 x 4 has 16: " +
			"write that, or leave it out",
		onGrid("neighbours: {width: 9, height: 4}\nagents_per_group: 4"): "a.yaml:5: agents_per_group 4: on a grid " +
			"it divides the width, 9: use such a number, or leave it out",
		onGrid("neighbours: {width: 9, height: 4}\nshards: 2"): "a.yaml:5: shards 2: a grid has one: leave " +
			"it out",
		onGrid("neighbours: {width: 9, height: 4}\nhear: [decision]"): "a.yaml:5: invalid cell parameter: life: an " +
			"agent hears its neighbours alone: leave hear out",
		onGrid("neighbours: {width: 9, height: 4}\nfeatures: [a, b]"): "a.yaml:3: invalid cell parameter: life: " +
			"2 features, want 1",
		onGrid("neighbours: {width: 9, height: 4}\nvote: {candidates: [a, b, c]}"): "a.yaml:5: 3 candidates: the " +
			"cell life votes between 2: [dead alive]",
		onGrid("neighbours: {width: 9, height: 4, depth: 2}"): "a.yaml:4:",
		onGrid("neighbours: {random: {degree: 2}}\nagents: 8"): "a.yaml:4: neighbours: agents of the cell life are " +
			"on " +
			"a grid: write width and height",
		onGrid("neighbours: {width: 9, height: 4, directed: true}"): "a.yaml:4: neighbours: directed: it is for graph",
		onGraph(""): "a.yaml:4: neighbours: agents of the cell sir are on a graph: write neighbours: {random: " +
			"{degree: " +
			"10}}, or ring: {reach: 4}, or graph: and a file of edges",
		onGraph("neighbours: {width: 2, height: 256}"): "a.yaml:5: neighbours: agents of the cell sir are on a " +
			"graph: " +
			"write random, ring or graph, and no width and height",
		onGraph("neighbours: {random: {degree: 2}, periodic: true}"): "a.yaml:5: neighbours: agents of the cell sir " +
			"are on a graph",
		onGraph("neighbours: {random: {degree: 2}, ring: {reach: 2}}"): "a.yaml:5: neighbours: write one of random, " +
			"ring " +
			"and graph",
		onGraph("neighbours: {random: {degree: 512}}"): "a.yaml:5: neighbours: degree 512: use 1 to 511, fewer than " +
			"there are agents",
		onGraph("neighbours: {random: {degree: 0, seed: 1}}"): "a.yaml:5: neighbours: degree 0: use 1 to 511",
		onGraph("neighbours: {ring: {reach: 256}}"): "a.yaml:5: neighbours: reach 256: use 1 to 255, so that an " +
			"agent " +
			"has no link to itself",
		onGraph("neighbours: {ring: {reach: 2, rewire: 1.5}}"): "a.yaml:5: neighbours: rewire 1.5: use a chance from " +
			"0 " +
			"to 1",
		onGraph("neighbours: {ring: {reach: 2, rewire: .nan}}"): "a.yaml:5: neighbours: rewire NaN: use a chance",
		onGraph("neighbours: {random: {degree: 2}, directed: true}"): "a.yaml:5: neighbours: directed: it is for " +
			"graph: " +
			"leave it out",
		onGraph("neighbours: {graph: a.csv}"): `a.yaml:5: neighbours: graph "a.csv": only a spec that is read from a ` +
			"folder can name files of it",
		onGraph("neighbours: {random: {degree: 2}}\nshards: 2"): "a.yaml:6: shards 2: a graph has one: leave it out",
		onGraph("neighbours: {random: {degree: 2}}\nhear: [decision]"): "a.yaml:6: invalid cell parameter: sir: an " +
			"agent hears its neighbours alone: leave hear out",
		onGraph("neighbours: {random: {degree: 2}}\non_decision: [changed -> emit a]"): "a.yaml:6: on_decision: the " +
			"agents of this swarm hold no rounds of votes",
		onGraph("neighbours: {random: {degree: 2}}\nvote: {candidates: [a, b]}"): "a.yaml:6: 2 candidates: the cell " +
			"sir votes between 3: [susceptible infected recovered]",
		"name: x\naddressed: agent\ncell: {kind: sir}\nneighbours: {random: {degree: 2}}": "a.yaml: agents 0: a " +
			"graph " +
			"has 2 or more",
		ofTokens("model: m"):    "a.yaml:4: cell kind transformer: write exact: true, so that a replay",
		ofTokens("exact: true"): "a.yaml:4: cell kind transformer: its language model is missing: write model: NAME",
		ofTokens("exact: true, model: m, cache_bytes: 70000"): "a.yaml:5: page_size 64KiB: a position of a " +
			"conversation takes 70000 bytes: use a multiple of 4 KiB that is larger",
		ofTokens("exact: true, model: m, cache_bytes: 65536"): "a.yaml:5: page_size 64KiB: 9000 conversations have " +
			"2048 pages each, more than 16777216 in all",
		ofTokens("exact: true, model: m, params: {context: 20000}"): "a.yaml:5: layout: a group of 1 agents needs a " +
			"page of 80640 bytes",
		ofTokens("exact: true, model: m, params: {context: 2}"): "a.yaml:4: invalid cell parameter: transformer: " +
			"context = 2",
		ofTokens("exact: true, model: m}\nhear: [decision]\nvote: {rule: majority"): "a.yaml:5: hear: conversations " +
			"read prompts and hear nothing else",
		ofTokens("exact: true, model: m}\nvote: {candidates: [a, b, c], tokens: [1, 2]"): "a.yaml:5: 2 tokens for 3 " +
			"candidates",
		ofTokens("exact: true, model: m}\nvote: {tokens: [1, 1]"): `a.yaml:5: candidates "yes" and "no" begin with ` +
			"the same token, 1",
		"name: x\ncell: {exact: true}":    "a.yaml:2: exact: it is for the cell transformer",
		"name: x\ncell: {cache_bytes: 9}": "a.yaml:2: cache_bytes: it is for the cell transformer",
		"name: x\nvote: {tokens: [9]}":    "a.yaml:2: tokens: they are for the cell transformer",
		byAgent("vote: {candidates: [a, b]}\ncell: {params: {learn: 1}}\npage_size: 64KiB"): `a.yaml:5: invalid cell ` +
			`parameter: gru has no parameter "learn"`,
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

// TestContinues: agents continue only from agents with the same state of a group.
func TestContinues(t *testing.T) {
	parse := func(text string) *Spec {
		t.Helper()
		s, err := Parse("a.yaml", []byte("name: x\ncell: {kind: gru, weights: "+text))
		if err != nil {
			t.Fatalf("Parse: %v, want no error", err)
		}
		return s
	}
	plain, own, late, twice := parse("shared}"), parse("group}"), parse("shared}\nobservations: {late: drop}"),
		parse("shared}\nobservations: {duplicate: drop}")
	for _, c := range []struct {
		a, b *Spec
		want string
	}{
		{plain, own, "its weights of groups, of their own or not, is true, and false in the swarm"},
		{late, plain, "its policy of late observations, which has them have a latest time or not, is false, and " +
			"true in the swarm"},
		{late, twice, ""},
		{plain, plain, ""},
		{own, own, ""},
	} {
		if err := c.a.Continues(c.b); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestContinuesModel: agents continue from weights of one model with the weights of another, and
// not with random ones.
func TestContinuesModel(t *testing.T) {
	parse := func(cell string) *Spec {
		t.Helper()
		s, err := Parse("a.yaml", []byte(byAgent("vote: {candidates: [a, b]}\ncell: "+cell)))
		if err != nil {
			t.Fatalf("Parse: %v, want no error", err)
		}
		return s
	}
	random, one, two := parse("{kind: gru}"), parse("{model: one}"), parse("{model: two}")
	if err := one.Continues(two); err != nil {
		t.Errorf("from another model: %v, want no error", err)
	}
	const want = "its weights, of a model or not, is true, and false in the swarm"
	if err := random.Continues(one); err == nil || err.Error() != want {
		t.Errorf("from a model: %v, want %q", err, want)
	}
}

// TestKey: a key is a column or several, with a bound of the entities, and what is wrong with one
// is said with its line.
func TestKey(t *testing.T) {
	for text, want := range map[string]int{
		"name: x\nkey: id\n": 10_000, "name: x\nkey: [site, id]\nmax_entities: 7\n": 7, "name: x\n": 0,
		"name: x\nkey: id\ngroups: 3\n": 10_000,
	} {
		s, err := Parse("a.yaml", []byte(text))
		if err != nil || s.MaxEntities != want {
			t.Errorf("%q: %+v, %v", text, s, err)
			continue
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "key") != (want > 0) {
			t.Errorf("%q as JSON: %s", text, data)
		}
		if back, err := FromJSON(data); err != nil || cmp.Diff(s, back) != "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"name: x\nmax_entities: 7\n":           "a.yaml:2: max_entities 7: it is for a key",
		"name: x\nevict_after: 1h\n":           "a.yaml:2: evict_after 1h0m0s: it is for a key",
		"name: x\nkey: id\nevict_after: 1ms\n": "a.yaml:3: evict_after 1ms: use 1s to 876000h0m0s",
		"name: x\nkey: id\nevict_after: 1h\ncell: {kind: gru, weights: group}\n": "a.yaml:3: evict_after: the " +
			"weights " +
			"of a group depend on its number",
		"name: x\nkey: id\nmax_entities: -1\n":   "a.yaml:3: max_entities -1: use 1 to 134217728",
		"name: x\nkey: value\n":                  `a.yaml:2: key column "value" is empty or named twice`,
		"name: x\nkey: [a, timestamp]\n":         `a.yaml:2: key column "timestamp" is empty or named twice`,
		"name: x\nkey: [a, a]\n":                 `a.yaml:2: key column "a" is empty or named twice`,
		"name: x\nkey: [a,b,c,d,e,f,g,h,i]\n":    "a.yaml:2: a key of 9 columns: use at most 8",
		byAgent("cell: {kind: leaky}\nkey: a\n"): "key: observations of agents have none",
	} {
		if _, err := Parse("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// throughJSON returns the specification that the JSON of another one gives.
func throughJSON(t *testing.T, s *Spec) *Spec {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	back, err := FromJSON(data)
	if err != nil {
		t.Fatalf("FromJSON: %v, want no error", err)
	}
	return back
}

// ofTokens is a swarm of conversations whose cell has other keys.
func ofTokens(keys string) string {
	return "name: x\naddressed: agent\nagents: 9000\ncell: {kind: transformer, " + keys +
		"}\npage_size: 64KiB"
}

// TestConversations: a specification of conversations has its defaults, the pages of all caches, and
// continues from one of the same model alone.
func TestConversations(t *testing.T) {
	parse := func(keys string) *Spec {
		s, err := Parse("a.yaml", []byte(ofTokens("exact: true, model: m, "+keys)))
		testkit.NoError(t, "Parse", err)
		return s
	}
	s := parse("cache_bytes: 1024, params: {context: 1000}")
	if s.AgentsPerGroup != 1 || s.Shards != 1 || !slices.Equal(s.Vote.Candidates, []string{"yes", "no"}) ||
		s.Vote.Rule != "plurality" || !s.Conversations() {
		t.Errorf("defaults: %+v", s)
	}
	if s.CachePositions() != 64 || s.CachePages() != 16 {
		t.Errorf("%d positions a page, %d pages, want 64 and 16", s.CachePositions(), s.CachePages())
	}
	if got, want := s.PageBytes(150), int64(150*16+10)*(64<<10); got != want { // 15 records a page
		t.Errorf("pages of 150 conversations: %d bytes, want %d", got, want)
	}
	if n := parse("params: {context: 1000}").CachePages(); n != 0 {
		t.Errorf("%d pages without a model, want 0", n)
	}
	a, b := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	of := func(sha string, keys string) *Spec { return parse("model_sha256: " + sha + keys) }
	testkit.NoError(t, "Continues", of(a, "").Continues(of(a, ", cache_bytes: 1024")))
	testkit.NoError(t, "Continues", parse("cache_bytes: 1024").Continues(of(a, ""))) // a file of a user
	for _, other := range []*Spec{of(b, ""), of(a, ", params: {context: 100}")} {
		if err := of(a, "").Continues(other); err == nil {
			t.Errorf("%+v continues from %+v", of(a, ""), other)
		}
	}
	if s.TakesModel() != nil || s.Adopts() == nil {
		t.Errorf("a model is refused: %v, and an adoption is not: %v", s.TakesModel(), s.Adopts())
	}
}
