package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestTree: commands that are not known are answered with the nearest, missing commands are errors
// of usage, flags complete their values, and every program says its version.
func TestTree(t *testing.T) {
	tree := func() *cobra.Command {
		leaf := &cobra.Command{Use: "run", RunE: func(cmd *cobra.Command,
			_ []string,
		) error {
			return CheckOutput(cmd.Flags())
		}}
		leaf.Flags().String("progress", "auto", "")
		OutputFlag(leaf.Flags(), "table", "yaml")
		return Group("exotest", "A tree", leaf, Group("job", "Jobs", &cobra.Command{Use: "watch", RunE: leaf.RunE}))
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
