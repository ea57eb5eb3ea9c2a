package swarm

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// inBox is a spec of a swarm of boids, with more lines from line 5 on.
func inBox(lines string) string { return byAgent("cell: {kind: boids}\n") + lines }

// TestSpace: what specs of boxes leave out, and that their JSON is the same.
func TestSpace(t *testing.T) {
	for text, want := range map[string]struct {
		features, what string
		group          int
	}{
		inBox("neighbours: {space: {size: [8, 100], radius: 2}}"): {"x,y,vx,vy", "box of [8, 100], radius 2", 512},
		inBox("neighbours: {space: {size: [9, 9, 9.5], radius: 0.5, periodic: true}}\nagents_per_group: 4"): {
			"x,y,z,vx,vy,vz", "box of [9, 9, 9.5], radius 0.5, periodic", 4,
		},
		inBox("neighbours: {space: {size: [8, 100], radius: 2, nearest: 7, periodic: true}}"): {
			"x,y,vx,vy", "box of [8, 100], radius 2, the nearest 7, periodic", 512,
		},
		byAgent("cell: {kind: circles}\nfeatures: [a, b]\nneighbours: {space: {size: [9, 9], radius: 2}}"): {
			"a,b", "box of [9, 9], radius 2", 512,
		},
		byAgent("cell: {kind: circles}\nneighbours: {space: {size: [9, 9, 9], radius: 2}}"): {
			"x,y,z", "box of [9, 9, 9], radius 2", 512,
		},
	} {
		s, err := Parse("a.yaml", []byte(text))
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
		if got := strings.Join(s.Features, ","); got != want.features || s.Neighbours.String() != want.what ||
			s.AgentsPerGroup != want.group || s.Topology().Name != TopologyBox || s.Residency != ResidencyGPU ||
			!slices.Equal(s.Vote.Candidates, []string{"alone", "near"}) {
			t.Errorf("%s: %+v", text, s)
		}
	}
	_, err := FromJSON([]byte(`{"name":"x","addressed":"agent","agents":8,"cell":{"kind":"boids"},` +
		`"neighbours":{"space":{"size":[9,-1,0],"radius":2}}}`))
	if err == nil || !strings.Contains(err.Error(), "side 2 is -1: use a number above 0") {
		t.Errorf("a side below 0 in JSON: %v", err)
	}
	_, err = FromJSON([]byte(`{"name":"x","addressed":"agent","agents":8,"cell":{"kind":"boids"},` +
		`"neighbours":{"space":{"size":[9,9,0],"radius":2,"nearest":33}}}`))
	if err == nil || !strings.Contains(err.Error(), "nearest 33: use a whole number from 1 to 32") {
		t.Errorf("the nearest 33 in JSON: %v", err)
	}
}

// box is inBox with a box, and more lines from line 6 on.
func box(keys string, lines ...string) string {
	return inBox("neighbours: {space: {" + keys + "}}\n" + strings.Join(lines, "\n"))
}

// withCell is a spec with a cell on line 4, in a box.
func withCell(cell string) string {
	return byAgent("cell: {" + cell + "}\nneighbours: {space: {size: [9, 9], radius: 1}}")
}

