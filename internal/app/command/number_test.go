package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPlainNumbers: flags refuse numbers that only a programming language takes for such, and have
// their values all the same.
func TestPlainNumbers(t *testing.T) {
	run := func(args ...string) (code, n int, share float64, said string) {
		var errs bytes.Buffer
		root := &cobra.Command{Use: "test"}
		sub := &cobra.Command{Use: "sub", RunE: func(cmd *cobra.Command, _ []string) error {
			n, _ = cmd.Flags().GetInt("n")
			share, _ = cmd.Flags().GetFloat64("share")
			return nil
		}}
		sub.Flags().Int("n", 7, "")
		root.PersistentFlags().Float64("share", 0.5, "")
		root.AddCommand(sub)
		root.SetArgs(append([]string{"sub"}, args...))
		code = Run(t.Context(), root, &errs)
		return code, n, share, errs.String()
	}
	if code, n, share, said := run(); code != 0 || n != 7 || share != 0.5 {
		t.Errorf("defaults: exit code %d, %d and %v, %s", code, n, share, said)
	}
	if code, n, share, said := run("--n", "-12", "--share=1e-3"); code != 0 || n != -12 || share != 1e-3 {
		t.Errorf("numbers: exit code %d, %d and %v, %s", code, n, share, said)
	}
	for _, bad := range []string{
		"--n=0100", "--n=0x10", "--n=1_000", "--n=0b1", "--n=0o7",
		"--share=1_0.5", "--share=0x1p4",
	} {
		if code, _, _, said := run(bad); code != ExitUsage || !strings.Contains(said, "decimal digits") {
			t.Errorf("%s: exit code %d, %s", bad, code, said)
		}
	}
}
