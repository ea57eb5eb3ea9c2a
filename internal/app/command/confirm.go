package command

import (
	"bufio"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/jobs/natsq/control"
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

// Person returns who runs this command, for the audit: the user of the NATS login where that has a
// name, else the user of the operating system. From has the latter, and the name of the machine.
func Person(login, via string) control.Actor {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	by := control.Actor{User: login, From: name + "@" + host, Via: via}
	if login == "" {
		by.User = name
	}
	return by
}
