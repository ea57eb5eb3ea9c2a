package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbooks: the commands in the runbooks of alerts exist, with their flags.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("`exoswarm ([^`]+)`")
	checked := 0
	for _, m := range commands.FindAllStringSubmatch(string(text), -1) {
		args := strings.Fields(m[1])
		checked++
		cmd, rest, err := root().Find(args)
		if err != nil || !cmd.Runnable() {
			t.Errorf("exoswarm %s: there is no such command: %v", strings.Join(args, " "), err)
			continue
		}
		for _, a := range rest {
			name, long := strings.CutPrefix(a, "--")
			short, is := strings.CutPrefix(a, "-")
			if long && cmd.Flags().Lookup(name) == nil || !long && is && cmd.Flags().ShorthandLookup(short) == nil {
				t.Errorf("exoswarm %s: there is no flag %s", strings.Join(args, " "), a)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d commands in the runbooks", checked)
	}
}
