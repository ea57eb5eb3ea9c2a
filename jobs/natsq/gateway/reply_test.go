package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestReply: an answer of the largest size is sent as it is, a larger one becomes an error that
// says where the result is, and what was published without a question gets none.
func TestReply(t *testing.T) {
	_, c := jobstest.InProcess(t, natsconn.Open)
	answers, err := c.NC.SubscribeSync("answers")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g := &Gateway{conn: c, log: slog.New(slog.NewTextHandler(&log, nil))}
	progress := func(n int) apiReply {
		return apiReply{Job: "a", Progress: json.RawMessage(`"` + strings.Repeat("<", n) + `"`)}
	}
	empty, err := apiReply{Version: jobs.Version, Job: "a", Progress: json.RawMessage(`""`)}.encode()
	if err != nil || bytes.HasSuffix(empty, []byte("\n")) {
		t.Fatalf("%q, %v", empty, err)
	}
	most := jobs.MaxMessage - len(empty)
	for n, fits := range map[int]bool{0: true, 7: true, most - 1: true, most: true, most + 1: false, 2 * most: false} {
		g.reply(&nats.Msg{Subject: "q", Reply: "answers", Sub: answers}, progress(n))
		m, err := answers.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatal(n, err)
		}
		var r apiReply
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Version != jobs.Version || r.Job != "a" {
			t.Fatalf("%d: %.100s, %v", n, m.Data, err)
		}
		if fits && (r.Error != nil || len(m.Data) != len(empty)+n || len(r.Progress) != n+2) {
			t.Errorf("%d: %d bytes, %+v", n, len(m.Data), r.Error)
		}
		if !fits && (r.Progress != nil || r.Error == nil || r.Error.Code != string(jobs.CodeInternal) ||
			!strings.Contains(r.Error.Message, "a result is exo.res.a of stream "+wire.ResultStream)) {
			t.Errorf("%d: %d bytes, %+v", n, len(m.Data), r.Error)
		}
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
	g.reply(&nats.Msg{Subject: "q", Sub: answers}, progress(1))
	if log.Len() > 0 {
		t.Errorf("a message that asks nothing: %s", log.String())
	}
	g.reply(&nats.Msg{Subject: "q", Reply: "answers", Sub: answers}, apiReply{Progress: json.RawMessage("{")})
	if !strings.Contains(log.String(), "answering a request") || !strings.Contains(log.String(), "subject=q") {
		t.Errorf("an answer that is no JSON: %s", log.String())
	}
	if err := c.NC.Publish("answers", []byte("end")); err != nil {
		t.Fatal(err)
	}
	if m, err := answers.NextMsg(20 * time.Second); err != nil || string(m.Data) != "end" {
		t.Errorf("one more answer: %s, %v", m.Data, err)
	}
}

// TestGatewayVerbs: every verb reaches what it names, and a question without a wait is not one with
// a short wait.
func TestGatewayVerbs(t *testing.T) {
	s, c := jobstest.InProcess(t, natsconn.Open)
	q := queueOf(c)
	g, err := Serve(c, q, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	asker := jobstest.Open(t, s, natsconn.Open)
	ask := func(subject, text string) (r apiReply) {
		t.Helper()
		m, err := asker.NC.Request(subject, []byte(text), 20*time.Second)
		if err != nil {
			t.Fatal(subject, err)
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Fatalf("%s: %s, %v", subject, m.Data, err)
		}
		return r
	}
	if r := ask("exo.api.submit", "\n{\"id\":\"a\",\"kind\":\"k\",\"pool\":\"cpu\",\"spec\":1}"); r.Error != nil ||
		r.Job != "a" {
		t.Errorf("%+v", r.Error)
	}
	if r := ask("exo.api.result.a", ""); r.Error == nil || r.Error.Code != "not_found" ||
		strings.Contains(r.Error.Message, "yet") || r.Job != "a" {
		t.Errorf("%+v", r.Error)
	}
	if r := ask("exo.api.find.a", ""); r.Error != nil || r.Queued == nil || r.Queued.ID != "a" {
		t.Errorf("%+v", r.Error)
	}
	if r := ask("exo.api.list.cpu", ""); r.Error != nil || r.Listed == nil || len(*r.Listed) != 1 {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.list.tpu", ""); r.Error == nil {
		t.Error("a pool that is none is listed")
	}
	if r := ask("exo.api.cron.list", ""); r.Error != nil || r.Schedules == nil || r.Job != "" {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.logs.a", ""); r.Error != nil || r.Job != "a" || r.Over {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.retry.a", ""); r.Error == nil || r.Error.Code != "not_found" {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.cancel.a", `{"finish":true}`); r.Error != nil {
		t.Errorf("%+v", r.Error)
	}
	if _, err := q.Find(t.Context(), "a"); err != nil {
		t.Errorf("a job that is asked to finish is gone: %v", err)
	}
	if r := ask("exo.tenant.acme.cancel.a", ""); r.Error == nil || r.Error.Code != "not_found" {
		t.Errorf("another's job: %+v", r)
	}
	if r := ask("exo.api.cancel.a", ""); r.Error != nil {
		t.Errorf("%+v", r.Error)
	}
	if r := ask("exo.api.result.a", `{"wait_s":300}`); r.Error != nil || r.Result == nil ||
		r.Result.Status != jobs.Failed {
		t.Errorf("%+v", r)
	}
	g.Close()
	g.Close()
	if err := c.NC.Flush(); err != nil { // the server hears that nobody listens any more
		t.Fatal(err)
	}
	if _, err := asker.NC.Request("exo.api.find.a", nil, 5*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a gateway that is closed: %v", err)
	}
}
