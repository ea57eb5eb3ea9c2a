package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Tenants returns exoswarm tenant. Limits are stored in the cluster, and workers follow a change at
// once. A tenant exists as soon as a job or a limit names it. exoswarm auth makes its users and
// their logins; a tenant cannot change its own limits.
func Tenants() *cobra.Command {
	tenants := func(ctx context.Context, c *natsq.Conn) ([]jobs.TenantLimits, error) { return c.Control.Tenants(ctx) }
	names := cli.ListNames(tenants, func(l jobs.TenantLimits) string { return l.Tenant })
	return cli.Noun{Use: "tenant", Short: "Limit the jobs of tenants", Names: names, Verbs: []cli.Verb{
		{
			Use: "limit NAME", Short: "Set limits of a tenant; limits that are not named stay",
			Long: `Set limits of a tenant. The name "*" sets the limits of all tenants that have none of
their own. A limit applies to each pool separately. Workers follow at once, and running jobs
continue. 0 means no limit, also if "*" has one.`,
			// Only flags that are on the command line count, so the defaults are for the help.
			Flags: func(f *pflag.FlagSet) {
				f.Float64("weight", 1, "share of a lane while other tenants have jobs too, 0.01 to 1000")
				f.Float64("rate", 0, "jobs that start per second, 0.001 to 1000000")
				f.Int("burst", 0, "jobs that may start at once after a pause; 0: as many as --rate has in a second")
				f.Int("concurrency", 0, "running jobs, on all agents together, 1 to 10000")
				f.Int("queued", 0, "jobs in the queue, 1 to 100000; more are refused")
			},
			Do: cli.Queue(tenantLimit),
		},
		{
			Use: "list", Short: "List the limits", Lists: true,
			Do: cli.List(tenantTable, tenants),
		},
		{
			Use: "unlimit NAME", Short: `Remove the limits of a tenant, which gets the limits of "*"`,
			Do: cli.Operates("tenant.unlimit"),
		},
	}}.Command()
}

// tenantLimit sets the limits whose flags are on the command line, and leaves the others as they
// are. 0 removes a limit, also one of "*". The new limits apply to jobs that start from now on.
func tenantLimit(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	f := cmd.Flags()
	l := jobs.Limits{
		Weight: given(f, "weight", f.GetFloat64), Rate: given(f, "rate", f.GetFloat64),
		Burst:       given(f, "burst", f.GetInt),
		Concurrency: given(f, "concurrency", f.GetInt), Queued: given(f, "queued", f.GetInt),
	}
	// Without a flag the call would change nothing and seem to have worked.
	if l == (jobs.Limits{}) {
		return command.Usage("tenant limit: say what to limit: --weight, --rate, --burst, --concurrency or --queued")
	}
	_, err := cli.Operate(cmd, c, action.Request{Action: "tenant.limit", Object: args[0], Limits: &l})
	return err
}

// given returns the value of a flag; nil if it is not on the command line. So a limit that is not
// named stays as it is, and a limit of 0 is removed.
func given[T any](f *pflag.FlagSet, name string, get func(string) (T, error)) *T {
	if !f.Changed(name) {
		return nil
	}
	v, err := get(name)
	if err != nil { // a flag of another type: a defect that the tests of the command find
		return nil
	}
	return &v
}

// tenantTable has the limits that are set, one item for each tenant. A record that cannot be read
// has an error.
//
// Fields: tenant ("*" for the default), weight, rate, burst, concurrency and queued, each left
// out when it is not set, and error.
var tenantTable = cli.Table[jobs.TenantLimits]{
	Columns: []string{"TENANT", "WEIGHT", "RATE", "BURST", "CONCURRENCY", "QUEUED", "ERROR"},
	Row: func(t jobs.TenantLimits) []any {
		return []any{
			t.Tenant, cell(t.Weight), cell(t.Rate), cell(t.Burst), cell(t.Concurrency), cell(t.Queued), t.Error,
		}
	},
}

// cell returns a limit as the text of a table: empty if it is not set.
func cell[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}
