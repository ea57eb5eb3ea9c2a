package consensus

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden tables anew; commit a change only if you can explain it")

// TestGolden decides the tallies of testdata/*.txt. A block of such a file is a line that describes
// the ballots, a rule a line, a separator, and a decision for each rule:
//
//	candidates=3 votes=4,2,2 abstain=1 invalid=0 priorities=7,9,9
//	majority of all
//	----
//	majority of all: none; 8 of 9 cast, quorum not met; leader 1 (9)
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden tables: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				out = append(out, golden(t, block))
			}
			have := strings.Join(out, "\n\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if have != string(text) {
				t.Errorf("the decisions are now:\n%s", have)
			}
		})
	}
}

// golden is the block with its decisions as they are now.
func golden(t *testing.T, block string) string {
	t.Helper()
	input, _, _ := strings.Cut(block, "\n----")
	var out []string
	var tally Tally
	made := false
	for line := range strings.SplitSeq(input, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case !made:
			tally, made = readTally(t, line), true
		default:
			rule, err := ParseRule(line)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseRule(rule.String()); err != nil || again != rule {
				t.Errorf("%q is read back as %v: %v", rule, again, err)
			}
			d, err := Decide(rule, tally)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, line+": "+describe(d))
		}
	}
	if !made {
		return block // a comment of the file
	}
	return input + "\n----\n" + strings.Join(out, "\n")
}

func describe(d Decision) string {
	winner, met := "none", "not met"
	if d.Winner != None {
		winner = strconv.Itoa(d.Winner)
	}
	if d.QuorumMet {
		met = "met"
	}
	leader := "no leader"
	if d.Leader.Elected {
		leader = fmt.Sprintf("leader %d (%d)", d.Leader.Agent, d.Leader.Priority)
	}
	return fmt.Sprintf("%s; %d of %d cast, quorum %s; %s", winner, d.Total-d.Abstentions-d.Invalid, d.Total, met,
		leader)
}

// readTally makes the ballots that a line describes and casts them.
func readTally(t *testing.T, line string) Tally {
	t.Helper()
	var ballots []byte
	var weights, priorities []uint32
	var tally Tally
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		var numbers []uint32
		for word := range strings.SplitSeq(value, ",") {
			n, err := strconv.ParseUint(word, 10, 32)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			numbers = append(numbers, uint32(n))
		}
		repeat := func(b byte, n uint32) {
			for range n {
				ballots = append(ballots, b)
			}
		}
		switch name {
		case "candidates":
			var err error
			if tally, err = NewTally(int(numbers[0])); err != nil {
				t.Fatal(err)
			}
		case "votes":
			for c, n := range numbers {
				repeat(byte(c), n)
			}
		case "ballots":
			for _, n := range numbers {
				ballots = append(ballots, byte(n))
			}
		case "weights":
			weights = numbers
		case "abstain":
			repeat(Abstain, numbers[0])
		case "invalid":
			repeat(200, numbers[0])
		case "priorities":
			priorities = numbers
		default:
			t.Fatalf("%s: %q is not understood", line, name)
		}
	}
	err := tally.Cast(ballots)
	if weights != nil {
		clear(tally.Counts)
		tally.Total, tally.Abstentions, tally.Invalid = 0, 0, 0
		err = tally.CastWeighted(ballots, weights)
	}
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	tally.Nominate(0, priorities)
	return tally
}
