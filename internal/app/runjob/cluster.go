package runjob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Cluster is a whole cluster in one process: a NATS server with its streams on disk, a GPU agent on
// the host device and a CPU agent. The server, the agents and the submitter have a connection each,
// as they would have as processes. Abort may be called from any goroutine; one goroutine calls
// Close.
type Cluster struct {
	conn    *natsq.Conn // of the submitter
	conns   []*natsq.Conn
	dir     string          // of the streams
	full    <-chan struct{} // closed when their disk is full
	closers []func() error  // in the order of the starts
	mute    atomic.Bool     // nothing more is logged
}

// ClusterOptions configure StartCluster.
type ClusterOptions struct {
	// DataDir is the folder for streams and temporary files, in which one cluster at a time works.
	// Empty: a temporary folder, which Close removes.
	DataDir string
	// Keep keeps the streams in DataDir, which is required, for the next cluster in it: swarms that
	// last, their logs and their snapshots, which are in the folder SnapshotsDir.
	Keep bool
	// Prepare is called with Keep when the server runs, before the agents start; nil for none.
	// StartCluster returns its error.
	Prepare func(ctx context.Context, c *natsq.Conn) error
	// Roots are the folders that sources and sinks may name.
	Roots map[files.Root]string
	// Egress lists the hosts and networks that sources and webhooks may reach.
	Egress []string
	// Secrets is the folder of secrets; empty for none.
	Secrets string
	// Log receives the log lines of server and agents. Required.
	Log *slog.Logger
	// Tracing provides the tracers; nil for none.
	Tracing trace.TracerProvider
}

// StartCluster starts the server and both agents, and limits the heap of the process to its memory.
// When a part does not start, it ends those before it. Wrong options are errors of usage. The
// caller ends the cluster with Close.
func StartCluster(ctx context.Context, o ClusterOptions) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	o.Log = slog.New(muted{o.Log.Handler(), &c.mute})
	dir, err := c.workDir(o.DataDir, o.Keep)
	if err != nil {
		return nil, err
	}
	c.dir = dir
	srv, err := server.Start(ctx, server.Options{Dir: filepath.Join(dir, "nats"), Port: server.InProcess})
	if err != nil {
		return nil, err
	}
	c.full = srv.Full()
	c.onClose(func() error { srv.Close(); return nil })
	connect := func(name string) (*natsq.Conn, error) {
		conn, err := natsq.Connect(ctx, natsconn.Options{InProcess: srv, Name: name, Logger: o.Log, Tracing: o.Tracing})
		if err == nil {
			c.conns = append(c.conns, conn)
			c.onClose(func() error { conn.Close(); return nil })
		}
		return conn, err
	}
	gpuConn, err := connect("gpuagent")
	if err != nil {
		return nil, err
	}
	cpuConn, err := connect("cpuagent")
	if err != nil {
		return nil, err
	}
	if c.conn, err = connect("exoswarm"); err != nil {
		return nil, err
	}
	total, inputs, err := memoryOf(o.Log)
	if err != nil {
		return nil, err
	}
	dev, err := host.Open(host.Options{
		MemoryLimit: total / 2, Logger: o.Log, Requested: "host",
		Reason: "a run in one process",
	})
	if err != nil {
		return nil, err
	}
	c.onClose(dev.Close)
	serving := gpuagents.Options{
		Name: "gpuagent", Device: dev, PageMemory: total / 8 * 3, Shared: true, Queue: gpuConn.Swarms, Logger: o.Log,
		Emissions:   gateway.NewEmissions(gpuConn.Conn),
		Submissions: gateway.NewSubmissions(gpuConn.Conn, gpuConn.Queue, gpuConn.Swarms),
		Tracing:     o.Tracing,
		CustomCells: true, // the user is the operator; the device says why it cannot compile one
	}
	if o.Keep {
		snapshots, err := bucket.Open(ctx, SnapshotsDir(o.DataDir))
		if err != nil {
			return nil, command.Usage("--data-dir: %v", err)
		}
		c.onClose(snapshots.Close)
		if o.Prepare != nil {
			if err := o.Prepare(ctx, c.conn); err != nil {
				return nil, err
			}
		}
		serving.Snapshots = snapshots
		serving.LeaseTTL = keptLease
	}
	agent, err := gpuagents.Start(serving)
	if err != nil {
		return nil, err
	}
	c.onClose(func() error { return drain(agent.Drain) })
	files, err := files.New(files.Options{Roots: o.Roots, Objects: cpuConn.Objects, Scratch: dir, Memory: inputs})
	if err != nil {
		return nil, err
	}
	c.onClose(files.Close)
	guard, err := access.NewGuard(o.Egress)
	if err != nil {
		return c, command.Usage("%v", err)
	}
	secrets, err := access.OpenSecrets(o.Secrets)
	if err != nil {
		return c, command.Usage("--secrets: %v", err)
	}
	c.onClose(secrets.Close)
	streamer, err := cpuagents.New(cpuagents.Options{
		Queue: cpuConn.StreamJobs(), Files: files, Logger: o.Log,
		Egress: guard, Secrets: secrets,
	})
	if err != nil {
		return nil, err
	}
	worker, err := cpuConn.Work(ctx, natsq.WorkerOptions{
		Name: "cpuagent", Pool: jobs.PoolCPU, Concurrency: 1, Logger: o.Log,
		Handlers: map[string]jobs.Handler{cpuagents.KindStream: alone(streamer.Handle)},
	})
	if err != nil {
		return nil, err
	}
	c.onClose(func() error { return drain(worker.Drain) })
	return c, nil
}

