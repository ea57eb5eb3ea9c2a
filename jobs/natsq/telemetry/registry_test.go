package telemetry

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestAgentKey: the key of an agent is an id, and keeps the end of its name.
func TestAgentKey(t *testing.T) {
	long := "23456789" + strings.Repeat("0123456789", 5) + "0123" // with what follows 64 bytes
	for name, want := range map[string]string{
		"host.example-1":   "host_example-1",
		"a":                "a",
		"01" + long + ".x": long + "_x",
	} {
		if got := AgentKey(name); got != want || jobs.CheckID("key", got) != nil {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// FuzzRecord: a record of an agent that another program wrote is of this version, or has the name
// of its key.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"a","pool":"cpu","kinds":["k"],"running":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a := readAgent("a", data); a.Version != jobs.Version && a.Name != "a" {
			t.Fatalf("%+v", a)
		}
	})
}
