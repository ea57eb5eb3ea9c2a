package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// JobLogs prints the log lines of the job that args name, as exoswarm job logs does.
type JobLogs func(cmd *cobra.Command, args []string, c command.JobClient) error

// Detectors returns the commands of exoswarm detect about detectors that last on a cluster.
// printLogs prints the logs of jobs. They need the login of an operator.
func Detectors(printLogs JobLogs) []*cobra.Command {
	// ending has the flag of commands that wait for the end of the job of a detector.
	ending := func(f *pflag.FlagSet) {
		f.Duration("timeout", 30*time.Second, "longest wait for the agent to finish what it has read")
	}
	names := cli.ListNames(listDetectors, func(d detectors.Detector) string { return d.Name })
	return cli.Noun{Names: names, Verbs: []cli.Verb{
		{
			Use:   "create -f swarm.yaml --sources FILE --sinks FILE",
			Short: "Create a detector that reads sources on a cluster until it is deleted",
			Long: `Create a detector. The CPU agents of the cluster read its sources from then on, and send its
decisions to its sinks, until it is paused or deleted. When an agent ends, another one continues where it stopped:
no row is lost, and none counts twice. The specification has the name, which is also the name of the swarm.

Sources have no end: subjects of NATS, pushed rows, Kafka, MQTT, and tables that grow. With
key: COLUMN in the specification each value of the column is an entity of its own.`,
			Flags: func(f *pflag.FlagSet) {
				f.StringP("file", "f", "", "specification of the swarm (required)")
				f.String("sources", "", "JSON file with a list of sources (required); see docs/sources.md")
				f.String("sinks", "", "JSON file with a list of sinks of decisions; see docs/sources.md")
				f.String("webhook", "", "URL to which anomalies are sent when they are found")
				f.String(
					"webhook-secret",
					"",
					"env:NAME or file:NAME on the CPU agent: the key that signs messages to "+
						"--webhook",
				)
			},
			Do: cli.Link(detectorCreate),
		},
		// Fields: name, state, job, worker, since, created, error, and counts, see
		// cpuagents.DetectorProgress.
		{
			Use: "list", Short: "List the detectors and what they do", Lists: true,
			Do: cli.List(detectorTable, listDetectors),
		},
		{
			Use: "show NAME", Short: "Show a detector, its counts and its sources", Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.String("key", "", "key of an entity, as in sensor-17 or site=a,device=7: show the state of its group")
				f.Duration("timeout", time.Minute, "longest wait for the state of an entity")
			},
			Do: cli.Queue(detectorShow),
		},
		{
			Use: "pause NAME", Short: "Stop the reading of a detector, and keep its offsets and its state",
			Flags: ending,
			Do: changed("detector.pause", func(cmd *cobra.Command, d *detectors.Detectors, name string) error {
				ctx, cancel := within(cmd, name)
				defer cancel()
				return d.Pause(ctx, name)
			}),
		},
		{
			Use: "resume NAME", Short: "Let a detector continue that is paused or has failed",
			Do: changed("detector.resume", func(cmd *cobra.Command, d *detectors.Detectors, name string) error {
				return d.Resume(cmd.Context(), name)
			}),
		},
		{
			Use: "delete NAME", Short: "Delete a detector with its swarm and its state",
			Flags: func(f *pflag.FlagSet) {
				ending(f)
				f.Bool("yes", false, "do not ask for confirmation")
			},
			Do: cli.Queue(detectorDelete),
		},
		{
			Use: "logs NAME", Short: "Print the log of the last job of a detector", Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.Bool("follow", false, "print further lines as they come, until the job is over")
			},
			Do: cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
				return detectorLogs(cmd, args, c, printLogs)
			}),
		},
		Explain("explain NAME", "Tell why a detector does not progress", detectors.Explain),
	}}.Commands()
}

func listDetectors(ctx context.Context, c *natsq.Conn) ([]detectors.Detector, error) {
	return detectors.New(c).List(ctx)
}

// changed returns the action of a change of a detector, which the audit has under a name.
func changed(action string, change func(cmd *cobra.Command, d *detectors.Detectors, name string) error) cli.Action {
	return cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		return cli.Recorded(cmd, c, action, args[0], func() error { return change(cmd, detectors.New(c), args[0]) })
	})
}

// detectorCreate stores a detector. Mistakes of flags and files are found before it connects, and
// other mistakes before anything is stored. Only an agent finds a folder or a host that it may not
// use; detect show prints that.
func detectorCreate(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	text := func(name string) string { v, _ := f.GetString(name); return v }
	switch {
	case text("file") == "":
		return command.Usage("detect create: -f is missing: name a swarm spec, such as " +
			"examples/telemetry/swarm.yaml")
	case text("sources") == "":
		return command.Usage(`detect create: --sources is missing: name a file with a list such as ` +
			`[{"name":"plant","uri":"push:plant"}]`)
	}
	spec, err := userfile.ReadSpec(text("file"))
	if err != nil {
		return err
	}
	sources, err := userfile.ReadSources(text("sources"), nil)
	if err != nil {
		return err
	}
	var sinks []sink.Spec
	if path := text("sinks"); path != "" {
		if err := userfile.ReadList("--sinks", path, `[{"uri":"nats:STREAM/SUBJECT"}]`, &sinks); err != nil {
			return err
		}
	}
	var hook *sink.WebhookSpec
	if url := text("webhook"); url != "" {
		hook = &sink.WebhookSpec{URL: url, Secret: text("webhook-secret")}
	}
	made, err := detectors.Spec(spec, sources, sinks, hook)
	if err != nil {
		return command.Usage("%v", err)
	}
	return cli.Queue(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
		if err := cli.Recorded(cmd, c, "detector.create", made.Name, func() error {
			return detectors.New(c).Create(cmd.Context(), made)
		}); err != nil {
			return err
		}
		cmd.PrintErrf("detector %s is created: exoswarm detect show %s\n", made.Name, made.Name)
		return nil
	}).Run(cmd, args)
}

