package command

import (
	"bufio"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Confirm asks on the terminal before a change that cannot be undone; what completes "This will".
// Without a terminal it takes --yes alone. A refusal is an error of usage. The change has not begun
// when Confirm is called.
func Confirm(cmd *cobra.Command, what string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	// A pipe or a script cannot answer, and must not wait.
	in, is := cmd.InOrStdin().(*os.File)
	if !is || !term.IsTerminal(int(in.Fd())) {
		return Usage("%s: this would %s: add --yes", cmd.CommandPath(), what)
	}
	cmd.PrintErrf("This will %s. Go on? [y/N] ", what)
	// The end of the input is a refusal.
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return Usage("%s: not confirmed, nothing is changed", cmd.CommandPath())
	}
	return nil
}
