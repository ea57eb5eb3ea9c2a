package swarm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// neurons is a spec of a swarm of a cell of neurons, with more lines from line 5 on.
func neurons(cell, lines string) string { return byAgent("cell: {kind: "+cell+"}\n") + lines }

// delayFiles are lists of edges.
var delayFiles = fstest.MapFS{
	"delays.csv": {Data: []byte("from,to,weight,delay\n0,1,0.5,3\n1,2,0.5,9\n")},
	"ones.csv":   {Data: []byte("0,1,0.5,1\n1,2,0.5,1\n")},
	"some.csv":   {Data: []byte("0,1,0.5,3\n1,2,0.5\n")},
	"zero.csv":   {Data: []byte("0,1,0.5,0\n")},
	"half.csv":   {Data: []byte("0,1,0.5,1.5\n")},
	"far.csv":    {Data: []byte("0,1,0.5,3\n0,1,0.5,33\n")},
}

// TestDelay: the links have the delays of the spec, its JSON is the same, and neurons remember
// their spikes where one takes more than a tick.
func TestDelay(t *testing.T) {
	for text, want := range map[string]struct {
		what    string
		longest int
	}{
		"lif: neighbours: {random: {degree: 2, seed: 1, delay: [1, 8]}}": {
			"random graph of degree 2, seed 1, delays from 1 to 8", 8,
		},
		"izhikevich: neighbours: {ring: {reach: 2, delay: 32}}": {
			"ring of reach 2, rewired 0, seed 0, delays from 32 to 32", 32,
		},
		"lif: neighbours: {random: {degree: 2, delay: 1}}":               {"random graph of degree 2, seed 0", 1},
		"lif: neighbours: {ring: {reach: 2, delay: [1, 1]}}":             {"ring of reach 2, rewired 0, seed 0", 1},
		"lif: neighbours: {graph: delays.csv, directed: true}":           {"graph delays.csv of ", 9},
		"izhikevich: neighbours: {graph: ones.csv}":                      {"graph ones.csv of ", 1},
		"sir: neighbours: {graph: ones.csv}":                             {"graph ones.csv of ", 1},
		"lif: neighbours: {random: {degree: 511, delay: [2, 2]}}":        {"delays from 2 to 2", 2},
		"izhikevich: neighbours: {random: {degree: 1, delay: [31, 32]}}": {"delays from 31 to 32", 32},
	} {
		cell, lines, _ := strings.Cut(text, ": ")
		s, err := ParseIn(delayFiles, "a.yaml", []byte(neurons(cell, lines)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON(data)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s: its JSON is %+v, %v", text, again, err)
		}
		c, err := s.Address()
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Links()
		if err != nil {
			t.Fatal(err)
		}
		longest := l.Longest()
		if !strings.Contains(s.Neighbours.String(), want.what) || s.Neighbours.longest() != want.longest ||
			c.Remembers() != (want.longest > 1) || longest != want.longest {
			t.Errorf("%s: %s, longest %d and %d, remembers %v", text, s.Neighbours, s.Neighbours.longest(), longest,
				c.Remembers())
		}
	}
}

// TestDelayErrors: what is wrong with delays is said with its place and the cure.
func TestDelayErrors(t *testing.T) {
	const write = " line 5: neighbours: delay: write whole numbers of ticks from 1 to 32, as in [1, 8], the smaller " +
		"one first, or one number for all links"
	for text, want := range map[string]string{
		"lif: neighbours: {random: {degree: 2, delay: 0}}":         write,
		"lif: neighbours: {random: {degree: 2, delay: [0, 4]}}":    write,
		"lif: neighbours: {random: {degree: 2, delay: 33}}":        write,
		"lif: neighbours: {random: {degree: 2, delay: [1, 33]}}":   write,
		"lif: neighbours: {random: {degree: 2, delay: [4, 2]}}":    write,
		"lif: neighbours: {random: {degree: 2, delay: 1.5}}":       write,
		"lif: neighbours: {random: {degree: 2, delay: [1, 2.5]}}":  write,
		"lif: neighbours: {random: {degree: 2, delay: [3]}}":       write,
		"lif: neighbours: {random: {degree: 2, delay: [1, 2, 3]}}": write,
		"lif: neighbours: {ring: {reach: 2, delay: long}}":         write,
		"lif: neighbours: {ring: {reach: 2, delay: {a: 1}}}":       write,
		"sir: neighbours: {random: {degree: 2, delay: [1, 8]}}": "5: neighbours: delay: it is for spikes, of the " +
			"cells lif and izhikevich: leave it out",
		"sir: neighbours:\n  ring:\n    reach: 2\n    delay: 1": "8: neighbours: delay: it is for spikes",
		"sir: neighbours: {graph: delays.csv}": "5: neighbours: graph delays.csv: its edges have delays, which are " +
			"for spikes, of the cells lif and izhikevich: leave the fourth column out",
		"lif: neighbours: {graph: some.csv}": "5: neighbours: graph some.csv: invalid list of edges: line 2: 3 " +
			"values: write FROM,TO on all lines, or FROM,TO,WEIGHT on all, or FROM,TO,WEIGHT,DELAY on all",
		"lif: neighbours: {graph: zero.csv}": "5: neighbours: graph zero.csv: invalid list of edges: line 1: delay " +
			`"0": use a whole number of ticks from 1 to 32`,
		"lif: neighbours: {graph: half.csv}": "5: neighbours: graph half.csv: invalid list of edges: line 1: delay " +
			`"1.5": use a whole number`,
		"lif: neighbours: {graph: far.csv}": "5: neighbours: graph far.csv: invalid list of edges: line 2: delay " +
			`"33": use a whole number`,
		"life: neighbours: {width: 4, height: 128, delay: 2}": `5: unknown key "neighbours.delay"`,
	} {
		cell, lines, _ := strings.Cut(text, ": ")
		_, err := ParseIn(delayFiles, "a.yaml", []byte(neurons(cell, lines)))
		if err == nil || !strings.HasPrefix(err.Error(), "a.yaml:"+want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
	s, err := ParseIn(delayFiles, "a.yaml", []byte(neurons("lif", "neighbours: {graph: delays.csv}")))
	if err != nil {
		t.Fatal(err)
	}
	for change, of := range map[string]func(n *Neighbours){
		"its longest delay is 9, in the specification 8": func(n *Neighbours) { n.Longest = 8 },
		"its longest delay is 9, in the specification 1": func(n *Neighbours) { n.Longest = 0 },
		"a longest delay of 33 ticks":                    func(n *Neighbours) { n.Longest = 33 },
		"neighbours: delay [3, 33]: use whole numbers of ticks from 1 to 32": func(n *Neighbours) {
			*n = Neighbours{Random: Random{Degree: 2, Delay: Delay{3, 33}}}
		},
	} {
		bad := *s
		of(&bad.Neighbours)
		data, err := json.Marshal(&bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromJSON(data); err == nil || !strings.Contains(err.Error(), change) {
			t.Errorf("in JSON: %v, want %s", err, change)
		}
	}
}

// TestDelayDetached: a spec whose edges are an object has the longest delay, and takes its own
// edges back and no others.
func TestDelayDetached(t *testing.T) {
	s, err := ParseIn(delayFiles, "a.yaml", []byte(neurons("lif", "neighbours: {graph: delays.csv}")))
	if err != nil {
		t.Fatal(err)
	}
	whole := *s
	_, text := s.Detach()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := again.Address(); err != nil || !c.Remembers() {
		t.Errorf("without its edges: neurons do not remember, %v", err)
	}
	if least := again.CountedLinks(); least.Longest() != 9 {
		t.Errorf("without its edges: %d ticks of delay, want 9", least.Longest())
	}
	if err := again.Attach(text); err != nil {
		t.Error(err)
	}
	got, err := again.Links()
	if err != nil {
		t.Error(err)
	}
	if want, err := whole.Links(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with its edges again: %+v, %v, want %+v", got, err, want)
	}
}
