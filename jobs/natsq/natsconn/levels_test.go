package natsconn

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestTooFewServers: only a cluster that lacks servers refuses replicas for good. One with a server
// that is away, or without a leader for the moment, is asked again.
func TestTooFewServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code  jetstream.ErrorCode
		text  string
		after time.Duration
		want  bool
	}{
		{errCodeNoCluster, "replicas > 1 not supported in non-clustered mode", 0, true},
		{ErrCodeNoPeers, "no suitable peers for placement", time.Minute, true},
		{ErrCodeNoPeers, "no suitable peers for placement", time.Second, false},
		{ErrCodeNoPeers, "no suitable peers for placement, peer offline", time.Minute, false},
		{
			ErrCodeNoPeers, "no suitable peers for placement, peer offline, insufficient storage", time.Minute,
			false,
		},
		{10008, "JetStream system temporarily unavailable", time.Minute, false},
	} {
		err := fmt.Errorf("create: %w", &jetstream.APIError{ErrorCode: c.code, Description: c.text})
		if got := TooFewServers(err, c.after); got != c.want {
			t.Errorf("TooFewServers(%d %s, %v) = %v, want %v", c.code, c.text, c.after, got, c.want)
		}
	}
}
