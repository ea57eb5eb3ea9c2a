package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// AgentFlags adds the flags that the processes of agents have in common: for the connection, the
// name, metrics and the log. The default name starts with kind; uses says where the name appears.
func AgentFlags(f *pflag.FlagSet, kind, uses string) {
	NATSFlags(f, false)
	f.Int("replicas", 1, "replicas of the streams: 3 in a NATS cluster")
	f.String("name", AgentName(kind), "name of this agent in "+uses)
	MetricsFlag(f)
	LogFlags(f)
}

// AgentProcess is the process of an agent, from its metrics to its last heartbeat. The order of the
// calls is NewAgentProcess, Connect, Announce, Wait, Leave and Close; Close alone is enough after
// an error. One goroutine makes them.
type AgentProcess struct {
	Name    string
	Log     *slog.Logger
	Metrics *Metrics
	// Tracing and Conn are nil before Connect.
	Tracing *Tracing
	Conn    *natsq.Conn

	cmd     *cobra.Command
	service *Service
	// describe takes the locks of the agent, so the watchdog calls it too.
	describe func() jobs.Agent
	// ctx ends when the process must drain; Context hands it out.
	ctx   context.Context //nolint:containedctx // the process has one, as cobra.Command has
	end   context.CancelCauseFunc
	entry *telemetry.Announcement
	// silent ends the answers to questions of operators; nil before Announce.
	silent []func()
}

// NewAgentProcess reads the flags of AgentFlags, and serves the metrics. The caller adds its checks
// to the metrics before Connect, which may wait for a server.
func NewAgentProcess(cmd *cobra.Command, log *slog.Logger) (*AgentProcess, error) {
	name, _ := cmd.Flags().GetString("name")
	if strings.HasPrefix(name, "-") {
		return nil, Usage("--name %s: a name with a first '-' looks like a flag: choose another one", name)
	}
	m, err := NewMetrics(cmd, log)
	if err != nil {
		return nil, err
	}
	p := &AgentProcess{Name: name, Log: log, Metrics: m, cmd: cmd, service: NewService(log)}
	p.ctx, p.end = context.WithCancelCause(cmd.Context())
	return p, nil
}

// Connect reads the variables of traces, and connects to the server, for which it waits. service is
// the name of the process in traces.
func (p *AgentProcess) Connect(service string) (err error) {
	if p.Tracing, err = NewTracing(p.cmd.Context(), service, p.Name, p.Log); err != nil {
		return err
	}
	o := natsconn.Options{
		Name: p.Name, Logger: p.Log, Tracing: p.Tracing.Provider(), Siblings: min(3, runtime.GOMAXPROCS(0)/4),
	}
	o.URL, o.Login = NATS(p.cmd)
	o.Replicas, _ = p.cmd.Flags().GetInt("replicas")
	if p.Conn, err = Connect(p.cmd, o, p.Metrics, p.service); err != nil {
		return err
	}
	return p.alike()
}

// alike returns an error if an agent of another version of the protocol is in the cluster. Each of
// the two would end jobs and entries of the other as failed. Programs of different versions with
// the same protocol work at the same time.
func (p *AgentProcess) alike() error {
	all, err := p.Conn.Registry.Agents(p.cmd.Context())
	if err != nil {
		return fmt.Errorf("look for agents of other versions: %w", err)
	}
	for _, a := range all {
		if a.State == telemetry.OtherVersion {
			return jobs.Errorf(jobs.CodeVersion, "agent %s in this cluster speaks another version of the protocol "+
				"than this program, which speaks %d: end the older agents before the newer ones start", a.Name,
				jobs.Version)
		}
	}
	return nil
}

// URL returns the address of the server without a password, for the log. It is the address in the
// flags: the server may have named other servers of its cluster.
func (p *AgentProcess) URL() string {
	url, _ := NATS(p.cmd)
	return natsconn.Redact(url)
}

// Context returns the context of the work. It ends when the process must drain, or with End.
func (p *AgentProcess) Context() context.Context { return p.ctx }

// End ends the context of the work. The first cause is the one that the log shows.
func (p *AgentProcess) End(cause error) { p.end(cause) }

// Announce puts the agent into the registry, where heartbeats keep it until Leave. describe is
// called for every heartbeat, in a goroutine of its own; Announce sets the version, the name and
// the time of the start, and the state while the agent drains.
func (p *AgentProcess) Announce(describe func() jobs.Agent) (err error) {
	started := time.Now().UTC()
	p.describe = describe
	p.entry, err = p.Conn.Registry.Announce(p.cmd.Context(), func() jobs.Agent {
		a := describe()
		a.Name, a.Started = p.Name, started
		if p.ctx.Err() != nil {
			a.State = "draining"
		}
		return a
	}, p.Log)
	if err != nil {
		return err
	}
	silent, err := p.Conn.Telemetry.Answer(p.Name, p.Metrics.Samples)
	if err != nil {
		p.Leave()
		return err
	}
	p.silent = append(p.silent, silent)
	silent, err = p.Conn.Telemetry.AnswerDebug(p.Name, func(ctx context.Context, what string, seconds int) ([]byte,
		error,
	) {
		return p.Metrics.Document(ctx, p.cmd, what, seconds)
	})
	if err != nil {
		p.Leave()
		return err
	}
	p.silent = append(p.silent, silent)
	return nil
}

// Wait reports to the service manager that the agent serves, and returns when it must drain: after
// a signal, the request of an operator, or End. The process is not ready from then on. The error is
// the reason when the server refuses the login of the agent; the caller drains all the same, and
// returns it.
func (p *AgentProcess) Wait() (refused error) {
	p.service.Ready(func() { p.describe() })
	select {
	case <-p.ctx.Done():
	case <-p.entry.Drained():
		p.end(errors.New("an operator asked for it"))
	case <-p.Conn.Refused():
		refused = fmt.Errorf("the NATS server does not let this agent in any more: its credentials expired or were "+
			"revoked (exoswarm auth user add): %w", jobs.ErrDenied)
		p.end(refused)
	}
	p.Log.Info("draining", "reason", context.Cause(p.ctx))
	p.service.Stopping(context.Cause(p.ctx))
	p.Metrics.Require("drain", func(context.Context) error {
		return fmt.Errorf("this agent drains: %w", context.Cause(p.ctx))
	})
	return refused
}

// Leave removes the agent from the registry. It gives up after 5 s, and the record ends with its
// heartbeats: a server whose disk is full answers no sooner. The context of the command has ended
// by then, so it does not bound the call.
func (p *AgentProcess) Leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.entry.Close(ctx); err != nil {
		p.Log.Warn("the registry forgets this agent by itself", "error", err)
	}
}

// Close ends the context of the work, the connection, the traces and the metrics.
func (p *AgentProcess) Close() {
	p.end(nil)
	for _, silent := range p.silent {
		silent()
	}
	if p.Conn != nil {
		p.Conn.Close()
	}
	if p.Tracing != nil {
		p.Tracing.Close()
	}
	p.Metrics.Close()
	p.service.Close()
}
