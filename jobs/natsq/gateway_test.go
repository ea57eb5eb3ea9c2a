package natsq_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// TestGateway: a client that has nothing but NATS submits, waits, reads and cancels.
func TestGateway(t *testing.T) {
	s := start(t, server.Options{})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	g, err := connect(t, s).Serve(jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	work(t, connect(t, s), natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{
		"echo": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return j.Spec, nil },
	}})
	ask := func(subject, data string) (text string, job string) {
		t.Helper()
		m, err := nc.Request(subject, []byte(data), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		var r struct {
			Job    string          `json:"job"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Result != nil {
			if err := schema.Validate(schema.Result, r.Result); err != nil {
				t.Error(err)
			}
		}
		return string(m.Data), r.Job
	}
	text, id := ask("exo.api.submit", `{"pool":"cpu","kind":"echo","spec":{"x":"y"}}`)
	if id == "" || strings.Contains(text, "error") {
		t.Fatal(text)
	}
	if text, _ = ask("exo.api.result."+id, `{"wait_s":50}`); !strings.Contains(text, `"output":{"x":"y"}`) {
		t.Error(text)
	}
	if text, _ = ask("exo.api.result."+id, ``); !strings.Contains(text, `"status":"done"`) {
		t.Error(text)
	}
	_, _ = ask("exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"id":"late","not_before":"2999-01-01T00:00:00Z"}`)
	_, _ = ask("exo.api.submit", `{"pool":"cpu","kind":"echo","spec":2,"id":"child","after":["`+id+`","late"],"on_failed_parent":"skip"}`)
	for _, c := range []struct{ subject, data, want string }{
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":["none"]}`, `waits for none, of which nothing is known`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":[]}`, `"field":"/after"`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"on_failed_parent":"skip"}`, `"code":"invalid"`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":["late"],"on_failed_parent":"stop"}`, `use \"fail\", \"skip\" or \"run\"`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"lane":"fast"}`, `"field":"/lane","value":"\"fast\"","cure":"use \"high\", \"normal\" or \"low\""`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"id":"` + id + `"}`, `"code":"exists"`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"deadline":"2026-01-01T00:00:00Z","not_before":"2027-01-01T00:00:00Z"}`, `is before not_before`},
		{"exo.api.submit", `[[[`, `"code":"invalid"`},
		{"exo.api.submit", ` [{"pool":"cpu","kind":"echo","spec":1,"id":"g2","after":["g1"]},{"pool":"cpu","kind":"echo","spec":1,"id":"g1"}]`, `{"v":1,"jobs":["g2","g1"]}`},
		{"exo.api.submit", `[{"pool":"cpu","kind":"echo","spec":1},{"pool":"cpu","kind":"echo","spec":1,"lane":"fast"}]`, `job 2 of the array: field /lane: `},
		{"exo.api.submit", `[{"pool":"cpu","kind":"echo","spec":1,"id":"x","after":["y"]},{"pool":"cpu","kind":"echo","spec":1,"id":"y","after":["x"]}]`, `in a circle`},
		{"exo.api.submit", `[]`, `an array of 0 jobs: use 1 to 1000`},
		{"exo.api.submit", `[1`, `"code":"invalid"`},
		{"exo.api.result.g2", `{"wait_s":15}`, `"status":"done"`},
		{"exo.api.result.none", ``, `"code":"not_found"`},
		{"exo.api.result.none", `{"wait_s":0.05}`, `"code":"not_found"`},
		{"exo.api.result.none", `{"wait_s":1e99}`, `with N from 0 to 300`},
		{"exo.api.result.a$b", ``, `"code":"invalid"`},
		{"exo.api.cancel.none", ``, `"code":"not_found"`},
		{"exo.api.cron.list", ``, `"schedules":[]`},
		{"exo.api.cron.add", `{"name":"ny","cron":"0 0 1 1 *","missed":"once","job":{"pool":"cpu","kind":"echo","spec":1}}`, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.add", `{"name":"ny","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1}}`, `"code":"exists"`},
		{"exo.api.cron.add", `{"name":"n","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1,"id":"x"}}`, `"code":"invalid"`},
		{"exo.api.cron.add", `{"name":"n","cron":"99 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1}}`, `above maximum`},
		{"exo.api.cron.pause.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.list", ``, `"name":"ny","cron":"0 0 1 1 *","missed":"once","paused":true`},
		{"exo.api.cron.resume.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.remove.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.remove.ny", ``, `"code":"not_found"`},
		{"exo.api.cron.remove", ``, `ask exo.api.cron.add`},
		{"exo.api.cancel.late", ``, `{"v":1,"job":"late"}`},
		{"exo.api.cancel." + id, ``, `{"v":1,"job":"` + id + `"}`},
		{"exo.api.result.late", ``, `"code":"canceled"`},
		{"exo.api.result.child", `{"wait_s":15}`, `"status":"skipped","error":{"code":"skipped","message":"job child did not begin, because job late failed`},
	} {
		if text, _ := ask(c.subject, c.data); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s, want %s", c.subject, c.data, text, c.want)
		}
	}
}
