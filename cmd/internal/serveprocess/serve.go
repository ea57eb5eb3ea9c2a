// Package serveprocess composes a whole cluster in one process with its dashboard, for exoswarm
// serve, and the dashboard alone, for exoswarm ui.
package serveprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// Command returns exoswarm serve. Each call returns a command with new flags.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run everything in one process, with the dashboard, until SIGTERM",
		Long: `Run a NATS server, a GPU agent, a CPU agent and the dashboard in one process, on a data folder
that survives restarts and kills. Every other command that is started in the same folder finds it
without flags. With --demo the example data is replayed, and with --watch-this-machine this machine is
watched; the dashboard shows what is found.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd) },
	}
	f := cmd.Flags()
	f.String("data-dir", command.ServeFolder, "folder for everything that lasts; one process at a time uses it")
	f.Int("nats-port", 4222, "port of the NATS server on 127.0.0.1; 0 for a free one")
	f.String("device", "auto", "device of the GPU agent, as of gpuagent --device")
	f.Bool("fast", false, "do not sync every message to disk: a power cut can lose the last 100 ms")
	f.StringArray("root", nil, "NAME=DIR: a folder that jobs may read and write as file:NAME/...; none by default")
	f.StringArray("egress", nil, "HOST, HOST:PORT, *.DOMAIN or NETWORK that jobs may reach; none by default")
	command.Lists(f, "root", "egress")
	f.Int("concurrency", 8, "most jobs that run at the same time")
	command.MemoryFlag(f, "three quarters of what the machine has available for the GPU agent and an eighth for the "+
		"CPU agent; of SIZE a quarter is for the CPU agent, at least 358MiB, which then runs fewer jobs at once")
	gpuprocess.SharedFlags(f)
	f.Bool("allow-custom-cells", false, "serve swarms whose step is code of their users: that code runs with all "+
		"rights of this process")
	f.Bool("demo", false, "replay two weeks of example data in ten minutes, with the time of the data, again and again")
	f.Int("demo-speed", 1, "factor for the speed of --demo, 1 to 100")
	f.Bool("watch-this-machine", false, "watch processors, memory, disks, networks and load of this machine (Linux), "+
		"once a second")
	dashboardFlags(f)
	programFlags(f)
	modelFlags(f)
	command.MetricsFlag(f)
	f.String("metrics-gpuagent", "", "HOST:PORT of the metrics of the GPU agent, as of gpuagent --metrics")
	f.String("metrics-cpuagent", "", "HOST:PORT of the metrics of the CPU agent, as of cpuagent --metrics")
	command.LogFlags(f)
	return cmd
}

// readyPatience bounds the start of the agents, which includes the replay of a log if a shard has
// one. After it the process ends with an error.
const readyPatience = 2 * time.Minute

// serve is the life of the process. Flags, the socket of the dashboard and the lock of the data
// folder come first, so that a mistake starts nothing. The parts start in the order server, agents,
// dashboard and end in the reverse one, so that agents give back what they hold while the server is
// there.
func serve(cmd *cobra.Command) (err error) {
	f := cmd.Flags()
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	if _, err := memoryOf(cmd); err != nil {
		return err
	}
	dir, _ := f.GetString("data-dir")
	port, _ := f.GetInt("nats-port")
	if port < 0 || port > 65535 {
		return command.Usage("--nats-port %d: use 0 to 65535", port)
	}
	speed, _ := f.GetInt("demo-speed")
	if speed < 1 || speed > maxDemoSpeed {
		return command.Usage("--demo-speed %d: use 1 to %d", speed, maxDemoSpeed)
	}
	// Made first, so that the agents in this process do not report to the service manager.
	service := command.NewService(log)
	defer service.Close()
	l, err := listen(cmd, log)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := command.NewMetrics(cmd, log)
	if err != nil {
		return err
	}
	defer m.Close()
	lock, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	fast, _ := f.GetBool("fast")
	srv, err := server.Start(cmd.Context(), server.Options{
		Dir: filepath.Join(dir, "nats"), Port: port, Fast: fast, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("--nats-port: %w", err)
	}
	defer srv.Close()
	log.Info("nats is ready", "url", srv.URL(), "data", dir)
	conn, err := natsq.Connect(cmd.Context(), natsconn.Options{InProcess: srv, Name: "exoswarm serve", Logger: log})
	if err != nil {
		return err
	}
	defer conn.Close()
	m.Require("nats", conn.Health)
	if err := m.Register(conn.Collector()); err != nil {
		return fmt.Errorf("metrics of the connection to NATS: %w", err)
	}
	snapshots, err := openSnapshots(cmd.Context(), snapshotFolder(dir), "")
	if err != nil {
		return err
	}
	defer snapshots.Close()
	if on, _ := f.GetBool("programs"); on {
		p, err := l.servePrograms(cmd, conn, dir, snapshots)
		if err != nil {
			return err
		}
		defer p.Close()
	}
	talk, err := l.serveModels(cmd, conn, dir, snapshots)
	if err != nil {
		return err
	}
	d, err := l.open(cmd.Context(), conn, m, snapshots)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	// A signal ends the users of the agents first.
	agents, endAgents := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer endAgents()
	p := &parts{cmd: cmd, log: log, ctx: ctx, end: end}
	p.start(agents, "gpuagent", gpuprocess.Command(), p.gpuArguments(srv.URL(), dir))
	p.start(agents, "cpuagent", cpuprocess.Shared(), p.cpuArguments(srv.URL(), dir))
	// The users of the agents end first, then the agents, and the server last. Wait leaves out the
	// two agents, which are the first parts.
	defer func() {
		end(nil)
		failed := p.wait(2)
		endAgents()
		err = errors.Join(err, failed, p.wait(0))
	}()
	if err := ready(ctx, conn); err != nil {
		return p.cause(err)
	}
	limitHeap(cmd, log)
	if on, _ := f.GetBool("demo"); on {
		p.run(ctx, "demo", newDemo(conn, snapshots, dir, speed, log).replay)
	}
	if on, _ := f.GetBool("watch-this-machine"); on {
		p.run(ctx, "machine", newMachine(conn, snapshots, log).watch)
	}
	if talk != nil {
		p.run(ctx, "models", talk.run)
	}
	p.run(ctx, "dashboard", d.serve)
	remove, err := command.Addresses{NATS: srv.URL(), Dashboard: l.url()}.Write(dir)
	if err != nil {
		return err
	}
	defer remove()
	service.Ready(func() { d.watcher.State() })
	select {
	case <-ctx.Done():
		log.Info("stopping", "reason", context.Cause(ctx))
		service.Stopping(context.Cause(ctx))
		return p.cause(nil)
	case <-srv.Full():
		// Without space the server stores nothing more, so no part can continue.
		return fmt.Errorf("no space left on the disk of %s: free some and start again", dir)
	}
}

// parts are the agents and other parts of the process. The first one that fails ends all. One
// goroutine calls the methods; the parts run in goroutines of their own.
type parts struct {
	cmd *cobra.Command
	log *slog.Logger
	ctx context.Context //nolint:containedctx // of the process: it ends with a signal
	end context.CancelCauseFunc
	// running has the agents first and then their users, in the order of their starts; see wait.
	running []*part
}

type part struct {
	name string
	done chan struct{}
	err  error // after done
}

// run runs a part in a goroutine until its function returns, which it must do when its context
// ends. A part that returns before the process ends is a failure, with or without an error: its
// error ends the process. Errors that only tell of the end itself are dropped.
func (p *parts) run(ctx context.Context, name string, fn func(ctx context.Context) error) {
	one := &part{name: name, done: make(chan struct{})}
	p.running = append(p.running, one)
	go func() {
		defer close(one.done)
		err := fn(ctx)
		if p.ctx.Err() == nil { // it ended by itself
			if err == nil {
				err = errors.New("it ended")
			}
			one.err = fmt.Errorf("%s: %w", name, err)
			p.end(one.err)
			return
		}
		if err != nil && !errors.Is(err, command.ErrInterrupted) && !errors.Is(err, context.Canceled) {
			one.err = fmt.Errorf("%s: %w", name, err)
		}
	}()
}

// start runs the command of an agent in this process, as its own program would. The agent logs to
// the error output of the process.
func (p *parts) start(ctx context.Context, name string, cmd *cobra.Command, args []string) {
	cmd.SetArgs(args)
	cmd.SetErr(p.cmd.ErrOrStderr())
	cmd.SetOut(p.cmd.OutOrStdout())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	// The process has the listeners and the devices of all parts.
	cmd.Annotations = map[string]string{command.ProgramAnnotation: p.cmd.Root().Name()}
	p.run(ctx, name, cmd.ExecuteContext)
}

// wait waits for the parts from index first on, in the order of their starts, and returns their
// errors joined. It forgets them. The caller has ended their context. The error that ended the
// process is left out, since cause returns it.
func (p *parts) wait(first int) error {
	var errs []error
	waited := p.running[min(first, len(p.running)):]
	p.running = p.running[:len(p.running)-len(waited)]
	for _, one := range waited {
		<-one.done
		if !errors.Is(context.Cause(p.ctx), one.err) { // it is returned already
			errs = append(errs, one.err)
		}
	}
	return errors.Join(errs...)
}

// cause returns the error of the part that ended the process, or err if a signal has ended it.
func (p *parts) cause(err error) error {
	if c := context.Cause(p.ctx); c != nil && !errors.Is(c, command.ErrInterrupted) && !errors.Is(c, context.Canceled) {
		return c
	}
	return err
}

// common returns the arguments that both agents have. The agents have fixed names, because the data
// folder has one of each.
func (p *parts) common(name, url string) []string {
	// A server in this process accepts connections of this machine without a login.
	level, _ := p.cmd.Flags().GetString("log-level")
	format, _ := p.cmd.Flags().GetString("log-format")
	metrics, _ := p.cmd.Flags().GetString("metrics-" + name)
	return []string{
		"--name", name, "--nats", url, "--log-level", level, "--log-format", format, "--metrics", metrics,
	}
}

func snapshotFolder(dir string) string { return filepath.Join(dir, command.ServedSnapshots) }

func (p *parts) gpuArguments(url, dir string) []string {
	device, _ := p.cmd.Flags().GetString("device")
	args := append(p.common("gpuagent", url), "--device", device, "--data-dir", filepath.Join(dir, "gpu"),
		// A process that was killed is the only one there is: nobody else takes its shards meanwhile.
		"--lease-ttl", "2s", "--snapshots", snapshotFolder(dir))
	if custom, _ := p.cmd.Flags().GetBool("allow-custom-cells"); custom {
		args = append(args, "--allow-custom-cells")
	}
	if total, _ := memoryOf(p.cmd); total > 0 {
		args = append(args, "--memory", fmt.Sprint(total-cpuMemory(total)))
	}
	return append(args, gpuprocess.SharedArguments(p.cmd.Flags())...)
}

// A CPU agent needs cpuLeast bytes, and cpuJob for each job that it runs at once; see inputmem.New.
const (
	cpuLeast = 294 << 20
	cpuJob   = 64 << 20
)

// cpuMemory returns the part of the CPU agent of --memory.
func cpuMemory(total int64) int64 { return max(total/4, cpuLeast+cpuJob) }

// memoryOf returns the bytes of --memory; 0: the flag is empty.
func memoryOf(cmd *cobra.Command) (int64, error) {
	if text, _ := cmd.Flags().GetString("memory"); text == "" {
		return 0, nil
	}
	return command.Memory(cmd, 0, 0)
}

func (p *parts) cpuArguments(url, dir string) []string {
	// Roots and hosts are passed on as they were given; cpuagent checks them.
	args := append(p.common("cpuagent", url), "--data-dir", filepath.Join(dir, "cpu"))
	for _, name := range []string{"root", "egress"} {
		values, _ := p.cmd.Flags().GetStringArray(name)
		for _, v := range values {
			args = append(args, "--"+name, v)
		}
	}
	n, _ := p.cmd.Flags().GetInt("concurrency")
	if total, _ := memoryOf(p.cmd); total > 0 {
		args = append(args, "--memory", fmt.Sprint(cpuMemory(total)))
		if !p.cmd.Flags().Changed("concurrency") {
			n = min(n, int((cpuMemory(total)-cpuLeast)/cpuJob))
		}
	}
	return append(args, "--concurrency", fmt.Sprint(n))
}

// ready waits until both agents are in the registry, at most readyPatience. A record of a process
// that was killed may still be there; it is accepted if it is not older than readyPatience, so
// ready may return a moment too early after a restart. Errors of the registry are taken for a
// server that has just started.
func ready(ctx context.Context, c *natsq.Conn) error {
	wait, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	began := time.Now()
	for {
		all, err := c.Registry.Agents(wait)
		if err == nil {
			n := 0
			for _, a := range all {
				if !a.Started.Before(began.Add(-readyPatience)) && (a.Name == "gpuagent" || a.Name == "cpuagent") {
					n++
				}
			}
			if n == 2 {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-wait.Done():
			return fmt.Errorf("the agents do not start within %v: %w", readyPatience, context.Cause(wait))
		}
	}
}

// limitHeap sets the limit of the Go heap to seven eighths of the memory that the process may use.
// Each agent has set a limit for a process of its own, and the last call counts, so it runs after
// both have started. GOMEMLIMIT of the user has priority.
func limitHeap(cmd *cobra.Command, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	total, _ := memoryOf(cmd)
	if total == 0 {
		l, err := memory.Detect(os.DirFS("/"))
		if err != nil {
			return // of another system: the limit of the agent that started last holds
		}
		total = l.Bytes
	}
	debug.SetMemoryLimit(total / 8 * 7)
	log.Debug("the heap is limited", "bytes", total/8*7)
}