// TestSpaceErrors: what is wrong with a box is said with its place and the cure.
func TestSpaceErrors(t *testing.T) {
	const space = "neighbours: {space: {size: [9, 9], radius: 1}}"
	for text, want := range map[string]string{
		inBox(""): "4: neighbours: agents of the cell boids are in a box: write neighbours: {space: {size: " +
			"[100, 100], radius: 2, periodic: true}}, or the size that you want",
		box("size: [9, 9], radius: 2.5"): "5: neighbours: radius 2.5: use at most a quarter of each side of " +
			"[9, 9], 2.25",
		box("size: [9e6, 9], radius: 2"): "5: neighbours: radius 2: use at least a millionth of each side of [9e+06, " +
			"9], 9",
		box("size: [9, 9]"):               "5: neighbours: radius 0: use a number above 0",
		box("size: [9, 9], radius: -1"):   "5: neighbours: radius -1: use a number above 0",
		box("size: [9, 9], radius: .nan"): "5: neighbours: radius NaN: use a number above 0",
		box("size: [9, 0, 9], radius: 1"): " line 5: neighbours: size: side 2 is 0: use a number above 0",
		box("size: [9, 9, 0], radius: 1"): " line 5: neighbours: size: side 3 is 0: use a number above 0",
		box("size: [9, .inf], radius: 1"): " line 5: neighbours: size: side 2 is +Inf: use a number above 0",
		box("size: [9], radius: 1"):       " line 5: neighbours: size: write a list of two or three numbers",
		box("size: 9, radius: 1"):         " line 5: neighbours: size: write a list of two or three numbers",
		box("radius: 1"):                  "5: neighbours: size [0, 0]: side 1 is 0: use a number above 0",
		box("size: [9, 9], radii: 1"):     `5: unknown key "neighbours.space.radii": did you mean`,
		inBox("neighbours: {width: 9, height: 9}"): "5: neighbours: agents of the cell boids are in a box: write " +
			"space: {size: [100, 100], radius: 2}, or the size that you want, and nothing else",
		inBox("neighbours: {periodic: true}"): "5: neighbours: periodic: a box has this key in space",
		inBox("neighbours: {space: {size: [9, 9], radius: 1}, ring: {reach: 1}}"): "5: neighbours: agents of " +
			"the cell boids are in a box",
		onGraph(space): "5: neighbours: space: it is for the cells boids, circles and colony",
		box("size: [9, 9], radius: 1, nearest: 0"): " line 5: neighbours: nearest 0: use a whole number from 1 to " +
			"32, or leave it out, so that agents hear all within the radius",
		box("size: [9, 9], radius: 1, nearest: 33"):  " line 5: neighbours: nearest 33: use a whole number from 1",
		box("size: [9, 9], radius: 1, nearest: -1"):  " line 5: neighbours: nearest -1: use a whole number from 1",
		box("size: [9, 9], radius: 1, nearest: 6.5"): " line 5: neighbours: nearest 6.5: use a whole number from 1",
		box("size: [9, 9], radius: 1, nearest: few"): " line 5: neighbours: nearest few: use a whole number from 1",
		box("size: [9, 9], radius: 1, nearest: []"):  " line 5: neighbours: nearest : use a whole number from 1",
		byAgent("cell: {kind: circles}\nneighbours: {space: {size: [9, 9], radius: 1, nearest: 7}}"): "5: " +
			"neighbours: nearest 7: it is for the cell boids: agents of the cell circles hear all within the radius: " +
			"leave it out",
		byAgent("cell: {kind: colony}\nneighbours:\n  space:\n    size: [9, 9]\n    radius: 1\n    nearest: 7"): "" +
			"9: neighbours: nearest 7: it is for the cell boids",
		onGraph("neighbours: {random: {degree: 2}, nearest: 7}"): `5: unknown key "neighbours.nearest"`,
		box("size: [9, 9], radius: 1", "features: [x, y]"): "6: 2 features: an agent of the cell boids in 2 " +
			"dimensions has 4: write x, y, vx, vy, or names of your own, or leave it out",
		box("size: [9, 9], radius: 1", "shards: 2"):                "6: shards 2: a box has one",
		"name: x\naddressed: agent\ncell: {kind: boids}\n" + space: " agents 0: a box has 1 or more, below 2^32",
		"name: x\naddressed: agent\nagents: 4294967296\ncell: {kind: boids}\nagents_per_group: 4096\n" + space: "" +
			"3: agents 4294967296: use a multiple of agents_per_group, 4096, below 2^32",
		withCell("kind: boids, params: {speed_min: 0.5}"): "4: speed_min 0.5: use at most speed_max, 0.1",
		withCell("kind: boids, params: {speed: 1}"):       `4: invalid cell parameter: boids has no parameter`,
		withCell("kind: circles, params: {repulsion: 2}"): "4: invalid cell parameter: circles: repulsion = 2, want",
	} {
		if _, err := Parse("a.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "a.yaml:"+want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}
