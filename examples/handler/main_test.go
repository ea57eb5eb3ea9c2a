package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestCelsius: the agent does its kind of job and ends when it is told to.
func TestCelsius(t *testing.T) {
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: srv.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	agent, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(agent, srv.URL()) }()
	for id, c := range map[string]struct {
		spec, output string
		code         jobs.Code
	}{"good": {`{"fahrenheit":[32,212]}`, `{"celsius":[0,100]}`, ""}, "bad": {`{}`, "", jobs.CodeInvalid}} {
		if err := conn.Queue.Submit(ctx, jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "celsius",
			Spec: json.RawMessage(c.spec),
		}); err != nil {
			t.Fatal(err)
		}
		r, err := conn.Results.Result(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Output) != c.output || r.Error != nil && r.Error.Code != c.code || r.Error == nil && c.code != "" {
			t.Errorf("%s: %s %+v", id, r.Output, r.Error)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