var detectorTable = cli.Table[detectors.Detector]{
	Columns: []string{
		"DETECTOR", "STATE", "SINCE", "WORKER", "ROWS", "REJECTED", "ENTITIES", "DECISIONS", "ANOMALIES", "DETAIL",
	},
	Row: func(d detectors.Detector) []any {
		row := []any{d.Name, d.State, cli.Time(d.Since, ""), d.Worker}
		n := d.Counts
		if n == nil {
			return append(row, "", "", "", "", "", d.Error)
		}
		return append(row, n.Rows, n.Rejected, n.Entities, n.Decisions, n.Anomalies, cmp.Or(d.Error, n.Waiting))
	},
}

type detectorView struct {
	detectors.Detector
	Sources []string `json:"sources"`
	Sinks   []string `json:"sinks"`
	// Entity is the state of the entity of --key.
	Entity *entities.State `json:"entity,omitempty"`
}

// detectorShow prints one detector. A table has a line for each property.
//
// Fields: the fields of detector list, the URIs of sources and sinks, and with --key entity, see
// entities.State.
func detectorShow(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	d, err := detectors.New(c).Get(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	v := detectorView{Detector: d}
	for _, s := range d.Spec.Sources {
		v.Sources = append(v.Sources, s.URI)
	}
	for _, s := range d.Spec.Sinks {
		v.Sinks = append(v.Sinks, s.URI)
	}
	if d.Spec.Webhook != nil {
		v.Sinks = append(v.Sinks, "webhook")
	}
	if key, _ := cmd.Flags().GetString("key"); key != "" {
		if v.Entity, err = entityOf(cmd, c, d.Name, key); err != nil {
			return err
		}
	}
	lines := [][2]any{
		{"detector", d.Name},
		{"state", d.State},
		{"job", d.Job},
		{"worker", d.Worker},
		{"sources", strings.Join(v.Sources, " ")},
		{"sinks", strings.Join(v.Sinks, " ")},
	}
	if d.Error != "" {
		lines = append(lines, [2]any{"detail", d.Error})
	}
	if n := d.Counts; n != nil {
		lines = append(lines, [2]any{"rows", n.Rows}, [2]any{"rejected", fmt.Sprint(n.Rejected, n.Keyless.Note())},
			[2]any{"entities", n.Entities}, [2]any{"decisions", fmt.Sprint(n.Decisions, n.Note())},
			[2]any{"anomalies", n.Anomalies}, [2]any{"source failures", n.SourceFailures},
			[2]any{"latency p50, p99", fmt.Sprintf("%.1f ms, %.1f ms", n.LatencyP50, n.LatencyP99)})
		if d.Spec.Evict != nil {
			lines = append(lines, [2]any{"evicted, returned", fmt.Sprintf("%d, %d", n.Evicted, n.Returned)})
		}
		if n.Waiting != "" {
			lines = append(lines, [2]any{"waiting", n.Waiting})
		}
	}
	if e := v.Entity; e != nil {
		lines = append(lines, [2]any{"entity", e.Name}, [2]any{"group", e.Group}, [2]any{"state", e.Text})
	}
	if format, _ := cmd.Flags().GetString("output"); format != "table" {
		lines = lines[:1] // programs get one item
	}
	var rows []cli.Row
	for _, l := range lines {
		rows = append(rows, cli.NewRow(v, l[0], l[1]))
	}
	return cli.PrintRows(cmd, []string{"PROPERTY", "VALUE"}, rows...)
}

func entityOf(cmd *cobra.Command, c *natsq.Conn, name, key string) (*entities.State, error) {
	timeout, _ := cmd.Flags().GetDuration("timeout")
	if timeout <= 0 {
		return nil, command.Usage("--timeout %v: use more than 0", timeout)
	}
	client, err := swarmclient.New(swarmclient.Options{Swarms: c.Swarms, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	s, err := client.Open(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	found, err := entities.Find(cmd.Context(), c.Swarms, s.Record(), key)
	if err != nil {
		return nil, err
	}
	all, err := entities.StatesOf(cmd.Context(), s, found)
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// within returns a context that ends after --timeout with an error for the user.
func within(cmd *cobra.Command, name string) (context.Context, context.CancelFunc) {
	d, _ := cmd.Flags().GetDuration("timeout")
	return context.WithTimeoutCause(cmd.Context(), d, jobs.Errorf(jobs.CodeDeadline, "detector %s: its job is not "+
		"over after %v: it ends as soon as its agent can: see exoswarm detect show %s, and repeat the command", name,
		d, name))
}

func detectorDelete(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	d, name := detectors.New(c), args[0]
	if _, err := d.Get(cmd.Context(), name); err != nil {
		return err
	}
	if err := command.Confirm(cmd, fmt.Sprintf("delete detector %s, its positions, and the state of all its agents",
		name)); err != nil {
		return err
	}
	if err := cli.Recorded(cmd, c, "detector.delete", name, func() error {
		ctx, cancel := within(cmd, name)
		defer cancel()
		return d.Delete(ctx, name)
	}); err != nil {
		return err
	}
	cmd.PrintErrf("detector %s is deleted\n", name)
	return nil
}

func detectorLogs(cmd *cobra.Command, args []string, c *natsq.Conn, logs JobLogs) error {
	d, err := detectors.New(c).Get(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if d.Job == "" {
		return fmt.Errorf("detector %s: no agent has begun with it: %w", args[0], jobs.ErrNotFound)
	}
	err = logs(cmd, []string{d.Job}, command.DirectClient(c))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
