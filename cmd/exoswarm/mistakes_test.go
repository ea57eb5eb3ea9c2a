package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestMistakes: each command line of testdata/mistakes.txtar gets its exit code and its one
// sentence, and leaves no file but the rows that it rejects.
func TestMistakes(t *testing.T) {
	table, err := txtar.ParseFile(filepath.Join("testdata", "mistakes.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv("NATS_URL", "")
	for _, f := range table.Files {
		write(t, f.Name, string(f.Data))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	named := strings.NewReplacer("$BUSY", l.Addr().String(), "$PORT", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	word := regexp.MustCompile(`"[^"]*"|\S+`)
	text := named.Replace(string(table.Comment))
	cases := regexp.MustCompile(`(?m)^(\d+) (.*)\n\t(.*)$`).FindAllStringSubmatch(text, -1)
	if len(cases) < 60 {
		t.Fatalf("%d cases, want 60 or more", len(cases))
	}
	for _, c := range cases {
		args := word.FindAllString(c[2], -1)
		for i := range args {
			args[i] = strings.Trim(args[i], `"`)
		}
		if args[0] == "run" {
			args = append(args, "--progress", "none")
		}
		code, _, stderr := exec(t.Context(), t, args...)
		lines := strings.Split(strings.TrimRight(stderr, "\n"), "\n")
		last := lines[len(lines)-1]
		want := "^" + strings.ReplaceAll(regexp.QuoteMeta(c[3]), `\.\.\.`, ".*") + "$"
		if strconv.Itoa(code) != c[1] || !regexp.MustCompile(want).MatchString(last) {
			t.Errorf("exoswarm %s: exit code %d, want %s\n got %s\nwant %s", c[2], code, c[1], last, c[3])
		}
		if _, err := os.Stat("o.ndjson"); err == nil && c[1] == "2" {
			t.Errorf("exoswarm %s: it left an output", c[2])
		}
		_ = os.Remove("o.ndjson")
		_ = os.Remove("o.rejects.ndjson")
	}
	for _, made := range []string{"nowhere", "state", "nd"} {
		if _, err := os.Stat(made); err == nil {
			t.Errorf("a mistake made the folder %s", made)
		}
	}
}
