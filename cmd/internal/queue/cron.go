package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Cron returns exoswarm cron. The login of a tenant sees and changes the schedules of that
// tenant. A schedule outlives the command, and any agent of the cluster submits its jobs: the id of
// a job has the time, so two agents that submit the job of one time store one job.
func Cron() *cobra.Command {
	// one returns a command that changes the schedule of a name and prints nothing.
	one := func(use, short string, fn func(ctx context.Context, c command.JobClient, name string) error) cli.Verb {
		return cli.Verb{Use: use + " NAME", Short: short, Do: cli.Jobs(
			func(cmd *cobra.Command, args []string, c command.JobClient) error {
				return fn(cmd.Context(), c, args[0])
			},
		)}
	}
	names := cli.ListNames(
		func(ctx context.Context, c *natsq.Conn) ([]jobs.ScheduleState, error) {
			return c.Schedules.Schedules(ctx)
		},
		func(s jobs.ScheduleState) string { return s.Name },
	)
	return cli.Noun{Use: "cron", Short: "Submit jobs at set times", Names: names, Verbs: []cli.Verb{
		{
			Use:   `add NAME --cron "MINUTE HOUR DAY MONTH WEEKDAY" --kind KIND`,
			Short: "Submit a job at set times, once for the whole cluster",
			Long: `Add a schedule. At each of its times one agent of the cluster submits one job. The id
of the job is the name and the time, as in nightly-20260131T0200Z. A time at which no agent runs for
30 seconds is missed. --missed says what happens to missed times.`,
			Flags: cronFlags, Do: cli.Link(cronAdd),
		},
		{Use: "list", Short: "List the schedules and when they come next", Lists: true, Do: cli.Jobs(cronList)},
		one("remove", "End a schedule; jobs that it has submitted go on",
			func(ctx context.Context, c command.JobClient, name string) error { return c.RemoveSchedule(ctx, name) }),
		one("pause", "Pause a schedule",
			func(ctx context.Context, c command.JobClient, name string) error {
				return c.PauseSchedule(ctx, name, true)
			}),
		one("resume", "End the pause of a schedule",
			func(ctx context.Context, c command.JobClient, name string) error {
				return c.PauseSchedule(ctx, name, false)
			}),
	}}.Command()
}

func cronFlags(f *pflag.FlagSet) {
	// When.
	f.String("cron", "", "minute, hour, day of month, month and day of week, as in \"*/15 8-18 * * mon-fri\"; or "+
		"@always for one job at all times")
	f.String("zone", "UTC", "time zone of --cron, such as Europe/Berlin")
	f.String("missed", "skip", "times at which no agent ran: skip them, or make up for the last once")
	f.String("from", "", "only times after it count, such as 2026-01-31T12:00:00Z; empty: now")
	// What: the fields of the job that each time submits.
	f.String("pool", "cpu", "cpu or gpu")
	f.String("kind", "", "kind of the job, which selects its handler")
	f.String("spec", "null", "the job's spec: JSON, @FILE, or - for standard input")
	f.String("lane", "normal", "high, normal or low")
	f.String("tenant", jobs.DefaultTenant, "tenant whose limits the jobs count against")
	f.Int("max-attempts", jobs.Attempts, "most attempts at each job, 1 to 100")
	f.Duration("result-ttl", 24*time.Hour, "how long the result of each job is kept, 1 s to 168 h")
}

// cronAdd stores a schedule, which agents follow from then on. A name that is taken is
// jobs.ErrExists. Errors of usage come before it connects. The answer of the command is its exit
// code. The times are in --zone, also when it changes to daylight saving time; a warning names a
// time that is skipped then.
func cronAdd(cmd *cobra.Command, args []string) error {
	s, err := scheduleFromFlags(cmd, args[0])
	if err != nil {
		return err
	}
	err = cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
		return c.AddSchedule(cmd.Context(), s)
	}).Run(cmd, args)
	if err != nil {
		return err
	}
	from := time.Now()
	if s.From.After(from) {
		from = s.From
	}
	if wall, next, ok := queue.SkippedTime(s, from); ok {
		cmd.PrintErrf("warning: the clocks of %s skip %s, so schedule %s does not come then, and next on %s: choose "+
			"another time, or --zone UTC\n", s.Zone, wall, s.Name, next.Format(time.RFC3339))
	}
	return nil
}

// scheduleFromFlags returns the schedule of the command line, checked as the queue checks it. The
// specification of the job is checked as by exoswarm submit.
func scheduleFromFlags(cmd *cobra.Command, name string) (s jobs.Schedule, err error) {
	f := cmd.Flags()
	// These flags exist, so the lookup cannot fail.
	text := func(name string) string { v, _ := f.GetString(name); return v }
	s = jobs.Schedule{
		Version: jobs.Version, Name: name, Cron: text("cron"), Zone: text("zone"),
		Missed: jobs.MissedPolicy(text("missed")),
	}
	// The job has no id: each of its times makes one.
	s.Job = jobs.Job{
		Pool: jobs.Pool(text("pool")), Kind: text("kind"), Lane: jobs.Lane(text("lane")),
		Tenant: text("tenant"),
	}
	if s.Job.MaxAttempts, err = attempts(f); err != nil {
		return s, err
	}
	// Schedules store whole seconds.
	ttl, _ := f.GetDuration("result-ttl")
	s.Job.ResultTTL = int(ttl.Seconds())
	switch {
	case s.Cron == "" || s.Job.Kind == "":
		return s, command.Usage("cron add: --cron and --kind say when and what: both are needed")
	case ttl < time.Second:
		return s, command.Usage("cron add: --result-ttl %v: use at least 1s", ttl)
	}
	if from := text("from"); from != "" {
		if s.From, err = time.Parse(time.RFC3339, from); err != nil {
			return s, command.Usage("cron add: --from %q: use a time such as 2026-01-31T12:00:00Z", from)
		}
	}
	spec, err := readText(cmd, text("spec"))
	if err != nil {
		return s, err
	}
	if !json.Valid(spec) {
		return s, command.Usage("cron add: --spec is not JSON: %.60q", spec)
	}
	s.Job.Spec = spec
	if err := queue.CheckSchedule(s); err != nil {
		return s, err
	}
	// Otherwise a wrong specification would fail at each of its times, and nobody would look.
	return s, schema.CheckSchedule(s)
}

// cronList prints the schedules, one item for each, a jobs.ScheduleState. NEXT of the table is
// "paused", or the error of a schedule that cannot be read.
//
// Fields: the fields of the schedule, next and last (left out when there is none), and error.
func cronList(cmd *cobra.Command, _ []string, c command.JobClient) error {
	all, err := c.Schedules(cmd.Context())
	if err != nil {
		return err
	}
	return cli.Table[jobs.ScheduleState]{
		Columns: []string{"SCHEDULE", "CRON", "ZONE", "POOL", "KIND", "MISSED", "NEXT", "LAST"},
		Row: func(s jobs.ScheduleState) []any {
			// Next is the zero time of a schedule that is paused or cannot be read.
			none := "paused"
			if s.Cron == jobs.Always && !s.Paused {
				none = "always"
			}
			if s.Error != "" {
				none = s.Error
			}
			return []any{
				s.Name, s.Cron, s.Zone, s.Job.Pool, s.Job.Kind, s.Missed, cli.Time(s.Next, none), cli.Time(s.Last,
					"never"),
			}
		},
	}.Print(cmd, all...)
}
