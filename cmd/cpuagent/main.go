// Command cpuagent is a CPU agent process: it reads sources, feeds swarms, and writes what they
// decide.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/push"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
)

func main() { command.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cpuagent --nats URL",
		Short: "Do the I/O of swarms until SIGTERM",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd) },
	}
	f := cmd.Flags()
	command.AgentFlags(f, "cpuagent", "results and logs")
	f.String("data-dir", "", "folder for temporary files; the system's when empty")
	f.StringArray("root", nil, "NAME=DIR: a folder that jobs may read and write as file:NAME/..., or tenant=TENANT,"+
		"name=NAME,path=DIR; none by default")
	f.StringArray("egress", nil, "HOST, HOST:PORT, *.DOMAIN or NETWORK that jobs may reach, or tenant=TENANT,"+
		"host=HOST; none by default")
	f.StringArray("stream", nil, "tenant=TENANT,name=STREAM: a JetStream stream that jobs of a tenant may read and "+
		"publish to; none by default")
	f.String("secrets", "", "folder of the secrets that jobs may refer to as file:NAME, those of a tenant in a "+
		"folder of its name; env:NAME is the variable "+secret.Prefix+"NAME or "+secret.Prefix+"TENANT__NAME")
	f.StringArray("secret", nil, "name=NAME,host=HOST or tenant=TENANT,name=NAME,host=HOST: a secret that goes to "+
		"that host alone")
	f.Int64("max-unpacked", 64<<30, "most bytes that one packed source (.gz, .zst) may unpack to")
	f.String("push-listen", "", "HOST:PORT to take rows at, for sources at push:NAME; none by default. Any host but "+
		"a loopback address needs --push-token")
	f.StringArray("push-token", nil, "NAME=env:SECRET or NAME=file:SECRET: the bearer token that may push to NAME; "+
		"several of one name are all good")
	f.String("push-cert", "", "file with the certificate of --push-listen, in PEM")
	f.String("push-key", "", "file with the key of --push-cert")
	f.Int64("push-max-body", 16<<20, "most bytes of the body of a push, as it comes; up to 67108864")
	f.Int("push-max-rows", 1_000_000, "most rows of a push")
	f.Duration("object-grace", objects.Grace, "how long an object stays after its job is gone, with its result and "+
		"dead letter")
	f.Int("concurrency", 4, "jobs at a time")
	f.Duration("sweep", time.Minute, "how often to look for what ended runs have left, and to remove what was there "+
		"at the last look too; 0: never")
	command.MemoryFlag(f, "an eighth of what the machine has available")
	return cmd
}

// checkWall looks at this process before it does anything: a CPU agent must not be able to reach a
// GPU.
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

func serve(cmd *cobra.Command) (err error) {
	f := cmd.Flags()
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	if err := checkWall(log); err != nil {
		return err
	}
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
	if concurrency < 1 {
		return command.Usage("--concurrency %d: use 1 or more", concurrency)
	}
	limit, err := command.Memory(cmd, 1.0/8, 1<<30)
	if err != nil {
		return err
	}
	inputs, err := inputmem.New(limit, concurrency)
	if err != nil {
		return err
	}
	command.LimitHeap(inputmem.HeapLimit(limit), log)
	roots, err := files.ParseRoots(rootFlags)
	if err != nil {
		return command.Usage("%v", err)
	}
	allow, _ := f.GetStringArray("egress")
	guard, err := egress.New(allow)
	if err != nil {
		return command.Usage("%v", err)
	}
	secretDir, _ := f.GetString("secrets")
	secrets, err := secret.Open(secretDir)
	if err != nil {
		return command.Usage("--secrets: %v", err)
	}
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
	if data != "" {
		if err := os.MkdirAll(data, 0o755); err != nil {
			return command.Usage("--data-dir: %v", err)
		}
	}
	process, err := command.NewAgentProcess(cmd, log)
	if err != nil {
		return err
	}
	defer process.Close()
	metrics := process.Metrics
	metrics.Require("isolation", command.NewHoldings("/proc/self").GPUFree)
	counts, err := natsq.NewMetrics(metrics)
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
	watching, unwatch := context.WithCancel(context.WithoutCancel(cmd.Context()))
	var watch sync.WaitGroup
	watch.Go(func() { files.WatchScratch(watching, log) })
	defer watch.Wait()
	defer unwatch()
	metrics.Require("scratch", func(context.Context) error { return files.Ready() })
	if err := metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "exoswarm", Subsystem: "cpuagent", Name: "scratch_usable", Help: "1 while the scratch folder can " +
			"be used, 0 while it cannot and no job is taken.",
	}, func() float64 {
		if files.Ready() != nil {
			return 0
		}
		return 1
	})); err != nil {
		return err
	}
	push, err := listenPush(cmd, conn, inputs, secrets, metrics, log)
	if err != nil {
		return err
	}
	defer closePush(push)
	streamer, err := cpuagents.New(cpuagents.Options{
		Queue: conn.StreamJobs(), Files: files, Logger: log, Egress: guard,
		Secrets: secrets, Streams: streams,
	})
	if err != nil {
		return err
	}
	worker, err := conn.Work(cmd.Context(), natsq.WorkerOptions{
		Name: process.Name, Pool: jobs.PoolCPU, Concurrency: concurrency, Ready: files.Ready, Metrics: counts, Logger: log,
		Handlers: map[string]jobs.Handler{cpuagents.KindStream: streamer.Handle},
	})
	if err != nil {
		return err
	}
	ctx := process.Context()
	var sweeping sync.WaitGroup
	defer func() { process.End(nil); sweeping.Wait() }()
	sweeping.Go(func() { conn.Objects.KeepObjects(ctx, grace, log) })
	if err := process.Announce(func() jobs.Agent {
		a := jobs.Agent{
			Pool: jobs.PoolCPU, Kinds: []string{cpuagents.KindStream}, Concurrency: concurrency,
			Running: worker.Running(), State: "serving",
		}
		if state := files.DescribeScratch(); state != "" {
			a.State = state
		}
		return a
	}); err != nil {
		return errors.Join(err, drain(worker))
	}
	gateway, err := conn.Serve(log)
	if err != nil {
		leave(process)
		return errors.Join(err, drain(worker))
	}
	if sweep, _ := cmd.Flags().GetDuration("sweep"); sweep > 0 {
		sweeping.Go(func() { conn.Swarms.SweepOrphans(ctx, sweep, log) })
	}
	log.Info("cpuagent is ready", "name", process.Name, "nats", process.URL(), "memory", limit)

	if refused := process.Wait(); refused != nil {
		defer func() { err = errors.Join(refused, err) }()
	}
	closePush(push)
	gateway.Close()
	err = drain(worker)
	leave(process)
	return err
}

// leave removes the agent from the registry, or leaves it to the registry after 5 s.
func leave(p *command.AgentProcess) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.Leave(ctx)
}

// listenPush starts the push endpoint, where there is to be one.
func listenPush(cmd *cobra.Command, conn *natsq.Conn, inputs *inputmem.Memory, secrets *secret.Store,
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

// closePush lets pushes under way finish.
func closePush(p *push.Server) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p.Close(ctx)
}

// drain gives the agent's jobs back to the queue.
func drain(w *natsq.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return w.Drain(ctx)
}
