package doclint

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var root = flag.String("root", "../..", "check the documents below this folder")

// exempt are files that do not pass yet; with -v the test prints their faults. A file that passes
// must leave the list, and a new file must not enter it.
var exempt []string

// TestDocuments checks every Markdown file of the repository. With -v it prints the length of
// sentences by file.
func TestDocuments(t *testing.T) {
	err := filepath.WalkDir(*root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != *root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		path, err := filepath.Rel(*root, name)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		s := measure(parse(string(text)))
		t.Logf("%-45s %4d sentences, %5.1f words, %5.1f %% above %d", path, s.Sentences, s.mean(), s.long(),
			longSentence)
		faults := check(path, string(text))
		if slices.Contains(exempt, path) {
			if len(faults) == 0 {
				t.Errorf("%s passes: remove it from the list of exempt files", path)
			}
			t.Log(strings.Join(faults, "\n"))
			return nil
		}
		for _, f := range faults {
			t.Error(f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSentences promises where a sentence ends.
func TestSentences(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"One. Two words? Three of them!", []string{"One.", "Two words?", "Three of them!"}},
		{"A figure of 3.5 ms, e.g. This one.", []string{"A figure of 3.5 ms, e.g. This one."}},
		{"It stops at file.go. then goes on", []string{"It stops at file.go. then goes on"}},
		{"A colon: no end; nor here", []string{"A colon: no end; nor here"}},
		{`He said "stop." (He did.) code follows`, []string{`He said "stop."`, "(He did.)", "code follows"}},
		{"- * ...", nil},
	} {
		if got := sentences(c.text); !slices.Equal(got, c.want) {
			t.Errorf("sentences(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

// TestMeasure promises that headings, tables and code count for nothing, and that a code span is
// one word.
func TestMeasure(t *testing.T) {
	text := "# A heading of five words\n\nTwo words.\nThen `three of them` more.\n\n" +
		"    code is not counted. Not here.\n\n```\nNor here. At all.\n```\n\n| a cell | is not |\n|---|---|\n\n- " +
		"one item\n  of it\n- [two words](http://a.b/c)\n"
	if got, want := measure(parse(text)), (statistics{Sentences: 4, Words: 11}); got != want {
		t.Errorf("measure = %+v, want %+v", got, want)
	}
	long := strings.Repeat("word ", longSentence) + "more."
	if s := measure(parse(long)); s.Long != 1 {
		t.Errorf("a sentence of %d words counts as %d long ones, want 1", count(long), s.Long)
	}
}

// TestRules promises that each rule finds its fault and lets the repaired text pass.
func TestRules(t *testing.T) {
	const rfc = "# RFC 0001: a\n\nStatus: implemented\nDate: 2026-01-02\n\n## Problem\nA.\n\n## Options\nB.\n\n## " +
		"Decision\nC.\n\n## Measurements\nD.\n"
	wide := strings.Repeat("a", maxColumns+1)
	word := strings.TrimSpace(strings.Repeat("word ", longSentence+1))
	for _, c := range []struct {
		name, path, text, fault string // no fault: it passes
	}{
		{"wide", "a.md", wide, "wrap at"},
		{"wide link", "a.md", "[a](" + wide + ")", ""},
		{"wide code", "a.md", "```\n" + wide + "\n```", ""},
		{"wide table", "a.md", "|" + wide + "|", ""},
		{"umlauts are one column", "a.md", strings.Repeat("ä", maxColumns), ""},
		{"wide cell", "a.md", "| a | " + strings.Repeat("a", maxCell+1) + " |", "a cell of 301"},
		{"a bar in code divides no cell", "a.md", "|`" + strings.Repeat("a|", maxCell/2+1) + "`|", "a cell of 304"},
		{"long sentence", "a.md", strings.ReplaceAll(word, " ", "\n"), "above 35 words"},
		{"few long sentences", "a.md", strings.Repeat("Short one.\n", 20) + strings.ReplaceAll(word, " ", "\n"), ""},
		{
			"long on average", "a.md", strings.ReplaceAll(strings.TrimSpace(strings.Repeat("Word ", 20)), " ", "\n"),
			"words a sentence",
		},
		{"banned", "a.md", "It begins\nanew.", `"anew"`},
		{"banned in a table", "a.md", "| it says what is |", "says what"},
		{"banned in code", "a.md", "It prints `anew`.", ""},
		{"there is no", "a.md", "There is no limit.", ""},
		{"rfc", "docs/rfcs/0001-a.md", rfc, ""},
		{"rfc without status", "docs/rfcs/0001-a.md", strings.Replace(rfc, "Status: implemented\n", "", 1), "Status"},
		{"rfc with another status", "docs/rfcs/0001-a.md", strings.Replace(rfc, "implemented", "done", 1), "Status"},
		{"rfc without date", "docs/rfcs/0001-a.md", strings.Replace(rfc, "Date", "When", 1), "Date"},
		{"rfc without options", "docs/rfcs/0001-a.md", strings.Replace(rfc, "Options", "Choices", 1), `"Options"`},
		{
			"rfc in another order", "docs/rfcs/0001-a.md",
			strings.NewReplacer("Options", "Decision", "Decision", "Options").Replace(rfc), "order",
		},
		{"rfc too long", "docs/rfcs/0001-a.md", rfc + strings.Repeat("A.\n\n", maxRFCWords), "words: at most"},
		{"not an rfc", "docs/a.md", "A.", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults := strings.Join(check(c.path, c.text), "\n")
			if c.fault == "" && faults != "" {
				t.Errorf("faults of a good text:\n%s", faults)
			}
			if !strings.Contains(faults, c.fault) {
				t.Errorf("faults %q, want one with %q", faults, c.fault)
			}
		})
	}
}
