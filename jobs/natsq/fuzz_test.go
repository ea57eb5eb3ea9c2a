package natsq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// FuzzWorker: every message in a queue ends with a result, and with a dead letter if it failed. The
// worker continues. ID in the message stands for the job's id.
func FuzzWorker(f *testing.F) {
	const object = `{"name":"n","sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":`
	for _, data := range []string{
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec":1}`,
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec":1,"max_attempts":100,"result_ttl_s":1,` +
			`"not_before":"9999-12-31T23:59:59Z","after":["ID"]}`,
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec":1,"deadline":"0001-01-01T00:00:01Z"}`,
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec_ref":` + object + `67108864}}`,
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec_ref":` + object + `0}}`,
		`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec_ref":` + strings.Replace(object, `"n"`, `"\u0000 .>*/"`, 1) +
			`9}}`,
		`{"v":2,"id":"ID"}`, `{"v":1e400}`, `{"v":1,"id":"ID","pool":"cpu","kind":"k","spec":"\ud800"}`, `null`, ``,
		"\xff\x00",
		strings.Repeat(`{"a":[`, 40) + strings.Repeat(`]}`, 40), strings.Repeat("[", 100_000),
		`{"v":1,"id":"ID","id":"other","pool":"cpu","pool":"gpu","kind":"k","spec":1}`,
	} {
		f.Add([]byte(data), "1", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	}
	f.Add([]byte(`{"v":1,"id":"ID","pool":"cpu","kind":"k","spec":1}`), "99999999999999999999",
		strings.Repeat("0", 10_000))
	_, c := jobstest.InProcess(f, Connect)
	w, err := c.Work(f.Context(), WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Concurrency: 4,
		Logger: slog.New(slog.DiscardHandler), Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return 1, nil },
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(w.Stop)
	var n atomic.Int64
	f.Fuzz(func(t *testing.T, data []byte, forgiven, trace string) {
		if len(data) > jobs.MaxMessage/2 || len(forgiven)+len(trace) > 32<<10 ||
			strings.ContainsAny(forgiven+trace, "\r\n") {
			return // the server, or the client, refuses it
		}
		// less than a minute of fuzzing, which else would end before it is seen
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		id := fmt.Sprint("fuzz", n.Add(1))
		m := &nats.Msg{
			Subject: wire.Source{Pool: jobs.PoolCPU, Kind: "k", Lane: jobs.Normal, Tenant: "default"}.Job(id),
			Data:    bytes.ReplaceAll(data, []byte("ID"), []byte(id)),
			Header:  nats.Header{queue.HeaderForgiven: {forgiven}, jobs.HeaderTraceparent: {trace}},
		}
		if err := c.PublishMsg(ctx, c.RetryIdempotent, "queue it", m); err != nil {
			t.Skip(err)
		}
		r, err := c.Results.Result(ctx, id)
		if err != nil {
			t.Fatalf("%q stalls: %v", m.Data, err)
		}
		if !queue.NeedsLetter(r, false) {
			return
		}
		letters := 0
		err = c.Letters.List(ctx, jobs.DeadFilter{ID: id}, func(d jobs.DeadLetter) bool {
			if letters++; !bytes.Equal(d.Data, m.Data) || d.Reason.Code != r.Error.Code {
				t.Errorf("%+v, want %q with %v", d, m.Data, r.Error)
			}
			return true
		})
		if err == nil && letters == 0 {
			// It is stored behind the result.
			for err == nil && letters == 0 {
				_, err = c.Last(ctx, wire.DeadStream, "exo.dead.*.*.*."+id)
				if err == nil {
					letters++
				} else if errors.Is(err, jobs.ErrNotFound) {
					err = ctx.Err()
				}
			}
		}
		if err != nil || letters != 1 {
			t.Fatalf("%d dead letters of %q: %v", letters, m.Data, err)
		}
	})
}
