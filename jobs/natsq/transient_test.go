package natsq

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestTransient: what a cluster without a leader says is worth another try, in the words of both
// packages of the client. Watches of buckets go by the former one.
func TestTransient(t *testing.T) {
	for code, want := range map[int]bool{errCodeNotAvailable: true, errCodeNotLeader: true, errCodeNoPeers: true, errCodeNoResources: true, 10059: false} {
		for _, err := range []error{
			&jetstream.APIError{Code: 503, ErrorCode: jetstream.ErrorCode(code)},
			&nats.APIError{Code: 503, ErrorCode: nats.ErrorCode(code)},
		} {
			if got := transient(fmt.Errorf("watch: %w", err)); got != want {
				t.Errorf("transient(%T %d) = %t, want %t", err, code, got, want)
			}
		}
	}
}

// TestTooFewServers: only a cluster that lacks servers refuses replicas for good. One with a server that is away, or without a leader for the
// moment, is asked again.
func TestTooFewServers(t *testing.T) {
	for _, c := range []struct {
		code  jetstream.ErrorCode
		text  string
		after time.Duration
		want  bool
	}{
		{errCodeNoCluster, "replicas > 1 not supported in non-clustered mode", 0, true},
		{errCodeNoPeers, "no suitable peers for placement", time.Minute, true},
		{errCodeNoPeers, "no suitable peers for placement", time.Second, false},
		{errCodeNoPeers, "no suitable peers for placement, peer offline", time.Minute, false},
		{errCodeNoPeers, "no suitable peers for placement, peer offline, insufficient storage", time.Minute, false},
		{errCodeNotAvailable, "JetStream system temporarily unavailable", time.Minute, false},
	} {
		err := fmt.Errorf("create: %w", &jetstream.APIError{ErrorCode: c.code, Description: c.text})
		if got := tooFewServers(err, c.after); got != c.want {
			t.Errorf("tooFewServers(%d %s, %v) = %v, want %v", c.code, c.text, c.after, got, c.want)
		}
	}
}
