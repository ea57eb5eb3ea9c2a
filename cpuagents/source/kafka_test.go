package source

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// refused checks that an error has a text; none for an empty one.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// TestKafkaRefuses: what is no topic, may not be reached, has no end, or cannot authenticate.
func TestKafkaRefuses(t *testing.T) {
	const ok = "kafka://127.0.0.1:9092/t"
	for uri, one := range map[string]struct {
		spec *KafkaSpec
		want string
	}{
		ok:                              {&KafkaSpec{Messages: 1}, ""},
		"kafka://127.0.0.1:9092/end":    {&KafkaSpec{}, "it has no end"},
		"kafka://127.0.0.1:9092/":       {&KafkaSpec{Messages: 1}, "use letters, digits"},
		"kafka://127.0.0.1:9092/a/b":    {&KafkaSpec{Messages: 1}, "use letters, digits"},
		"kafka:///t":                    {&KafkaSpec{Messages: 1}, "write kafka://HOST:PORT/TOPIC"},
		"kafka://u:p@127.0.0.1:9092/t":  {&KafkaSpec{Messages: 1}, "write kafka://HOST:PORT/TOPIC"},
		"kafka://10.0.0.1:9092/t":       {&KafkaSpec{Messages: 1}, access.ErrHost.Error()},
		"kafka://127.0.0.1:9092/tls":    {&KafkaSpec{Messages: 1, TLS: "no"}, "use verify or disable"},
		"kafka://127.0.0.1:9092/sasl":   {&KafkaSpec{Messages: 1, User: "u"}, "need sasl"},
		"kafka://127.0.0.1:9092/secret": {&KafkaSpec{Messages: 1, SASL: "plain", Password: "env:NONE"}, "NONE"},
		"kafka://127.0.0.1:9092/batch":  {&KafkaSpec{Messages: 1, BatchMessages: 20_000}, "use 1 to 10000"},
	} {
		_, err := newKafkaFetcher(uri, "", one.spec, Resources{Egress: fixture.Loopback(t)})
		refused(t, uri, err, one.want)
	}
	if _, err := newKafkaFetcher("kafka://127.0.0.1:9092/end", "", nil,
		Resources{Egress: fixture.Loopback(t), Endless: true}); err != nil {
		t.Errorf("without an end: %v", err)
	}
}
