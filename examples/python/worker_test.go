// Package python tests the worker in Python against a queue as the agents in Go use it.
package python

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestWorker: jobs of every lane are done, a job that cannot be done leaves a result with a reason
// and a dead letter, and the worker ends when it is told to.
func TestWorker(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
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
	submit := func(id string, change func(*jobs.Job)) {
		t.Helper()
		j := jobs.Job{
			Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "words",
			Spec: json.RawMessage(`{"text":"a b A"}`),
		}
		change(&j)
		if err := conn.Queue.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		submit(fmt.Sprintf("n%d", i), func(j *jobs.Job) { j.Lane = jobs.Lanes()[i%3] })
	}
	submit("bad", func(j *jobs.Job) { j.Spec = json.RawMessage(`[]`) })
	submit("late", func(j *jobs.Job) { j.Deadline = time.Now().Add(-time.Minute) })
	worker := exec.CommandContext(ctx, python, "worker.py", "--nats", srv.URL(), "--name", "py")
	var stderr bytes.Buffer
	worker.Stderr = &stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = worker.Process.Kill()
			_ = worker.Wait()
			t.Log(stderr.String())
		}
	}()
	result := func(id string) jobs.Result {
		t.Helper()
		r, err := conn.Results.Result(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i := range 30 {
		if r := result(fmt.Sprintf("n%d", i)); r.Status != jobs.Done ||
			strings.ReplaceAll(string(r.Output), " ", "") != `{"a":2,"b":1}` || r.Worker != "py" || r.Attempts != 1 {
			t.Errorf("%+v %s", r, r.Output)
		}
	}
	for id, code := range map[string]jobs.Code{"bad": jobs.CodeInvalid, "late": jobs.CodeDeadline} {
		if r := result(id); r.Status != jobs.Failed || r.Error.Code != code {
			t.Errorf("%s: %+v %+v", id, r, r.Error)
		}
	}
	// Acknowledged: nothing is left in the queue. The acknowledgement comes after the result.
	for {
		s, err := conn.Queue.Stats(ctx, jobs.PoolCPU)
		if err != nil {
			t.Fatal(err)
		}
		if s.Jobs == 0 {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d jobs are left", s.Jobs)
		case <-time.After(20 * time.Millisecond):
		}
	}
	var dead []jobs.DeadLetter
	err = conn.Letters.List(ctx, jobs.DeadFilter{},
		func(d jobs.DeadLetter) bool { dead = append(dead, d); return true })
	if err != nil || len(dead) != 1 || dead[0].ID != "bad" || dead[0].Reason.Code != jobs.CodeInvalid ||
		dead[0].Worker != "py" {
		t.Errorf("dead letters %+v, %v", dead, err)
	}
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = worker.Wait()
	ended = true
	if err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
