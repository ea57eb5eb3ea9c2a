package natsq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestAhead compares the messages that are read several at a time with messages that are read one
// by one, in a stream with any gaps and other subjects.
func TestAhead(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess, Fast: true})
	c := jobstest.Open(t, s, natsq.Connect)
	testkit.Checks(t, 20)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		name := fmt.Sprint("AHEAD", n)
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".*"}}
		stream, err := c.JS.CreateStream(t.Context(), config)
		if err != nil {
			r.Fatal(err)
		}
		all := rapid.IntRange(0, 150).Draw(r, "messages")
		for i := range all {
			subject := name + ".a"
			if rapid.IntRange(0, 9).Draw(r, "subject") == 0 {
				subject = name + ".b"
			}
			if _, err := c.JS.Publish(t.Context(), subject, []byte(fmt.Sprint(i))); err != nil {
				r.Fatal(err)
			}
		}
		for range rapid.IntRange(0, all/2).Draw(r, "removed") {
			_ = stream.DeleteMsg(t.Context(), rapid.Uint64Range(1, uint64(all)).Draw(r, "number")) // some are twice
		}
		ahead := natsconn.NewAhead(func(ctx context.Context, seq uint64) (*natsconn.Message, error) {
			return c.Next(ctx, name, name+".a", seq)
		})
		for seq := uint64(1); ; seq++ {
			want, werr := c.Next(t.Context(), name, name+".a", seq)
			got, err := ahead.Next(t.Context(), seq)
			if errors.Is(werr, jobs.ErrNotFound) && errors.Is(err, jobs.ErrNotFound) {
				return
			}
			if err != nil || werr != nil || got.Seq != want.Seq || string(got.Data) != string(want.Data) {
				r.Fatalf("from %d: %+v, %v; want %+v, %v", seq, got, err, want, werr)
			}
			seq = got.Seq
		}
	})
}
