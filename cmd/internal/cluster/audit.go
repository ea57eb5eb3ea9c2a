package cluster

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// Audit returns exoswarm audit. A viewer's login is enough. Records of the last seconds may be of
// actions that have not ended.
func Audit() *cobra.Command {
	return cli.Verb{
		Use: "audit", Short: "List what operators did, newest first", Lists: true, Do: cli.Queue(auditList),
		Long: `List what operators did with this command and with the dashboard, newest first. An
action whose outcome is unknown has begun, and its process ended or lost the server before it could
store the outcome. The cluster keeps 90 days, and 256 MiB at most.`,
		Flags: func(f *pflag.FlagSet) {
			f.Duration("since", 7*24*time.Hour, "how far back to list")
			f.Int("limit", 100, "most actions to list; 0 for all")
		},
	}.Command()
}

// auditList prints actions as they are read, newest first, one item for each, an
// control.AuditEntry.
//
// Fields: at, ended, id, user, from, via, action, object, detail, digest, outcome (done, failed or
// unknown) and error.
func auditList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	since, _ := cmd.Flags().GetDuration("since")
	limit, _ := cmd.Flags().GetInt("limit")
	if since <= 0 || limit < 0 {
		return command.Usage("audit: --since %v --limit %d: use more than 0, and 0 or more", since, limit)
	}
	return cli.Table[control.AuditEntry]{
		Columns: []string{"TIME", "USER", "FROM", "VIA", "ACTION", "OBJECT", "OUTCOME", "ERROR"},
		Row: func(e control.AuditEntry) []any {
			return []any{e.At.Format(time.RFC3339), e.User, e.From, e.Via, e.Action, e.Object, e.Outcome, e.Error}
		},
	}.Stream(cmd, limit, func(fn func(control.AuditEntry) bool) error {
		return c.Audit.List(cmd.Context(), time.Now().Add(-since), fn)
	})
}
