package command

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// agent returns the process of an agent at a server, connected.
func agent(t *testing.T, url string) (*AgentProcess, error) {
	t.Helper()
	p := newAgent(t, url)
	return p, p.Connect("test")
}

// newAgent returns the process of an agent before Connect.
func newAgent(t *testing.T, url string) *AgentProcess {
	t.Helper()
	cmd := &cobra.Command{Use: "cpuagent"}
	AgentFlags(cmd.Flags(), "cpuagent", "tests")
	cmd.SetContext(t.Context())
	if err := cmd.ParseFlags([]string{"--nats", url, "--name", "new"}); err != nil {
		t.Fatal(err)
	}
	p, err := NewAgentProcess(cmd, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNoStreams: an agent that starts before the streams are made waits for them, and its readiness
// says who makes them.
func TestNoStreams(t *testing.T) {
	f, err := auth.Open(filepath.Join(t.TempDir(), "auth"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Apply(auth.Options{}); err != nil {
		t.Fatal(err)
	}
	s := jobstest.Start(t, server.Options{Auth: f.ConfigFile()})
	t.Setenv("NATS_CREDS", f.CredsFile(auth.Agent))
	p := newAgent(t, s.URL())
	defer p.Close()
	connected := make(chan error, 1)
	go func() { connected <- p.Connect("test") }()
	testkit.Until(t, "a readiness that says who makes the streams", func() bool {
		err := p.Metrics.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "an operator makes them with exoswarm init --yes")
	})
	operator, err := natsq.Connect(t.Context(), natsconn.Options{
		URL: s.URL(), Login: natsconn.Login{Credentials: f.CredsFile(auth.Operator)},
	})
	if err != nil {
		t.Fatal(err)
	}
	operator.Close()
	select {
	case err := <-connected:
		if err != nil {
			t.Errorf("connect after the streams were made: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the agent still waits for streams that are there")
	}
}

// TestOtherVersion: an agent does not start in a cluster whose agents speak another version of the
// protocol, and says which version. With agents of its version it does.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	p, err := agent(t, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "EXO_AGENTS")
	if err != nil {
		t.Fatal(err)
	}
	for version, fails := range map[int]bool{jobs.Version: false, jobs.Version + 1: true} {
		record, err := json.Marshal(jobs.Agent{Version: version, Name: "old", Pool: jobs.PoolCPU})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "old", record); err != nil {
			t.Fatal(err)
		}
		other, err := agent(t, s.URL())
		other.Close()
		var e *jobs.Error
		if fails != (err != nil) || fails && (!errors.As(err, &e) || e.Code != jobs.CodeVersion ||
			!strings.Contains(err.Error(), "agent old in this cluster speaks another version")) {
			t.Errorf("beside an agent of version %d: error %v", version, err)
		}
	}
}
