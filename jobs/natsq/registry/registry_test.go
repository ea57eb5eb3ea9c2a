package registry

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/jobs"
)

func TestMain(m *testing.M) { leak.Check(m) }

// TestAgentKey: the key of an agent is an id, and keeps the end of its name.
func TestAgentKey(t *testing.T) {
	for name, want := range map[string]string{
		"host.example-1": "host_example-1",
		"a":              "a",
		"0123456789012345678901234567890123456789012345678901234567890123.x": "23456789012345678901234567890123456789012345678901234567890123_x", //nolint:lll // 64 bytes each
	} {
		if got := agentKey(name); got != want || jobs.CheckID("key", got) != nil {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// FuzzRecord: a record of an agent that somebody else wrote is of this version, or has the name of
// its key.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"a","pool":"cpu","kinds":["k"],"running":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a := readAgent("a", data); a.Version != jobs.Version && a.Name != "a" {
			t.Fatalf("%+v", a)
		}
	})
}
