package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/audit"
)

// auditCommand returns exoswarm audit. A viewer's login is enough. Records of the last seconds may be
// of actions that have not ended.
func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "List what operators did, newest first", Args: cobra.NoArgs,
		RunE: connect.Connected(auditList),
		Long: `List what operators did with this command and with the dashboard, newest first. An
action whose outcome is unknown has begun, and its process ended or lost the server before it could
store the outcome. The cluster keeps 90 days, and 256 MiB at most.`,
	}
	connect.Flags(cmd.Flags())
	command.ListFlag(cmd.Flags())
	cmd.Flags().Duration("since", 7*24*time.Hour, "how far back to list")
	cmd.Flags().Int("limit", 100, "most actions to list; 0 for all")
	return cmd
}

// auditList prints actions as they are read, newest first, one item for each, an audit.Entry.
//
// Fields: at, ended, id, user, from, via, action, object, detail, digest, outcome (done, failed or
// unknown) and error.
func auditList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	since, _ := cmd.Flags().GetDuration("since")
	limit, _ := cmd.Flags().GetInt("limit")
	if since <= 0 || limit < 0 {
		return command.Usage("audit: --since %v --limit %d: use more than 0, and 0 or more", since, limit)
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"TIME", "USER", "FROM", "VIA", "ACTION", "OBJECT", "OUTCOME",
		"ERROR")
	if err != nil {
		return err
	}
	// An error of the printer, such as a pipe that is closed, ends the listing too.
	var perr error
	err = c.Audit.List(cmd.Context(), time.Now().Add(-since), func(e audit.Entry) bool {
		perr = p.Item(e, e.At.Format(time.RFC3339), e.User, e.From, e.Via, e.Action, e.Object, e.Outcome, e.Error)
		return perr == nil && (limit == 0 || p.Len() < limit)
	})
	return errors.Join(err, perr, p.End())
}

// operate does an action between two records of the audit. The dashboard does the same action by the
// same function, with a preview before it. The error is that of the action; its record has it too.
func operate(cmd *cobra.Command, c *natsq.Conn, r action.Request) (out action.Outcome, err error) {
	o := action.Options{Conn: c}
	if cmd.Flags().Lookup("timeout") != nil {
		o.Timeout, _ = cmd.Flags().GetDuration("timeout")
	}
	op, err := action.New(o)
	if err != nil {
		return out, err
	}
	err = recorded(cmd, c, r.Action, r.Target(), func() (err error) {
		out, err = op.Run(cmd.Context(), r)
		return err
	})
	return out, err
}

// recorded calls act between two records of the audit. Without the first record act is not called,
// but for two cases, in which the command works as it does without an audit: a login that is not of an
// operator, whose permissions decide alone, and a server without space, which somebody must be able to
// free. A missing second record is a warning.
func recorded(cmd *cobra.Command, c *natsq.Conn, name, object string, act func() error) error {
	a, err := c.Audit.Begin(cmd.Context(), command.Person(c.User(), "exoswarm"),
		audit.What{Action: name, Object: object})
	switch {
	case errors.Is(err, jobs.ErrDenied):
		return act()
	case errors.Is(err, jobs.ErrFull):
		cmd.PrintErrf("warning: the server has no space for the audit, so %s %s is not recorded\n", name, object)
		return act()
	case err != nil:
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	err = act()
	if eerr := a.End(cmd.Context(), err); eerr != nil {
		cmd.PrintErrf("warning: %v\n", eerr)
	}
	return err
}
