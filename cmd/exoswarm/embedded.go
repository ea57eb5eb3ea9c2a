package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/memory"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// embedded is a whole cluster in this process: a NATS server with its streams on disk, a GPU agent
// and a CPU agent, each with a connection of its own, as they would have from processes of their
// own.
type embedded struct {
	conn    *natsq.Conn // the submitter's
	conns   []*natsq.Conn
	dir     string          // of the streams
	full    <-chan struct{} // their disk is full
	closers []func() error
	mute    atomic.Bool // no more log
}

// embeddedOptions configure startEmbedded.
type embeddedOptions struct {
	dataDir string // empty: a temporary folder that goes with the process
	roots   map[files.Root]string
	egress  []string // what sources and webhooks may reach
	secrets string   // folder; may be empty
	log     *slog.Logger
	tracing trace.TracerProvider // nil for none
}

// startEmbedded starts everything, or nothing and says why.
func startEmbedded(ctx context.Context, o embeddedOptions) (e *embedded, err error) {
	e = &embedded{}
	o.log = slog.New(muted{o.log.Handler(), &e.mute})
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	dir, err := e.workDir(o.dataDir)
	if err != nil {
		return e, err
	}
	e.dir = dir
	srv, err := server.Start(ctx, server.Options{Dir: filepath.Join(dir, "nats"), Port: server.InProcess})
	if err != nil {
		return e, err
	}
	e.full = srv.Full()
	e.onClose(func() error { srv.Close(); return nil })
	connect := func(name string) (*natsq.Conn, error) {
		c, err := natsq.Connect(ctx, natsconn.Options{InProcess: srv, Name: name, Logger: o.log, Tracing: o.tracing})
		if err == nil {
			e.conns = append(e.conns, c)
			e.onClose(func() error { c.Close(); return nil })
		}
		return c, err
	}
	gpuConn, err := connect("gpuagent")
	if err != nil {
		return e, err
	}
	cpuConn, err := connect("cpuagent")
	if err != nil {
		return e, err
	}
	if e.conn, err = connect("exoswarm"); err != nil {
		return e, err
	}
	total, inputs, err := embeddedMemory(o.log)
	if err != nil {
		return e, err
	}
	dev, err := host.Open(host.Options{
		MemoryLimit: total / 2, Logger: o.log, Requested: "host",
		Reason: "a run in one process",
	})
	if err != nil {
		return e, err
	}
	e.onClose(dev.Close)
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpuagent", Device: dev, PageMemory: total / 8 * 3, Shared: true, Queue: gpuConn.Swarms, Logger: o.log,
		Tracing:     o.tracing,
		CustomCells: true, // the user is the operator; the device says why it cannot compile one
	})
	if err != nil {
		return e, err
	}
	e.onClose(func() error { return drain(agent.Drain) })
	files, err := files.New(files.Options{Roots: o.roots, Objects: cpuConn.Objects, Scratch: dir, Memory: inputs})
	if err != nil {
		return e, err
	}
	e.onClose(files.Close)
	guard, err := egress.New(o.egress)
	if err != nil {
		return e, command.Usage("%v", err)
	}
	secrets, err := secret.Open(o.secrets)
	if err != nil {
		return e, command.Usage("--secrets: %v", err)
	}
	e.onClose(secrets.Close)
	streamer, err := cpuagents.New(cpuagents.Options{
		Queue: cpuConn.StreamJobs(), Files: files, Logger: o.log,
		Egress: guard, Secrets: secrets,
	})
	if err != nil {
		return e, err
	}
	worker, err := cpuConn.Work(ctx, natsq.WorkerOptions{
		Name: "cpuagent", Pool: jobs.PoolCPU, Concurrency: 1, Logger: o.log,
		Handlers: map[string]jobs.Handler{cpuagents.KindStream: alone(streamer.Handle)},
	})
	if err != nil {
		return e, err
	}
	e.onClose(func() error { return drain(worker.Drain) })
	return e, nil
}

// leastEmbedded is the least memory of a process with all agents in it, in bytes.
const leastEmbedded = 512 << 20

// embeddedMemory limits the heap, and returns the bytes that the process may use and the part of
// its sources. Half of the bytes are the device's.
func embeddedMemory(log *slog.Logger) (int64, *inputmem.Memory, error) {
	l, err := memory.Detect(os.DirFS("/"))
	if err != nil { // of another system
		l.Bytes = 4 << 30
	}
	total := max(l.Bytes, leastEmbedded)
	if !l.Container {
		total = max(total/4*3, leastEmbedded)
	}
	command.LimitHeap(inputmem.HeapLimit(total), log)
	inputs, err := inputmem.New(max(total/2, leastEmbedded), 1)
	return total, inputs, err
}

// alone makes a handler of the only agent there is: what it cannot do now, no other agent can do,
// so the job fails with the reason.
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

// workDir makes the folder for streams and temporary files, empty. In a folder that the user named,
// it is a sub-folder that one process at a time holds by a lock; what an earlier process left in
// it, killed in the middle, is thrown away.
func (e *embedded) workDir(dataDir string) (string, error) {
	if dataDir == "" {
		dir, err := os.MkdirTemp("", "exoswarm-")
		if err != nil {
			return "", fmt.Errorf("temporary folder: %w: set --data-dir", err)
		}
		e.onClose(func() error { return os.RemoveAll(dir) })
		return dir, os.Mkdir(filepath.Join(dir, "nats"), 0o755)
	}
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return "", command.Usage("--data-dir: %v", err)
	}
	lock, err := os.OpenFile(filepath.Join(dataDir, "embedded.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", command.Usage("--data-dir: %v", err)
	}
	e.onClose(lock.Close)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", command.Usage("--data-dir %s: another run is using it: wait for it or name another folder", dataDir)
	}
	dir := filepath.Join(dataDir, "embedded")
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	e.onClose(func() error { return os.RemoveAll(dir) })
	return dir, os.MkdirAll(filepath.Join(dir, "nats"), 0o755)
}

// muted is a log that can be cut off.
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

// abort cuts the connections, so that nothing waits any more for a server that does not answer;
// close comes after it. What the agents then complain of is only its consequence, so the log ends
// here.
func (e *embedded) abort() {
	e.mute.Store(true)
	for _, c := range e.conns {
		c.Close()
	}
}

func (e *embedded) onClose(fn func() error) { e.closers = append(e.closers, fn) }

// close ends everything in the opposite order of its start and keeps every error. A second call
// does nothing.
func (e *embedded) close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i]())
	}
	e.closers = nil
	return errors.Join(errs...)
}
