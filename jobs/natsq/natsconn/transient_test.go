package natsconn

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestTransient: what a cluster without a leader says is worth another try, in the words of both
// packages of the client. Watches of buckets go by the former one.
func TestTransient(t *testing.T) {
	for code, want := range map[int]bool{
		errCodeNotAvailable: true, errCodeNotLeader: true, ErrCodeNoPeers: true,
		errCodeNoResources: true, ErrCodeTooFast: true, errCodeInProcess: true, 10059: false,
	} {
		for _, err := range []error{
			&jetstream.APIError{Code: 503, ErrorCode: jetstream.ErrorCode(code)},
			&nats.APIError{Code: 503, ErrorCode: nats.ErrorCode(code)},
		} {
			if got := IsTransient(fmt.Errorf("watch: %w", err)); got != want {
				t.Errorf("transient(%T %d) = %t, want %t", err, code, got, want)
			}
		}
	}
}
