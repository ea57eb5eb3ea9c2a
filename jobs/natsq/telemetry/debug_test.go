package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// TestDocument: a document larger than a message comes whole, an error of the agent is the asker's,
// a second one at a time is refused, and an agent that is not there is named.
func TestDocument(t *testing.T) {
	s, c := jobstest.InProcess(t, natsq.Connect)
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	hold := make(chan struct{})
	held := make(chan struct{}, 1)
	stop, err := jobstest.Open(t, s, natsq.Connect).Telemetry.AnswerDebug("host.a-1",
		func(ctx context.Context, what string, seconds int) ([]byte, error) {
			switch what {
			case "large":
				return large, nil
			case "endless":
				return make([]byte, telemetry.MaxDocument+7), nil
			case "empty":
				return nil, nil
			case "slow":
				held <- struct{}{}
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return []byte("slow"), ctx.Err()
			}
			return nil, errors.New("there is no document " + what)
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []byte
	for got == nil { // the server may hear of the subscription later
		if got, err = c.Telemetry.Document(ctx, "host.a-1", "large", 0); err != nil &&
			!errors.Is(err, jobs.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, large) {
		t.Errorf("%d bytes came of %d", len(got), len(large))
	}
	if got, err := c.Telemetry.Document(ctx, "host.a-1", "endless", 0); err != nil ||
		len(got) != telemetry.MaxDocument {
		t.Errorf("%d bytes, %v, want the first %d", len(got), err, telemetry.MaxDocument)
	}
	if got, err := c.Telemetry.Document(ctx, "host.a-1", "empty", 0); err != nil || len(got) != 0 {
		t.Errorf("%d bytes, %v, want none", len(got), err)
	}
	if _, err := c.Telemetry.Document(ctx, "host.a-1", "other", 0); err == nil ||
		!strings.Contains(err.Error(), "no document other") {
		t.Errorf("%v, want the agent's error", err)
	}
	if _, err := c.Telemetry.Document(ctx, "b", "large", 0); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("%v, want %v", err, jobs.ErrNotFound)
	}
	slow := make(chan error, 1)
	go func() {
		_, err := c.Telemetry.Document(ctx, "host.a-1", "slow", 5)
		slow <- err
	}()
	<-held
	if _, err := c.Telemetry.Document(ctx, "host.a-1", "large", 0); !errors.Is(err, telemetry.ErrBusy) {
		t.Errorf("a second document at a time: %v, want %v", err, telemetry.ErrBusy)
	}
	close(hold)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	stop()
}