// keptLease is how long the shards of a process that was killed stay with it. It is short, since
// the lock of the folder says that the process is gone.
const keptLease = 2 * time.Second

// SnapshotsDir returns the folder of the snapshots of a cluster with ClusterOptions.Keep.
func SnapshotsDir(dataDir string) string { return filepath.Join(dataDir, "snapshots") }

// minMemory is the least memory of a cluster in bytes.
const minMemory = 512 << 20

// memoryOf limits the heap, and returns the bytes that the process may use, and the memory of
// sources. Half of the bytes are for the device.
func memoryOf(log *slog.Logger) (int64, *access.Memory, error) {
	l, err := memory.Detect(os.DirFS("/"))
	if err != nil { // of another system
		l.Bytes = 4 << 30
	}
	total := max(l.Bytes, minMemory)
	if !l.Container {
		total = max(total/4*3, minMemory)
	}
	command.LimitHeap(access.HeapLimit(total), log)
	inputs, err := access.NewMemory(max(total/2, minMemory), 1)
	return total, inputs, err
}

// alone wraps the handler of the only CPU agent: a job that it cannot do now is one that no other
// agent can do either, so the job fails with the reason.
func alone(h jobs.Handler) jobs.Handler {
	return func(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
		out, err := h(ctx, job, progress)
		if errors.Is(err, jobs.ErrUnfit) {
			err = jobs.Errorf(jobs.CodeIO, "%v", err)
		}
		return out, err
	}
}

func drain(fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return fn(ctx)
}

// workDir makes an empty folder for streams and temporary files. In a folder that the user named,
// it is a sub-folder that one process at a time holds by a lock. Files of an earlier process that
// was killed are removed, unless the cluster keeps them.
func (c *Cluster) workDir(dataDir string, keep bool) (string, error) {
	if dataDir == "" {
		dir, err := os.MkdirTemp("", "exoswarm-")
		if err != nil {
			return "", fmt.Errorf("temporary folder: %w: set --data-dir", err)
		}
		c.onClose(func() error { return os.RemoveAll(dir) })
		return dir, os.Mkdir(filepath.Join(dir, "nats"), 0o755)
	}
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return "", command.Usage("--data-dir: %v", err)
	}
	// Earlier versions lock a file of this name, too.
	lock, err := vfs.OS{}.Lock(filepath.Join(dataDir, "embedded.lock"))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return "", command.Usage("--data-dir %v: wait for it, or name another folder", err)
	case err != nil:
		return "", command.Usage("--data-dir: %v", err)
	}
	c.onClose(lock.Close)
	if keep {
		dir := filepath.Join(dataDir, "kept")
		return dir, errors.Join(os.MkdirAll(filepath.Join(dir, "nats"), 0o755),
			os.MkdirAll(SnapshotsDir(dataDir), 0o755))
	}
	dir := filepath.Join(dataDir, "embedded")
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	c.onClose(func() error { return os.RemoveAll(dir) })
	return dir, os.MkdirAll(filepath.Join(dir, "nats"), 0o755)
}

// muted is a log handler that drops all records once off is set.
type muted struct {
	slog.Handler
	off *atomic.Bool
}

// Enabled implements slog.Handler.
func (m muted) Enabled(ctx context.Context, l slog.Level) bool {
	return !m.off.Load() && m.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (m muted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return muted{m.Handler.WithAttrs(attrs), m.off}
}

// WithGroup implements slog.Handler.
func (m muted) WithGroup(name string) slog.Handler { return muted{m.Handler.WithGroup(name), m.off} }

// Conn returns the connection of the submitter, which the cluster closes.
func (c *Cluster) Conn() *natsq.Conn { return c.conn }

// Dir returns the folder of the streams and temporary files.
func (c *Cluster) Dir() string { return c.dir }

// Full is closed when the disk of the streams is full: the server answers nothing more, and the
// caller calls Abort.
func (c *Cluster) Full() <-chan struct{} { return c.full }

// Abort closes the connections, so that nothing waits for a server that does not answer, and ends
// the log: later complaints of the agents are only a consequence. The caller calls Close
// afterwards.
func (c *Cluster) Abort() {
	c.mute.Store(true)
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *Cluster) onClose(fn func() error) { c.closers = append(c.closers, fn) }

// Close ends everything in the reverse order of its start, and returns every error. The agents
// finish or give back their work within 30 seconds each. A second call does nothing.
func (c *Cluster) Close() error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	c.closers = nil
	return errors.Join(errs...)
}
