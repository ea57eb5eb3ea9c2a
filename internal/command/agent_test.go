package command

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// agent returns the process of an agent at a server, connected.
func agent(t *testing.T, url string) (*AgentProcess, error) {
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
	return p, p.Connect("test")
}

// TestOtherVersion: an agent does not start beside one that speaks another version of the protocol,
// and says which one. Beside one of its own it does.
func TestOtherVersion(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
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
