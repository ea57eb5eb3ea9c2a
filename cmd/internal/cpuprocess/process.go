// Package cpuprocess composes the process of a CPU agent, for the command cpuagent and for exoswarm
// serve.
package cpuprocess

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/push"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Command returns the command cpuagent, which serves until a signal. It fails at once if its
// program holds GPU code. Each call returns a command with new flags. By default jobs may reach
// nothing: no folder, no host, no stream and no secret. The operator names each of them, and an
// entry with tenant= is for the jobs of that tenant only.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cpuagent --nats URL",
		Short: "Do the I/O of swarms until SIGTERM",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := command.Logger(cmd)
			if err == nil {
				err = checkWall(log)
			}
			if err != nil {
				return err
			}
			return serve(cmd, log, true)
		},
	}
	f := cmd.Flags()
	command.AgentFlags(f, "cpuagent", "results and logs")
	f.String("data-dir", "", "folder of this agent alone, for temporary files; empty: the folder of the system")
	f.StringArray("root", nil, "NAME=DIR: a folder that jobs may read and write as file:NAME/..., or tenant=TENANT,"+
		"name=NAME,path=DIR; none by default")
	f.StringArray("egress", nil, "HOST, HOST:PORT, *.DOMAIN or NETWORK that jobs may reach, or tenant=TENANT,"+
		"host=HOST; none by default")
	f.StringArray("stream", nil, "tenant=TENANT,name=STREAM: a JetStream stream that jobs of a tenant may read and "+
		"publish to; none by default")
	f.String("secrets", "", "folder of the secrets that jobs may refer to as file:NAME, secrets of a tenant in a "+
		"folder of its name; env:NAME is the variable "+access.Prefix+"NAME or "+access.Prefix+"TENANT__NAME")
	f.StringArray("secret", nil, "name=NAME,host=HOST or tenant=TENANT,name=NAME,host=HOST: a secret that is sent to "+
		"that host only")
	f.Int64("max-unpacked", 64<<30, "most bytes that one packed source (.gz, .zst) may unpack to")
	f.String("push-listen", "", "HOST:PORT to receive rows over HTTP, for sources at push:NAME; none by default. "+
		"Hosts other than a loopback address need --push-token")
	f.StringArray("push-token", nil, "NAME=env:SECRET or NAME=file:SECRET: the bearer token that may push to NAME; "+
		"a name may have several")
	f.String("push-cert", "", "file with the certificate of --push-listen, in PEM")
	f.String("push-key", "", "file with the key of --push-cert")
	f.Int64("push-max-body", 16<<20, "most bytes of the body of a push, before it is unpacked; up to 67108864")
	f.Int("push-max-rows", 1_000_000, "most rows of a push")
	f.Duration("object-grace", objects.Grace, "time that an object stays after the result and the dead letter of its "+
		"job are gone")
	f.Int("concurrency", 4, "most jobs that run at the same time")
	f.Duration("sweep", time.Minute, "time between two searches for remains of ended runs; remains that two "+
		"searches in turn find are removed; 0: never")
	command.Lists(f, "root", "egress", "stream", "secret", "push-token")
	command.MemoryFlag(f, "an eighth of what the machine has available")
	return cmd
}

// Shared returns Command for a process that holds a GPU agent too, such as exoswarm serve. It does
// not check for GPU code.
func Shared() *cobra.Command {
	cmd := Command()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, err := command.Logger(cmd)
		if err != nil {
			return err
		}
		return serve(cmd, log, false)
	}
	return cmd
}

// checkWall returns command.ErrGPUCode if this program holds GPU code, because a CPU agent must not
// be able to reach a GPU. It reads the functions and libraries of the program and its open devices.
// If the system does not allow the check, it logs that and returns nil. The check at the start
// cannot see a library that is mapped later, so the health of the process repeats a part of it.
func checkWall(log *slog.Logger) error {
	program, err := os.Executable()
	if err == nil {
		err = command.GPUFree(program, "/proc/self")
	}
	switch {
	case errors.Is(err, command.ErrGPUCode):
		return err
	case err != nil:
		log.Warn("not looked at: whether this program holds GPU code", "error", err)
	default:
		log.Info("this program holds no GPU code", "looked_at", "functions, libraries, open devices")
	}
	return nil
}

