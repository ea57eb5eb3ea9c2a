package state

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// besideTexts are swarms of agents that have neighbours, of all cells.
var besideTexts = map[string]string{
	"life":               "cell: {kind: life}\nneighbours: {width: 1000, height: 700}\n",
	"sir":                "agents: 70001\ncell: {kind: sir}\nneighbours: {random: {degree: 3}}\n",
	"sir, file":          "cell: {kind: sir}\nneighbours: {graph: weights.csv}\n",
	"lif":                "agents: 5000\ncell: {kind: lif}\nneighbours: {ring: {reach: 7}}\n",
	"lif, file":          "cell: {kind: lif}\nneighbours: {graph: plain.csv, directed: true}\n",
	"izhikevich":         "agents: 5000\ncell: {kind: izhikevich}\nneighbours: {random: {degree: 9}}\n",
	"lif, delays":        "agents: 5001\ncell: {kind: lif}\nneighbours: {random: {degree: 3, delay: [2, 7]}}\n",
	"izhikevich, delays": "cell: {kind: izhikevich}\nneighbours: {graph: delays.csv, directed: true}\n",

	"boids":   "agents: 3000\ncell: {kind: boids}\nneighbours: {space: {size: [90, 50], radius: 1}}\n",
	"colony":  "agents: 3000\ncell: {kind: colony}\nneighbours: {space: {size: [20, 9], radius: 1}}\n",
	"circles": "agents: 3000\ncell: {kind: circles}\nneighbours: {space: {size: [20, 9, 9], radius: 2}}\n",

	"life, 3":   "cell: {kind: life}\nneighbours: {width: 1000, height: 700}\ndevices: 3\n",
	"life, few": "cell: {kind: life}\nneighbours: {width: 1000, height: 3}\ndevices: 8\n",
	"sir, 2":    "agents: 70001\ncell: {kind: sir}\nneighbours: {random: {degree: 3}}\ndevices: 2\n",
}

// TestBeside: what a specification says that ticks need beside the pages is what they allocate, to
// the byte. A budget or a device with a byte less refuses the swarm, the budget with both numbers.
func TestBeside(t *testing.T) {
	files := fstest.MapFS{
		"plain.csv": {Data: []byte("0,1\n5,1\n1,0\n")}, "weights.csv": {Data: []byte("0 1 0.5\n1 2 1\n")},
		"delays.csv": {Data: []byte("0 1 0.5 3\n1 2 1 9\n7 2 1 9\n")},
	}
	for name, text := range besideTexts {
		spec, err := swarm.ParseIn(files, "test.yaml", []byte("name: x\naddressed: agent\npage_size: 64KiB\n"+text))
		if err != nil {
			t.Errorf("%s: %v, want no error", name, err)
			continue
		}
		inPages, beside := spec.PageBytes(spec.Groups()), BesideBytes(spec)
		for _, c := range []struct{ budget, device int64 }{
			{inPages + beside, inPages + beside}, {inPages + beside - 1, 1 << 30}, {1 << 30, inPages + beside - 1},
		} {
			d, err := cuda.Open(t.Context(), "host", cuda.Options{
				Logger: slog.New(slog.DiscardHandler), CacheDir: os.TempDir() + "/exoswarm-kernels",
				MemoryLimit: c.device,
			})
			if err != nil {
				t.Fatal(err)
			}
			b := pages.NewBudget(c.budget, 0)
			s, err := newWhole(d, b, spec, spec.Groups())
			var refused *jobs.Error
			switch {
			case c.budget == c.device && (err != nil || b.Room() != 0):
				t.Errorf("%s: %d bytes and %d beside: %v, and %d are left", name, inPages, beside, err, b.Room())
			case c.budget == inPages+beside-1 && (!errors.As(err, &refused) || refused.Code != jobs.CodeDevice ||
				!strings.Contains(refused.Message, fmt.Sprintf("their pages take %d bytes there, and what their ticks "+
					"need beside them %d; %d are free, 1 too few", inPages, beside, c.budget))):
				t.Errorf("%s: a budget of a byte less: %v, want a refusal", name, err)
			case c.device == inPages+beside-1 && err == nil:
				t.Errorf("%s: %d bytes and %d beside fit into a byte less", name, inPages, beside)
			}
			if err == nil {
				err = s.Close()
			} else {
				err = nil
			}
			if err := errors.Join(err, d.Close()); err != nil {
				t.Errorf("%s: %v, want no error", name, err)
			}
			if b.Room() != c.budget {
				t.Errorf("%s: %d bytes of %d are back", name, b.Room(), c.budget)
			}
		}
	}
}

// TestPeerBytes: a further device of a network of neurons has the links to its neurons, also where
// the edges are elsewhere, and none if the specification does not ask for one.
func TestPeerBytes(t *testing.T) {
	for text, least := range map[string]int64{
		"cell: {kind: lif}\nagents: 9000\nneighbours: {random: {degree: 40}}\ndevices: 2":              4500 * 40 * 4,
		"cell: {kind: izhikevich}\nagents: 9000\nneighbours: {ring: {reach: 9, delay: 3}}\ndevices: 2": 4500 * 18 * 5,
		"cell: {kind: lif}\nagents: 9000\nneighbours: {random: {degree: 40}}":                          0,
	} {
		s, err := swarm.Parse("a.yaml", []byte("name: x\naddressed: agent\n"+text+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := PeerBytes(s)(2); got < least || got > least+3<<20 || least == 0 && got > 0 {
			t.Errorf("%s: %d bytes, want %d and some", text, got, least)
		}
	}
	s, err := swarm.Parse("a.yaml", []byte("name: x\naddressed: agent\ncell: {kind: lif}\nagents: 9000\n"+
		"neighbours: {random: {degree: 40}}\ndevices: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	s.Neighbours = swarm.Neighbours{Graph: "elsewhere", Digest: "ab", Longest: 4}
	if got := PeerBytes(s)(2); got < 9000*8 {
		t.Errorf("%d bytes of a list that is elsewhere", got)
	}
	// 4 sums of each neuron are beside the pages.
	if got := BesideBytes(s); got <= 4*4*9000 {
		t.Errorf("%d bytes beside the pages of a list that is elsewhere", got)
	}
}
