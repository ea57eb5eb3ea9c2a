package doclint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// walk calls visit for the files below the root. Hidden folders, built commands, archived documents
// and minified files are left out.
func walk(t *testing.T, visit func(name string) error) {
	t.Helper()
	err := filepath.WalkDir(*root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch base := entry.Name(); {
			case name == *root:
			case strings.HasPrefix(base, "."), base == "bin", base == "archive", base == "testdata":
				return filepath.SkipDir
			}
			return nil
		}
		if strings.Contains(name, ".min.") {
			return nil
		}
		return visit(name)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDialectOfDocuments promises that documents use the dialect at most as often as pebble's
// comments do. The changelog is history.
func TestDialectOfDocuments(t *testing.T) {
	var all usage
	walk(t, func(name string) error {
		if filepath.Ext(name) != ".md" || filepath.Base(name) == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var u usage
		u.add(string(text))
		all.Sentences += u.Sentences
		all.Phrases += u.Phrases
		if u.Phrases > 0 {
			t.Logf("%-55s %3d in %4d sentences", name, u.Phrases, u.Sentences)
		}
		return nil
	})
	t.Logf("%d in %d sentences: %.1f in 1,000", all.Phrases, all.Sentences, all.rate())
	if all.rate() > maxRate {
		t.Errorf("%.1f phrases of the dialect in 1,000 sentences of documents, at most %.1f: run with -v, "+
			"and repeat the noun", all.rate(), maxRate)
	}
}

// TestDialectOfComments holds the comments of each language to the rate.
func TestDialectOfComments(t *testing.T) {
	var code, tests, other usage
	walk(t, func(name string) error {
		switch extension := filepath.Ext(name); {
		case strings.HasSuffix(name, "_test.go"):
			return tests.addGo(name)
		case extension == ".go":
			return code.addGo(name)
		case comments[extension] != nil:
			before := other.Phrases
			if err := other.addOther(name); err != nil {
				return err
			}
			if n := other.Phrases - before; n > 0 {
				t.Logf("%-55s %3d", name, n)
			}
		}
		return nil
	})
	for _, c := range []struct {
		name string
		usage
	}{{"code", code}, {"tests", tests}, {"CUDA, C, JavaScript and Python", other}} {
		t.Logf("%s: %d in %d sentences of comments: %.1f in 1,000", c.name, c.Phrases, c.Sentences, c.rate())
		if c.rate() > maxRate {
			t.Errorf("%.1f phrases of the dialect in 1,000 sentences of the comments of %s, at most %.1f: "+
				"repeat the noun", c.rate(), c.name, maxRate)
		}
	}
}

// TestDialect promises what counts as a phrase, and where.
func TestDialect(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"The rate is that of the disk, and those of\nothers.", 2},
		{"Those that wait read the list, of which the end is empty, from which they go on.", 2},
		{"It takes so many rows from the begin.", 2},
		{"A round meets the bar, and a loop looks at the queue or rests.", 3},
		{"It looks up the key, and has the rest.", 0},
		{"Agents begin with the rate of the disk.", 0},
		{"# That of a heading\n\n| that of | a table |\n\n    that of code\n\nA span `that of` too.", 0},
	} {
		var u usage
		if u.add(c.text); u.Phrases != c.want {
			t.Errorf("%q has %d phrases, want %d", c.text, u.Phrases, c.want)
		}
	}
}

// TestOtherComments promises what is a comment outside of Go.
func TestOtherComments(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       usage
	}{
		{"a.cu", "#pragma once\n// A rate is that\n// of b. So\n// many.\nint a; // those of b\n", usage{3, 3}},
		{"a.js", `get("https://a/so many"); // of which` + "\n//\n// Two.\n\n//     code of which\n", usage{2, 1}},
		{"a.py", "# Those\n# that\na = b // so_many  # of which\n", usage{2, 2}},
		{"a.py", "  \"\"\"One of\n  which.\n\n    That of.\n  \"\"\"\n  return \"those of\"\n", usage{2, 2}},
	} {
		name := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var u usage
		if err := u.addOther(name); err != nil || u != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.text, u, err, c.want)
		}
	}
}