// serve is the life of the process: it checks the flags, opens the resources of jobs, connects,
// works until the reason to drain, and gives its jobs back.
//
// All flags are checked before the connection, so that a mistake leaves no trace in the cluster.
// Every part is opened before the worker takes its first job, and closed after the worker has
// drained: the deferred calls run in the reverse order. Only the push endpoint, the gateway and the
// registry are closed earlier, in that order around the drain.
//
// walled reports whether the process must not hold GPU code, which /readyz then checks at each
// request. The error joins the reason to drain with the failures of the drain itself.
func serve(cmd *cobra.Command, log *slog.Logger, walled bool) (err error) {
	f := cmd.Flags()
	data, _ := f.GetString("data-dir")
	rootFlags, _ := f.GetStringArray("root")
	concurrency, _ := f.GetInt("concurrency")
	unpacked, _ := f.GetInt64("max-unpacked")
	if unpacked < 1 {
		return command.Usage("--max-unpacked %d: use 1 or more bytes", unpacked)
	}
	grace, _ := f.GetDuration("object-grace")
	if grace <= 0 {
		return command.Usage("--object-grace %v: use more than 0", grace)
	}
	// inputmem reserves memory for each of them.
	if concurrency < 1 {
		return command.Usage("--concurrency %d: use 1 or more", concurrency)
	}
	// Sources share the memory of inputs; the heap gets the rest of the limit.
	limit, err := command.Memory(cmd, 1.0/8, 1<<30)
	if err != nil {
		return err
	}
	// Each job keeps a fixed part for itself; the rest is shared by the sources of all jobs.
	inputs, err := access.NewMemory(limit, concurrency)
	if err != nil {
		return err
	}
	// The collector must know the limit before the first source is read.
	command.LimitHeap(access.HeapLimit(limit), log)
	roots, err := files.ParseRoots(rootFlags)
	if err != nil {
		return command.Usage("%v", err)
	}
	// files.New opens the folders, but only after a connection, which may take long.
	for name, dir := range roots {
		r, err := os.OpenRoot(dir)
		if err != nil {
			return command.Usage("--root %s: %v", name.Name, err)
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	allow, _ := f.GetStringArray("egress")
	guard, err := access.NewGuard(allow)
	if err != nil {
		return command.Usage("%v", err)
	}
	secretDir, _ := f.GetString("secrets")
	secrets, err := access.OpenSecrets(secretDir)
	if err != nil {
		return command.Usage("--secrets: %v", err)
	}
	// Secrets are read from their files whenever a job refers to them, so the store stays open.
	defer func() { err = errors.Join(err, secrets.Close()) }()
	bound, _ := f.GetStringArray("secret")
	if err := secrets.Bind(bound); err != nil {
		return command.Usage("%v", err)
	}
	streamFlags, _ := f.GetStringArray("stream")
	streams, err := cpuagents.ParseStreams(streamFlags)
	if err != nil {
		return command.Usage("%v", err)
	}
	// An empty name is the folder of the system, which exists.
	if data != "" {
		if err := os.MkdirAll(data, 0o755); err != nil {
			return command.Usage("--data-dir: %v", err)
		}
		lock, err := vfs.Own(data)
		switch {
		case errors.Is(err, vfs.ErrLocked):
			return command.Usage("--data-dir %v: give every agent a folder of its own", err)
		case err != nil:
			return command.Usage("--data-dir %v", err)
		}
		defer lock.Close()
	}
	process, err := command.NewAgentProcess(cmd, log)
	if err != nil {
		return err
	}
	defer process.Close()
	metrics := process.Metrics
	if walled { // open devices and mapped libraries again, at each request of the health: they may come later
		metrics.Require("isolation", command.NewHoldings("/proc/self").GPUFree)
	}
	// From here on the process is visible to scrapes, but not ready: Connect may wait for a server.
	counts, streamed, err := newMetrics(metrics, guard)
	if err != nil {
		return err
	}
	if err := process.Connect("exoswarm-cpuagent"); err != nil {
		return err
	}
	conn := process.Conn
	files, err := files.New(files.Options{
		Roots: roots, Objects: conn.Objects, Scratch: data, Unpacked: unpacked,
		Memory: inputs,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	scratch := files.CheckScratch()
	// The watch outlives the signal: a job that drains needs the scratch folder too.
	watching, unwatch := context.WithCancel(context.WithoutCancel(cmd.Context()))
	var watch sync.WaitGroup
	watch.Go(func() { files.WatchScratch(watching, log) })
	defer watch.Wait()
	defer unwatch()
	metrics.Require("scratch", func(context.Context) error { return files.Ready() })
	if err := metrics.Register(newScratchMetric(files.Ready)); err != nil {
		return err
	}
	push, err := listenPush(cmd, conn, inputs, secrets, metrics, log)
	if err != nil {
		return err
	}
	defer closePush(push)
	// Every resource that a job may ask for is given here; the streamer opens nothing by itself.
	streamer, err := cpuagents.New(cpuagents.Options{
		Queue: conn.StreamJobs(), Files: files, Logger: log, Egress: guard,
		Secrets: secrets, Streams: streams, Metrics: streamed,
	})
	if err != nil {
		return err
	}
	worker, err := conn.Work(cmd.Context(), natsq.WorkerOptions{
		Name: process.Name, Pool: jobs.PoolCPU, Concurrency: concurrency, Ready: files.Ready, Metrics: counts,
		Logger: log,
		Handlers: map[string]jobs.Handler{
			cpuagents.KindStream: streamer.Handle, cpuagents.KindDetector: streamer.HandleDetector,
		},
	})
	if err != nil {
		return err
	}
	ctx := process.Context()
	// Objects and orphans are looked after in the background, until the process drains.
	// The deferred call below ends ctx and waits, so the background work never outlives conn.
	var sweeping sync.WaitGroup
	defer func() { process.End(nil); sweeping.Wait() }()
	sweeping.Go(func() { conn.Objects.KeepObjects(ctx, grace, log) })
	if err := process.Announce(func() jobs.Agent {
		// The heartbeat shows a scratch folder that cannot be used; Ready of the worker keeps jobs
		// away from it.
		a := jobs.Agent{
			Pool: jobs.PoolCPU, Kinds: []string{cpuagents.KindStream, cpuagents.KindDetector},
			Concurrency: concurrency,
			Running:     worker.Running(), State: "serving",
		}
		if state := files.DescribeScratch(); state != "" {
			a.State = state
		}
		return a
	}); err != nil {
		return errors.Join(err, drain(worker))
	}
	// The gateway comes after the registry: its callers look for agents there.
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, log)
	if err != nil {
		process.Leave()
		return errors.Join(err, drain(worker))
	}
	if err := metrics.Register(g.Collector()); err != nil {
		g.Close()
		process.Leave()
		return errors.Join(err, drain(worker))
	}
	if sweep, _ := cmd.Flags().GetDuration("sweep"); sweep > 0 {
		sweeping.Go(func() { conn.Swarms.SweepOrphans(ctx, sweep, log) })
	}
	if scratch != nil {
		log.Error("cpuagent is not ready: it takes jobs when --data-dir can be written", "name", process.Name, "error",
			scratch)
	} else {
		log.Info("cpuagent is ready", "name", process.Name, "nats", process.URL(), "memory", limit)
	}

	if refused := process.Wait(); refused != nil {
		defer func() { err = errors.Join(refused, err) }()
	}
	// No new rows and requests first, then the jobs, and the registry last: an operator sees the
	// agent until it has given everything back.
	closePush(push)
	g.Close()
	err = drain(worker)
	process.Leave()
	return err
}

// listenPush starts the endpoint for pushed rows, whose bodies take a part of the memory of inputs.
// It returns nil without --push-listen; then the other flags of the endpoint are errors of usage.
// The caller calls closePush with the result. Errors of these flags, and of an address that cannot
// be opened, are errors of usage. Rows that are received before the worker starts wait in their
// stream.
func listenPush(cmd *cobra.Command, conn *natsq.Conn, inputs *access.Memory, secrets *access.Store,
	metrics *command.Metrics, log *slog.Logger,
) (*push.Server, error) {
	f := cmd.Flags()
	o := push.Options{Memory: inputs, Secrets: secrets, Queue: conn.Streams, Logger: log, Metrics: metrics}
	o.Addr, _ = f.GetString("push-listen")
	o.Cert, _ = f.GetString("push-cert")
	o.Key, _ = f.GetString("push-key")
	o.MaxBody, _ = f.GetInt64("push-max-body")
	o.MaxRows, _ = f.GetInt("push-max-rows")
	list, _ := f.GetStringArray("push-token")
	// A token without an address is a mistake: rows would be refused and nobody would know why.
	if o.Addr == "" {
		if len(list) > 0 || o.Cert != "" || o.Key != "" {
			return nil, command.Usage("--push-token, --push-cert and --push-key are for --push-listen HOST:PORT")
		}
		return nil, nil
	}
	if o.MaxBody < 1 || o.MaxRows < 1 {
		return nil, command.Usage("--push-max-body %d, --push-max-rows %d: use 1 or more", o.MaxBody, o.MaxRows)
	}
	var err error
	if o.Tokens, err = push.ParseTokens(list); err != nil {
		return nil, command.Usage("%v", err)
	}
	push, err := push.Listen(o)
	if err != nil {
		return nil, command.Usage("%v", err)
	}
	return push, nil
}

// closePush ends the endpoint for pushed rows, if there is one. It accepts no new request, and
// gives those in progress 30 s to finish, so that a sender knows whether its rows are stored. A
// second call does nothing, so a deferred call may follow the one before the drain.
func closePush(p *push.Server) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p.Close(ctx)
}

// drain ends a worker: it takes no new job, and gives running jobs back to the queue within a
// minute. A stream job stops at a position in its log from which another agent continues. A job
// whose handler does not end in that time is given out again when its lease ends; its late writes
// are fenced off.
func drain(w *natsq.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return w.Drain(ctx)
}
