package swarm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// ruled is a swarm whose rules are added.
const ruled = "name: x\naddressed: agent\nagents: 512\nvote: {candidates: [red, blue]}\n"

// TestRules: rules are read as they are written, and invalid rules are refused with the line and
// the cure.
func TestRules(t *testing.T) {
	s, err := Parse("x.yaml", []byte(ruled+"on_decision:\n- blue -> tick 3, emit alarm\n- \"changed->reset\"\n"+
		"- none -> emit lost\n- any   ->   tick 1000\n- red -> submit retrain, emit x\n"+
		"jobs: {retrain: {pool: cpu, kind: k, spec: 1}}\n"))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	all, err := s.Rules()
	if got := fmt.Sprint(all); err != nil ||
		got != "[{blue [tick 3 emit alarm]} {changed [reset]} {none [emit lost]} {any [tick 1000]} "+
			"{red [submit retrain emit x]}]" {
		t.Errorf("rules %s, error %v", got, err)
	}
	if !all.Emits() || all[3:4].Emits() || !all.Submits() || all[:4].Submits() {
		t.Error("Emits and Submits: want rules 1, 3 and 5 to emit, and rule 5 to submit")
	}
	for text, want := range map[string]string{
		"blue":                     "has no arrow: write WHEN -> ACTION",
		"bleu -> reset":            `did you mean "blue"`,
		"blue -> rest":             `did you mean "reset"`,
		"blue ->":                  "an action is empty",
		"blue -> reset,":           "an action is empty",
		"blue -> tick":             "write tick N",
		"blue -> tick 0":           "use 1 to 1000",
		"blue -> tick 1001":        "use 1 to 1000",
		"blue -> reset all":        "write reset alone",
		"blue -> emit":             "write emit NAME",
		"blue -> emit a.b":         "emit",
		"blue -> emit a, emit b c": "write emit NAME",
		"blue -> submit":           "write submit JOB",
		"blue -> submit a.b":       "submit",
		"blue -> submt x":          `did you mean "submit"`,
		"blue -> submit x":         "there is no job x: describe it, as in jobs: {x: {pool: cpu",
		"any -> " + strings.Repeat("reset,", 8) + "reset": "9 actions: use at most 8",
	} {
		_, err := Parse("x.yaml", []byte(ruled+"on_decision:\n- "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "x.yaml:5: on_decision") {
			t.Errorf("%q: error %v, want %q and the line", text, err, want)
		}
	}
	onGrid := "name: x\naddressed: agent\ncell: {kind: life}\nneighbours: {width: 4, height: 4}\n"
	for text, want := range map[string]string{
		strings.Replace(ruled, "red", "any", 1) + "on_decision: [any -> reset]": "give the candidate another name",

		ruled + "shards: 2\non_decision: [any -> reset]":                      "leave shards out",
		"name: x\ngroups: 4\non_decision: [any -> reset]":                     "write addressed: agent",
		onGrid + "on_decision: [any -> reset]":                                "gru or leaky",
		ruled + "on_decision: [" + strings.Repeat("any -> reset, ", 17) + "]": "17 rules: use at most 16",
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestReact compares the reactions to random rounds with a table of what each word means.
func TestReact(t *testing.T) {
	names := []string{"red", "blue", "green"}
	words := append([]string{"any", "none", "changed"}, names...)
	r := rand.New(rand.NewPCG(25, 7))
	last := "none"
	var before *swarms.Voted
	for range 2000 {
		var all Rules
		for range r.IntN(5) {
			rule := Rule{When: words[r.IntN(len(words))]}
			for range 1 + r.IntN(3) {
				some := []swarms.Reaction{
					{Action: swarms.ReactTick, Count: 1 + r.IntN(9)},
					{Action: swarms.ReactReset},
					{Action: swarms.ReactEmit, Name: "x"},
					{Action: swarms.ReactSubmit, Name: "y"},
				}
				rule.Actions = append(rule.Actions, some[r.IntN(len(some))])
			}
			all = append(all, rule)
		}
		v, now := &swarms.Voted{}, "none"
		if w := r.IntN(4); w < 3 {
			v.Winner, now = &w, names[w]
		}
		var want []swarms.Reaction
		for i, rule := range all {
			if map[string]bool{"any": now != "none", "changed": now != last, now: true}[rule.When] {
				for _, a := range rule.Actions {
					want = append(want, swarms.Reaction{Rule: i + 1, Action: a.Action, Count: a.Count, Name: a.Name})
				}
			}
		}
		if got := all.React(v, before, names); !slices.Equal(got, want) {
			t.Fatalf("%s after %s: %v does %v, want %v", now, last, all, got, want)
		}
		if before, last = v, now; r.IntN(10) == 0 { // a reset of the swarm
			before, last = nil, "none"
		}
	}
}

// FuzzParseRule: any text is refused, or is a rule within the limits that its parts write again.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{
		"any -> reset", "red->tick 5,emit x", "->", "blue -> ,", "none -> emit ..", "a -> tick +3",
		"blue -> submit x, submit",
	} {
		f.Add(s)
	}
	names := []string{"red", "blue"}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text, names)
		if err != nil {
			return
		}
		var do []string
		for _, a := range r.Actions {
			if a.Action == swarms.ReactTick && (a.Count < 1 || a.Count > MaxReactionTicks) || len(a.Name) > 64 {
				t.Fatalf("%q has %+v", text, a)
			}
			do = append(do, a.String())
		}
		again, err := ParseRule(r.When+" -> "+strings.Join(do, ", "), names)
		if err != nil || again.When != r.When || !slices.Equal(again.Actions, r.Actions) {
			t.Fatalf("%q is %+v, written again %+v, %v", text, r, again, err)
		}
	})
}
