package userfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

func parse(t *testing.T, text string) *swarm.Spec {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("parse the specification: %v", err)
	}
	return spec
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return path
}

const byAgent = "name: a\naddressed: agent\nagents: 10\nagents_per_group: 5\nfeatures: [x, y]\n" +
	"cell: {kind: leaky}\nvote: {rule: majority}\n"

// TestReadAgents: CSV in any order of columns and JSON lines give the same observations.
func TestReadAgents(t *testing.T) {
	spec := parse(t, byAgent)
	for name, text := range map[string]string{
		"a.csv":    "\ufeffy,agent,other,x\n2.5,7,z,1\n-1,0,z,1e3\n",
		"a.ndjson": `{"agent":7,"x":1,"y":2.5,"z":null}` + "\n\n" + `{"y":-1,"x":1e3,"agent":0}` + "\n",
	} {
		o, err := ReadAgents(write(t, name, text), spec)
		if err != nil || !slices.Equal(o.Agent, []uint32{7, 0}) || o.Width != 2 ||
			!slices.Equal(o.Features, []float32{1, 2.5, 1000, -1}) {
			t.Errorf("%s: %+v, error %v", name, o, err)
		}
	}
}

// TestReadAgentsErrors: an error is of the input, and names the line and the column.
func TestReadAgentsErrors(t *testing.T) {
	spec := parse(t, byAgent)
	for name, c := range map[string]struct{ file, text, want string }{
		"no column": {"a.csv", "agent,x\n1,2\n", `a.csv:1: there is no column "y"`},

		"an unknown id": {"a.csv", "agent,x,y\n1,1,1\n10,1,1\n", `a.csv:3: column agent: "10" is not an agent, 0 to 9`},

		"not a number":    {"a.csv", "agent,x,y\n1,1,abc\n", `a.csv:2: column y: "abc" is not a number`},
		"infinite":        {"a.csv", "agent,x,y\n1,1,1e99\n", `a.csv:2: column y: "1e99" is not a number`},
		"an empty file":   {"a.csv", "", "its header cannot be read"},
		"not an object":   {"a.jsonl", "[1]\n", "a.jsonl:1: not a JSON object"},
		"a missing value": {"a.jsonl", `{"agent":1,"x":1}` + "\n", `a.jsonl:1: column y: "" is not a number`},
	} {
		_, err := ReadAgents(write(t, c.file, c.text), spec)
		var of *jobs.Error
		if !errors.As(err, &of) || of.Code != jobs.CodeInput || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one of the input with %q", name, err, c.want)
		}
	}
	if _, err := ReadAgents(filepath.Join(t.TempDir(), "none.csv"), spec); err == nil {
		t.Error("a file that does not exist is read")
	}
}

// TestReadItems: the column item is read where the swarm has items, and need not be there. A row
// may be without one. With an embedding the feature is the number of a row.
func TestReadItems(t *testing.T) {
	const text = "name: x\naddressed: agent\nagents: 10\nagents_per_group: 5\nfeatures: [row]\n" +
		"cell: {embed: {rows: 4, width: 2}, items: 3}\nvote: {candidates: [a, b]}\n"
	spec := parse(t, text)
	for name, c := range map[string]struct {
		text string
		want []int32
	}{
		"a.csv":    {"agent,row,item\n7,3,2\n1,0,\n", []int32{2, -1}},
		"b.csv":    {"agent,row\n7,3\n1,0\n", nil},
		"c.ndjson": {`{"agent":7,"row":3,"item":2}` + "\n" + `{"agent":1,"row":0}` + "\n", []int32{2, -1}},
		"d.ndjson": {`{"agent":7,"row":3}` + "\n" + `{"agent":1,"row":0,"item":null}` + "\n", []int32{-1, -1}},
	} {
		o, err := ReadAgents(write(t, name, c.text), spec)
		if err != nil || !slices.Equal(o.Item, c.want) || !slices.Equal(o.Features, []float32{3, 0}) {
			t.Errorf("%s: %+v, error %v, want the items %v", name, o, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"agent,row,item\n7,3,3\n":  `a.csv:2: column item: "3" is not an item, 0 to 2, or empty`,
		"agent,row,item\n7,3,-1\n": `column item: "-1" is not an item`,
		"agent,row,item\n7,4,1\n":  `column row: "4" is not the number of a row of cell.embed, 0 to 3`,
		"agent,row,item\n7,.5,1\n": `column row: ".5" is not the number of a row`,
	} {
		if _, err := ReadAgents(write(t, "a.csv", text), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// TestReadGroups: rows keep their timestamps as text, and have numbers from 1.
func TestReadGroups(t *testing.T) {
	spec := parse(t, "name: g\ngroups: 3\nagents_per_group: 8\ntimestamp: at\nfeatures: [v]\n")
	if got := observationColumns(spec); !slices.Equal(got, []string{"group", "at", "v"}) {
		t.Errorf("columns %v", got)
	}
	for name, text := range map[string]string{
		"g.csv": "group,at,v\n2,2026-01-01 00:00:00,1.5\n0,2026-01-01 00:00:01,2\n",
		"g.jsonl": `{"group":2,"at":"2026-01-01 00:00:00","v":1.5}` + "\n" +
			`{"group":0,"at":"2026-01-01 00:00:01","v":2}` + "\n",
	} {
		o, err := ReadGroups(write(t, name, text), spec)
		if err != nil || !slices.Equal(o.Group, []uint32{2, 0}) || !slices.Equal(o.Row, []uint64{1, 2}) ||
			!slices.Equal(o.Timestamp, []string{"2026-01-01 00:00:00", "2026-01-01 00:00:01"}) ||
			!slices.Equal(o.Value, []float64{1.5, 2}) || o.Time[1]-o.Time[0] != 1e9 {
			t.Errorf("%s: %+v, error %v", name, o, err)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"an unknown group": {"group,at,v\n3,1,1\n", `column group: "3" is not a group, 0 to 2`},
		"not a time":       {"group,at,v\n1,soon,1\n", `column at: "soon" is not a time`},
		"out of order":     {"group,at,v\n1,2,1\n0,1,1\n1,1,1\n", "g.csv:4: column at: \"1\" is not at or behind"},
	} {
		if _, err := ReadGroups(write(t, "g.csv", c.text), spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	late := parse(
		t,
		"name: g\ngroups: 3\nagents_per_group: 8\ntimestamp: at\nfeatures: [v]\nobservations: {late: drop}\n",
	)
	if _, err := ReadGroups(write(t, "g.csv", "group,at,v\n1,2,1\n1,1,1\n"), late); err != nil {
		t.Errorf("out of order with late: drop: %v", err)
	}
}
