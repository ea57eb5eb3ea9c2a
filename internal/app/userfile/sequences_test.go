package userfile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const students = `name: a
addressed: agent
agents: 256
features: [answer]
cell: {kind: gru, embed: {rows: 4, width: 8}, items: 2}
vote: {candidates: [no, yes]}
train: {target: right, sequence: student, item: skill, ahead: 1}
`

// readSequences reads a text as a file.
func readSequences(t *testing.T, spec, name, text, hold string) (*Sequences, error) {
	t.Helper()
	h, err := ParseHoldOut(hold)
	if err != nil {
		return nil, err
	}
	return ReadSequences(t.Context(), []string{write(t, name, text)}, strings.NewReader(""), parse(t, spec), h)
}

// TestReadSequences: rows of a student may be anywhere; with ahead 1 an input meets the target
// behind it; what is held out is last.
func TestReadSequences(t *testing.T) {
	const text = "student,skill,right,answer,fold\nann,0,1,1,0\nbob,1,0,2,1\nann,1,,2,0\neve,1,1,3,0\nbob,0,1,1,1\n" +
		"ann,1,0,2,0\nkim,0,0,0,2\nkim,1,1,3,2\n"
	got, err := readSequences(t, students, "a.csv", text, "fold=1")
	if err != nil {
		t.Fatalf("ReadSequences: %v, want no error", err)
	}
	want := Sequences{
		Keys: []string{"ann", "kim", "bob"}, Lengths: []uint32{2, 1, 1}, HeldOut: 1, Inputs: []float32{1, 2, 0, 2},
		Asked: []int32{1, 1, 1, 0}, Targets: []int32{-1, 0, 1, 1}, Single: 1,
	}
	if fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("sequences\n%+v, want\n%+v", *got, want)
	}
	json := `{"student":"ann","skill":0,"right":1,"answer":1,"fold":0}
{"student":"ann","skill":1,"right":null,"answer":2,"fold":0}
{"student":"ann","skill":1,"right":0,"answer":2,"fold":0}
{"student":"kim","skill":0,"right":0,"answer":0,"fold":2}
{"student":"kim","skill":1,"right":1,"answer":3,"fold":2}
`
	if got, err = readSequences(t, students, "a.ndjson", json, ""); err != nil ||
		!slices.Equal(got.Targets, []int32{-1, 0, 1}) || got.HeldOut != 0 {
		t.Errorf("NDJSON: %+v, %v", got, err)
	}
}

// TestReadSequencesRandom compares the reading with one that goes over the table once for each
// sequence.
func TestReadSequencesRandom(t *testing.T) {
	const spec = "name: a\naddressed: agent\nagents: 256\nfeatures: [x, y]\nvote: {candidates: [a, b, c]}\n" +
		"train: {target: y, sequence: s, ahead: %d}\n"
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		type event struct {
			s, x, y int
		}
		var table []event
		text := "x,s,y\n"
		for range 2 + r.IntN(60) {
			e := event{r.IntN(5), r.IntN(9), r.IntN(3)}
			table = append(table, e)
			text += fmt.Sprintf("%d,%d,%d\n", e.x, e.s, e.y)
		}
		ahead := r.IntN(2)
		want := Sequences{}
		for _, first := range table {
			key := fmt.Sprint(first.s)
			if slices.Contains(want.Keys, key) {
				continue
			}
			var own []event
			for _, e := range table {
				if e.s == first.s {
					own = append(own, e)
				}
			}
			if len(own) <= ahead {
				continue
			}
			want.Keys, want.Lengths = append(want.Keys, key), append(want.Lengths, uint32(len(own)-ahead))
			for i := range len(own) - ahead {
				want.Inputs = append(want.Inputs, float32(own[i].x), float32(own[i].y))
				want.Targets = append(want.Targets, int32(own[i+ahead].y))
			}
		}
		got, err := readSequences(t, fmt.Sprintf(spec, ahead), "a.csv", text, "")
		if len(want.Keys) < 2 {
			if err == nil {
				t.Fatalf("%d sequences are accepted", len(want.Keys))
			}
			continue
		}
		if err != nil {
			t.Fatalf("ReadSequences: %v, want no error\n%s", err, text)
		}
		if got.Single = 0; fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Fatalf("sequences\n%+v, want\n%+v\n%s", *got, want, text)
		}
	}
}

// TestReadSequencesMistakes: an error names the place and the cure.
func TestReadSequencesMistakes(t *testing.T) {
	const head = "student,skill,right,answer,fold\n"
	for text, want := range map[string]string{
		"student,skill,answer,fold\n":                      "train.target: COLUMN",
		"skill,right,answer,fold\n":                        "train.sequence: COLUMN",
		"student,skill,right,answer\n":                     "--hold-out: COLUMN",
		head + "ann,0,1,4,0\n":                             `row 1: column "answer": 4 is not a whole number`,
		head + "ann,0,1,0.5,0\n":                           "0.5 is not a whole number",
		head + "ann,2,1,0,0\n":                             `column "skill": 2 is not a whole number from 0 to 1`,
		head + "ann,1,2,0,0\n":                             "2 is not a whole number from 0 to 1: correct it",
		head + "ann,1,yes,0,0\n":                           `row 1 (line 2): column "right": "yes" is not a number`,
		head + "ann,1,1,,0\n":                              `column "answer" is empty`,
		head + ",1,1,1,0\n":                                `key column "student" is empty`,
		head + "ann,1,1,1,0\nann,1,1,1,1\n":                "sequence ann has rows with fold 0 and others",
		head + "ann,1,1,1,0\n":                             "0 sequences to train with, 1 of one row left out",
		head + "ann,1,1,1,1\nann,1,1,1,1\n":                "1 sequences to train with, 0 of one row left out",
		head + strings.Repeat("a,0,1,1,1\nb,0,1,1,1\n", 2): "no sequence with moments has it: check the value",
	} {
		if _, err := readSequences(t, students, "a.csv", text, "fold=0"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for hold, want := range map[string]string{"fold": "write COLUMN=VALUE", "right=1": "name another one"} {
		if _, err := readSequences(t, students, "a.csv", head, hold); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("--hold-out %s: %v, want %q", hold, err, want)
		}
	}
}
