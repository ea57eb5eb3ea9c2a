package command

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestTree: commands that are not known are answered with the nearest, missing commands are errors
// of usage, flags complete their values, and every program says its version.
func TestTree(t *testing.T) {
	tree := func() *cobra.Command {
		leaf := &cobra.Command{Use: "run", Short: "Run it", RunE: func(cmd *cobra.Command,
			_ []string,
		) error {
			return CheckOutput(cmd.Flags())
		}}
		leaf.Flags().String("progress", "auto", "")
		leaf.Flags().Duration("patience", 0, "")
		leaf.Flags().Int("count", 0, "how often")
		NATSFlags(leaf.Flags(), false)
		OutputFlag(leaf.Flags(), "table", "yaml")
		return Group("exotest", "A tree", leaf, Group("job", "Jobs",
			&cobra.Command{Use: "get ID", Long: "Get. And more.", Short: "Get", RunE: leaf.RunE},
			&cobra.Command{Use: "watch ID [PLACE]", Short: "Watch", RunE: leaf.RunE}))
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run"}, 0, ""},
		{[]string{"run", "-o", "yaml"}, 0, ""},
		{[]string{"run", "-o", "json"}, ExitUsage, `--output "json": use table or yaml`},
		{[]string{"rn"}, ExitUsage, "did you mean run?"},
		{[]string{"completon"}, ExitUsage, "did you mean completion?"},
		{[]string{"job", "wtach"}, ExitUsage, "did you mean watch?"},
		{[]string{"xyzzy"}, ExitUsage, "--help lists the commands"},
		{[]string{"job", "show"}, ExitUsage, `exotest job: there is no command "show": did you mean get?`},
		{[]string{"job", "wait", "--timeout", "1s"}, ExitUsage, `there is no command "wait": did you mean watch?`},
		{[]string{"watch"}, ExitUsage, "did you mean exotest job watch?"},
		{[]string{"help", "job", "show"}, ExitUsage, "did you mean get?"},
		{[]string{"help", "job", "get"}, 0, "Get.\n\nAnd more.\n\nUsage:\n  exotest job get ID"},
		{[]string{"completion", "csh"}, ExitUsage, `there is no command "csh"`},
		{[]string{"run", "--porgress", "x"}, ExitUsage, "there is no flag --porgress: did you mean --progress?"},
		{[]string{"run", "--frobnicate"}, ExitUsage, "there is no flag --frobnicate: exotest run --help lists"},
		{[]string{"run", "-x"}, ExitUsage, "there is no flag -x"},
		{[]string{"run", "--count"}, ExitUsage, "--count needs a value: write --count INT: how often"},
		{[]string{"run", "--count", "x"}, ExitUsage, `--count "x": write a number`},
		{[]string{"run", "--count", "9999999999999999999999"}, ExitUsage, "the number is too large"},
		{[]string{"run", "--patience", "5"}, ExitUsage, `--patience "5": write a number with a unit`},
		{[]string{"run", "a"}, ExitUsage, `"a" is one argument too many: exotest run takes none`},
		{[]string{"job", "watch"}, ExitUsage, "ID is missing: write exotest job watch ID [PLACE]"},
		{[]string{"job", "watch", "a", "b", "c"}, ExitUsage, `"c" is one argument too many: write exotest job`},
		{[]string{"run", "--help"}, 0, "Connection flags:\n      --nats string"},
		{nil, ExitUsage, "name a command"},
		{[]string{"job"}, ExitUsage, "name a command"},
		{[]string{"--version"}, 0, "exotest "},
		{[]string{"version"}, 0, "(revision "},
		{[]string{"version", "-o", "json"}, 0, `{"program":"exotest","version":"`},
		{[]string{"version", "-o", "yaml"}, ExitUsage, "use text or json"},
		{[]string{"--help"}, 0, "completion"},
		{[]string{"__complete", "run", "--progress", ""}, 0, "json"},
		{[]string{"__complete", "run", "-o", ""}, 0, "yaml"},
	} {
		var out bytes.Buffer
		root := tree()
		root.SetArgs(append([]string{}, c.args...))
		root.SetOut(&out)
		root.SetErr(&out)
		if code := Run(t.Context(), root, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
	if number, _ := Version(); number == "" || number == "(devel)" {
		t.Errorf("version %q", number)
	}
}

// TestMan: each command has a manual page, whose text is no markup.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	root := Group("exotest", "A tree", &cobra.Command{
		Use: "run -f FILE", Short: "Run it", Long: "Run it.\n\n.csv is read.\na\\b",
		RunE: func(*cobra.Command, []string) error { return nil },
	})
	root.SetArgs([]string{"man", dir})
	if code := Run(t.Context(), root, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for name, want := range map[string][]string{
		"exotest.1":     {".B exotest\\-run(1)\nRun it", "exotest \\- A tree"},
		"exotest-run.1": {".TH \"EXOTEST-RUN\" 1", "\n.SH DESCRIPTION\n\\&.csv is read.\na\\eb\n", "\\-h, \\-\\-help"},
	} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(page), w) {
				t.Errorf("%s lacks %q:\n%s", name, w, page)
			}
		}
	}
}

// TestServedHere: commands find exoswarm serve by its data folder, and no process that has ended.
func TestServedHere(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("NATS_URL", "")
	url := func() string {
		cmd := &cobra.Command{}
		NATSFlags(cmd.Flags(), false)
		u, _ := NATS(cmd)
		return u
	}
	const usual = "nats://127.0.0.1:4222"
	if got := url(); got != usual {
		t.Errorf("without a process: %s", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there := "nats://" + l.Addr().String()
	dir, err := filepath.Abs(ServeFolder)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	remove, err := Addresses{NATS: there}.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := url(); got != there {
		t.Errorf("beside the data folder: %s, want %s", got, there)
	}
	t.Chdir(ServeFolder)
	if got := url(); got != there {
		t.Errorf("in the data folder: %s, want %s", got, there)
	}
	l.Close()
	if got := url(); got != usual {
		t.Errorf("a process that was killed: %s", got)
	}
	remove()
	if _, err := os.Stat(addressFile); err == nil {
		t.Error("the addresses outlast the process")
	}
}
