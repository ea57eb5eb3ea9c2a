package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// Operates is the action of a verb that does one action of operators to the object of its argument.
func Operates(name string) Action {
	return Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		_, err := Operate(cmd, c, action.Request{Action: name, Object: args[0]})
		return err
	})
}

// Operate does an action between two records of the audit. The dashboard calls the same function,
// after a preview. It returns the error of the action, which is also in the second record.
func Operate(cmd *cobra.Command, c *natsq.Conn, r action.Request) (out action.Outcome, err error) {
	o := action.Options{Conn: c}
	if cmd.Flags().Lookup("timeout") != nil {
		o.Timeout, _ = cmd.Flags().GetDuration("timeout")
	}
	op, err := action.New(o)
	if err != nil {
		return out, err
	}
	err = Recorded(cmd, c, r.Action, r.Target(), func() (err error) {
		out, err = op.Run(cmd.Context(), r)
		return err
	})
	return out, err
}

// Recorded calls act between two records of the audit. Without the first record act is not called,
// but for two cases, in which the command works as it does without an audit: a login that is not of
// an operator, whose permissions decide alone, and a server without space, which somebody must be
// able to free. A missing second record is a warning.
func Recorded(cmd *cobra.Command, c *natsq.Conn, name, object string, act func() error) error {
	a, err := c.Audit.Begin(cmd.Context(), command.Person(c.User(), "exoswarm"),
		control.Action{Action: name, Object: object})
	switch {
	case errors.Is(err, jobs.ErrDenied):
		return act()
	case errors.Is(err, jobs.ErrFull):
		cmd.PrintErrf("warning: the server has no space for the audit, so %s %s is not Recorded\n", name, object)
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
