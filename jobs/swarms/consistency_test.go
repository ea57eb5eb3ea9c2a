package swarms

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestConsistency: a spec says how its logs are kept, and what no server can give is refused with
// the cure.
func TestConsistency(t *testing.T) {
	for spec, want := range map[string]string{
		`{"name":"x"}`:                         "",
		`{"replicas":3}`:                       "",
		`{"replicas":1,"durability":"fast"}`:   "",
		`{"durability":"fast"}`:                "",
		`{"replicas":5,"durability":"synced"}`: "",
		`{"replicas":2}`:                       "replicas 2: use 1, 3 or 5",
		`{"replicas":-1}`:                      "replicas -1: use 1, 3 or 5",
		`{"durability":"quick"}`:               `durability "quick": use synced or fast`,
		`{"replicas":3,"durability":"fast"}`: "durability fast with 3 replicas: the NATS server syncs replicated " +
			"streams as it was started",
		`{"replicas":"3"}`: "spec: json: cannot unmarshal string",
	} {
		_, err := ConsistencyOf(json.RawMessage(spec))
		var refused *jobs.Error
		switch {
		case want == "" && err == nil:
		case want == "" || !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
			!strings.HasPrefix(refused.Message, want):
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}
