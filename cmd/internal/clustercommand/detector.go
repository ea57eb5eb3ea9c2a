package clustercommand

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// JobLogs prints the log lines of the job that args name, as exoswarm job logs does.
type JobLogs func(cmd *cobra.Command, args []string, c command.JobClient) error

// Recorded calls act between two records of the audit, with the name of the action and its object.
type Recorded func(cmd *cobra.Command, c *natsq.Conn, action, object string, act func() error) error

// NewDetector returns exoswarm detector. printLogs prints the logs of jobs, and recorded writes changes
// to the audit. Package detectors does the work. It needs the login of an operator.
func NewDetector(printLogs JobLogs, recorded Recorded) *cobra.Command {
	create := &cobra.Command{
		Use:   "create -f swarm.yaml --sources FILE --sinks FILE",
		Short: "Create a detector that lasts on a cluster",
		Long: `Create a detector. The CPU agents of the cluster read its sources from then on, and send its decisions
to its sinks, until it is paused or deleted. When an agent ends, another one continues where it stopped:
no row is lost, and none counts twice. The name is that of the specification, and becomes that of a swarm.

Sources are those without end: subjects of NATS, pushed rows, Kafka, MQTT, and tables that grow. With
key: COLUMN in the specification each value of the column is an entity of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return detectorCreate(cmd, args, recorded) },
	}
	f := create.Flags()
	f.StringP("file", "f", "", "specification of the swarm (required)")
	f.String("sources", "", "JSON file with a list of sources (required); see docs/sources.md")
	f.String("sinks", "", "JSON file with a list of sinks of decisions; see docs/sources.md")
	f.String("webhook", "", "URL to which anomalies are sent when they are found")
	f.String("webhook-secret", "", "env:NAME or file:NAME on the CPU agent: the key that signs messages to --webhook")
	list := &cobra.Command{
		Use: "list", Short: "List the detectors and what they do", Args: cobra.NoArgs,
		RunE: connect.Connected(detectorList),
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show a detector, its counts and its sources", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(detectorShow),
	}
	show.Flags().String("key", "", "key of an entity, as in sensor-17 or site=a,device=7: show the state of its group")
	show.Flags().Duration("timeout", time.Minute, "longest wait for the state of an entity")
	pause := &cobra.Command{
		Use: "pause NAME", Short: "Stop the reading of a detector, and keep its offsets and its state",
		Args: cobra.ExactArgs(1), RunE: connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			return recorded(cmd, c, "detector.pause", args[0], func() error { return detectorPause(cmd, args[0], c) })
		}),
	}
	resume := &cobra.Command{
		Use: "resume NAME", Short: "Let a detector continue that is paused or has failed", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			return recorded(cmd, c, "detector.resume", args[0], func() error {
				return detectors.New(c).Resume(cmd.Context(), args[0])
			})
		}),
	}
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Delete a detector with its swarm and its state", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			return detectorDelete(cmd, args[0], c, recorded)
		}),
	}
	remove.Flags().Bool("yes", false, "do not ask for confirmation")
	logs := &cobra.Command{
		Use: "logs NAME", Short: "Print the log of the last job of a detector", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			return detectorLogs(cmd, args, c, printLogs)
		}),
	}
	logs.Flags().Bool("follow", false, "print further lines as they come, until the job is over")
	for _, c := range []*cobra.Command{pause, remove} {
		c.Flags().Duration("timeout", 30*time.Second, "longest wait for the agent to finish what it has read")
	}
	all := []*cobra.Command{create, list, show, pause, resume, remove, logs}
	why := Explain("explain NAME", "Tell why a detector does not progress.", ops.ExplainDetector)
	for _, c := range all {
		connect.Flags(c.Flags())
	}
	for _, c := range []*cobra.Command{list, show, logs} {
		command.ListFlag(c.Flags())
	}
	return command.Group("detector", "Detectors that last on a cluster", append(all, why)...)
}

// detectorCreate stores a detector. Mistakes of flags and files are found before it connects, and
// others before anything is stored, except those that only an agent can see, such as a folder or a
// host that it may not use: show has them.
func detectorCreate(cmd *cobra.Command, args []string, recorded Recorded) error {
	f := cmd.Flags()
	text := func(name string) string { v, _ := f.GetString(name); return v }
	switch {
	case text("file") == "":
		return command.Usage("detector create: -f is missing: name a swarm spec, such as " +
			"examples/telemetry/swarm.yaml")
	case text("sources") == "":
		return command.Usage(`detector create: --sources is missing: name a file with a list such as ` +
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
	return connect.Connected(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
		if err := recorded(cmd, c, "detector.create", made.Name, func() error {
			return detectors.New(c).Create(cmd.Context(), made)
		}); err != nil {
			return err
		}
		cmd.PrintErrf("detector %s is created: exoswarm detector show %s\n", made.Name, made.Name)
		return nil
	})(cmd, args)
}

// detectorList prints all detectors, one item for each, a detectors.Detector.
//
// Fields: name, state, job, worker, since, created, error, and counts, see
// cpuagents.DetectorProgress.
func detectorList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := detectors.New(c).List(cmd.Context())
	if err != nil {
		return err
	}
	return printDetectors(cmd, all)
}

// printDetectors prints a table of detectors.
func printDetectors(cmd *cobra.Command, all []detectors.Detector) error {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"DETECTOR", "STATE", "SINCE", "WORKER", "ROWS", "REJECTED",
		"ENTITIES", "DECISIONS", "ANOMALIES", "DETAIL")
	if err != nil {
		return err
	}
	for _, d := range all {
		var rows, rejected, entities, decisions, anomalies any = "", "", "", "", ""
		detail := d.Error
		if n := d.Counts; n != nil {
			rows, rejected, entities, decisions, anomalies = n.Rows, n.Rejected, n.Entities, n.Decisions, n.Anomalies
			if detail == "" {
				detail = n.Waiting
			}
		}
		since := ""
		if !d.Since.IsZero() {
			since = d.Since.Format(time.RFC3339)
		}
		if err := p.Item(d, d.Name, d.State, since, d.Worker, rows, rejected, entities, decisions, anomalies,
			detail); err != nil {
			return err
		}
	}
	return p.End()
}

// detectorView is what show prints as JSON.
type detectorView struct {
	detectors.Detector
	Sources []string `json:"sources"`
	Sinks   []string `json:"sinks"`
	// Entity is the state of the entity of --key.
	Entity *entities.State `json:"entity,omitempty"`
}

// detectorShow prints one detector. A table has a line for each property.
//
// Fields: those of detector list, the URIs of sources and sinks, and with --key entity, see
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
			return fmt.Errorf("detector show: %w", err)
		}
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "PROPERTY", "VALUE")
	if err != nil {
		return err
	}
	format, _ := cmd.Flags().GetString("output")
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
	for i, l := range lines {
		var item any
		if i == 0 {
			item = v // as JSON there is one item
		} else if format != "table" {
			break
		}
		if err := p.Item(item, l[0], l[1]); err != nil {
			return err
		}
	}
	return p.End()
}

// entityOf asks for the state of the entity of a detector with a key.
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
		"over after %v: it ends as soon as its agent can: see exoswarm detector show %s, and repeat the command", name,
		d, name))
}

// detectorPause pauses a detector, and waits until its agent has finished.
func detectorPause(cmd *cobra.Command, name string, c *natsq.Conn) error {
	ctx, cancel := within(cmd, name)
	defer cancel()
	return detectors.New(c).Pause(ctx, name)
}

// detectorDelete deletes a detector after a confirmation.
func detectorDelete(cmd *cobra.Command, name string, c *natsq.Conn, recorded Recorded) error {
	d := detectors.New(c)
	if _, err := d.Get(cmd.Context(), name); err != nil {
		return err
	}
	if err := command.Confirm(cmd, fmt.Sprintf("delete detector %s, its positions, and the state of all its agents",
		name)); err != nil {
		return err
	}
	if err := recorded(cmd, c, "detector.delete", name, func() error {
		ctx, cancel := within(cmd, name)
		defer cancel()
		return d.Delete(ctx, name)
	}); err != nil {
		return err
	}
	cmd.PrintErrf("detector %s is deleted\n", name)
	return nil
}

// detectorLogs prints the log of the last job of a detector with logs.
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
