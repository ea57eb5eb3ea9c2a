package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// TestGateway: a client that has nothing but NATS submits, waits, reads and cancels.
func TestGateway(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	via := jobstest.Open(t, s, natsq.Connect)
	g, err := gateway.Serve(via.Conn, via.Queue, via.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Handlers: map[string]jobs.Handler{
			"echo": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) { return j.Spec, nil },
		},
	})
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
	_, _ = ask("exo.api.submit",
		`{"pool":"cpu","kind":"echo","spec":1,"id":"late","not_before":"2999-01-01T00:00:00Z"}`)
	_, _ = ask("exo.api.submit", `{"pool":"cpu","kind":"echo","spec":2,"id":"child","after":["`+id+
		`","late"],"on_failed_parent":"skip"}`)
	for _, c := range []struct{ subject, data, want string }{
		{
			"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":["none"]}`,
			`waits for none, which is not known`,
		},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":[]}`, `"field":"/after"`},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"on_failed_parent":"skip"}`, `"code":"invalid"`},
		{
			"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"after":["late"],"on_failed_parent":"stop"}`,
			`use \"fail\", \"skip\" or \"run\"`,
		},
		{
			"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"lane":"fast"}`,
			`"field":"/lane","value":"\"fast\"","cure":"use \"high\", \"normal\" or \"low\""`,
		},
		{"exo.api.submit", `{"pool":"cpu","kind":"echo","spec":1,"id":"` + id + `"}`, `"code":"exists"`},
		{
			"exo.api.submit",
			`{"pool":"cpu","kind":"echo","spec":1,"deadline":"2026-01-01T00:00:00Z",` +
				`"not_before":"2027-01-01T00:00:00Z"}`, `is before not_before`,
		},
		{"exo.api.submit", `[[[`, `"code":"invalid"`},
		{
			"exo.api.submit",
			` [{"pool":"cpu","kind":"echo","spec":1,"id":"g2","after":["g1"]},{"pool":"cpu","kind":"echo","spec":1,` +
				`"id":"g1"}]`, `{"v":1,"jobs":["g2","g1"]}`,
		},
		{
			"exo.api.submit",
			`[{"pool":"cpu","kind":"echo","spec":1},{"pool":"cpu","kind":"echo","spec":1,"lane":"fast"}]`,
			`job 2 of the array: field /lane: `,
		},
		{
			"exo.api.submit",
			`[{"pool":"cpu","kind":"echo","spec":1,"id":"x","after":["y"]},{"pool":"cpu","kind":"echo","spec":1,` +
				`"id":"y","after":["x"]}]`, `in a circle`,
		},
		{"exo.api.submit", `[]`, `an array of 0 jobs: use 1 to 1000`},
		{"exo.api.submit", `[1`, `"code":"invalid"`},
		{"exo.api.result.g2", `{"wait_s":15}`, `"status":"done"`},
		{"exo.api.result.none", ``, `"code":"not_found"`},
		{"exo.api.result.none", `{"wait_s":0.05}`, `"code":"not_found"`},
		{"exo.api.result.none", `{"wait_s":1e99}`, `with N from 0 to 300`},
		{"exo.api.result.a$b", ``, `"code":"invalid"`},
		{"exo.api.cancel.none", ``, `"code":"not_found"`},
		{"exo.api.cron.list", ``, `"schedules":[]`},
		{
			"exo.api.cron.add",
			`{"name":"ny","cron":"0 0 1 1 *","missed":"once","job":{"pool":"cpu","kind":"echo","spec":1}}`,
			`{"v":1,"schedule":"ny"}`,
		},
		{
			"exo.api.cron.add", `{"name":"ny","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1}}`,
			`"code":"exists"`,
		},
		{
			"exo.api.cron.add", `{"name":"n","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1,"id":"x"}}`,
			`"code":"invalid"`,
		},
		{
			"exo.api.cron.add", `{"name":"n","cron":"99 0 1 1 *","job":{"pool":"cpu","kind":"echo","spec":1}}`,
			`above maximum`,
		},
		{
			"exo.api.cron.add", `{"name":"n","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"stream","spec":{}}}`,
			`"field":"/job/spec"`,
		},
		{
			"exo.api.cron.add",
			`{"name":"n","cron":"0 0 1 1 *","job":{"pool":"cpu","kind":"stream","spec":{"name":"a",` +
				`"spec":{"name":"a"},"candidates":["x"],"columns":{"timestamp":"t","features":["v"],` +
				`"csv":{"zone":"Mars/X"}},"manifest":"file:r/m","output":"file:r/o","rejects":"file:r/r",` +
				`"summary":"file:r/s"}}}`, `"field":"/job/spec/columns/csv/zone"`,
		},
		{"exo.api.cron.pause.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.list", ``, `"name":"ny","cron":"0 0 1 1 *","missed":"once","paused":true`},
		{"exo.api.cron.resume.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.remove.ny", ``, `{"v":1,"schedule":"ny"}`},
		{"exo.api.cron.remove.ny", ``, `"code":"not_found"`},
		{"exo.api.cron.remove", ``, `ask exo.api.cron.add`},
		{"exo.api.list.cpu", `{"limit":101}`, `with N up to 100`},
		{"exo.api.list.cpu", `{"from":"elsewhere-1"}`, `"code":"invalid"`},
		{"exo.api.list.cpu", `[`, `"code":"invalid"`},
		{"exo.api.list.tpu", ``, `use \"cpu\" or \"gpu\"`},
		{"exo.api.list.gpu", ``, `{"v":1,"listed":[]}`},
		{"exo.api.list.cpu", ``, `"id":"child","pool":"cpu"`},
		{"exo.api.logs.none", ``, `"code":"not_found"`},
		{"exo.api.logs.g2", `{"from":"x"}`, `with N from 0 to 300`},
		{"exo.api.logs.g2", `{"wait_s":-1}`, `with N from 0 to 300`},
		{"exo.api.logs.g2", ``, `{"v":1,"job":"g2","logs":[]}`},
		{"exo.api.logs.g2", `{"wait_s":200}`, `"logs":[],"over":true}`},
		{"exo.api.retry.g2", ``, `job g2 has no dead letter`},
		{"exo.api.cancel.late", ``, `{"v":1,"job":"late"}`},
		{"exo.api.cancel." + id, ``, `{"v":1,"job":"` + id + `"}`},
		{"exo.api.result.late", ``, `"code":"canceled"`},
		{
			"exo.api.result.child", `{"wait_s":15}`,
			`"status":"skipped","error":{"code":"skipped","message":"job child did not begin, because job late failed`,
		},
	} {
		if text, _ := ask(c.subject, c.data); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s, want %s", c.subject, c.data, text, c.want)
		}
	}
}

// TestGatewayPages: a list that does not fit one answer comes in several, in order and whole, and a
// waiting client gets news.
func TestGatewayPages(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	conn := jobstest.Open(t, s, natsq.Connect)
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c := jobstest.Open(t, s, gateway.Connect)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// More than a page by number, two that are one each by size, and letters that JSON may write as
	// six.
	var want []string
	var batch []jobs.Job
	for i := range 130 {
		batch = append(batch, jobs.Job{
			Version: jobs.Version, ID: fmt.Sprintf("j%03d", i), Pool: jobs.PoolCPU,
			Kind: "talk", Spec: []byte(`1`),
		})
		want = append(want, batch[i].ID)
	}
	if err := conn.Queue.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	big := `"` + strings.Repeat("<", jobs.MaxInline-2) + `"`
	for _, id := range []string{"big1", "big2"} {
		jobstest.Publish(ctx, t, s, "exo.job.cpu.big.normal.default."+id,
			[]byte(`{"v":1,"id":"`+id+`","pool":"cpu","kind":"big","submitted":"2026-01-31T12:00:00Z","spec":`+big+`}`))
		want = append(want, id)
	}
	child := jobs.Job{
		Version: jobs.Version, ID: "child", Pool: jobs.PoolCPU, Kind: "talk", Spec: []byte(`1`),
		After: []string{"j000", "j001"},
	}
	if err := conn.Queue.Submit(ctx, child); err != nil {
		t.Fatal(err)
	}
	want = append(want, "child")
	var got []string
	if err := c.List(ctx, jobs.PoolCPU, func(j queue.ListedJob) bool {
		got = append(got, j.ID)
		if j.Kind == "big" && len(j.Spec) != len(big) {
			t.Errorf("job %s has a spec of %d bytes", j.ID, len(j.Spec))
		}
		if j.ID == "child" && (strings.Join(j.Waits, " ") != "j000 j001" || j.State != queue.StateWaiting) {
			t.Errorf("child is %s and waits for %q, want waiting for j000 j001", j.State, j.Waits)
		}
		return true
	}); err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q, %v", got, err)
	}
	n := 0
	if err := c.List(ctx, jobs.PoolCPU, func(queue.ListedJob) bool { n++; return n < 105 }); err != nil || n != 105 {
		t.Errorf("%d, %v", n, err)
	}
	// A job that says more than an answer holds, and ends while it is followed and watched.
	const messages, lines = 20, 200
	begun, release := make(chan struct{}), make(chan struct{})
	jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Concurrency: 1,
		Handlers: map[string]jobs.Handler{
			"talk": func(ctx context.Context, j jobs.Job, progress func(any)) (any, error) {
				if j.ID != "talker" {
					return 1, nil
				}
				close(begun)
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for { // until somebody has heard it
					progress("half way")
					select {
					case <-tick.C:
					case <-release:
						return 2, nil
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}
			},
			"big": func(context.Context, jobs.Job, func(any)) (any, error) { return 1, nil },
		},
	})
	if err := conn.Queue.Submit(ctx, jobs.Job{
		Version: jobs.Version, ID: "talker", Pool: jobs.PoolCPU, Kind: "talk",
		Lane: jobs.High, Spec: []byte(`1`),
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("it does not begin")
	}
	say := func(n, lines int) { // as a worker in another language does
		t.Helper()
		text := make([]string, lines)
		for i := range text {
			text[i] = fmt.Sprintf(`{"time":"2026-01-31T12:00:00Z","level":"INFO","msg":"%s","n":%d}`,
				strings.Repeat("<", 200), n+i)
		}
		jobstest.Publish(ctx, t, s, "exo.joblog.talker",
			[]byte(`{"v":1,"job":"talker","attempt":1,"worker":"w","lines":[`+strings.Join(text, ",")+`]}`))
	}
	for i := range messages {
		say(i*lines, lines)
	}
	var all []int
	read := func(l jobs.LogLines) error {
		for _, raw := range l.Lines {
			var line struct{ N int }
			if err := json.Unmarshal(raw, &line); err != nil {
				return err
			}
			all = append(all, line.N)
		}
		return nil
	}
	followed := make(chan error, 1)
	go func() { followed <- c.Logs(ctx, "talker", true, read) }()
	var released sync.Once
	r, err := c.Watch(ctx, "talker", func(p json.RawMessage) {
		if string(p) != `"half way"` {
			t.Errorf("progress %s", p)
		}
		released.Do(func() {
			say(messages*lines, 1)
			close(release)
		})
	})
	if err != nil || string(r.Output) != "2" {
		t.Fatalf("%+v, %v", r, err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil || len(all) != messages*lines+1 {
			t.Fatalf("%d lines, %v", len(all), err)
		}
		for i, n := range all {
			if i != n {
				t.Fatalf("line %d stands at %d", n, i)
			}
		}
		all = nil
	}
	check(<-followed)
	check(c.Logs(ctx, "talker", false, read))
	stop := errors.New("enough")
	if err := c.Logs(ctx, "talker", false, func(jobs.LogLines) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// TestForeignJob: a job whose id is of one tenant and whose tenant is another, which only an
// operator can make, is the latter's alone.
func TestForeignJob(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	conn := jobstest.Open(t, s, natsq.Connect)
	g, err := gateway.Serve(conn.Conn, conn.Queue, conn.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject, data string) string {
		t.Helper()
		m, err := nc.Request(subject, []byte(data), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return string(m.Data)
	}
	for _, tenant := range []string{"umbrella", jobs.DefaultTenant} {
		j := jobstest.Job("acme--"+tenant, "k")
		j.Tenant = tenant
		if err := conn.Queue.Submit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		for _, request := range []string{"find", "cancel"} {
			if got := ask("exo.tenant.acme."+request+"."+j.ID, ""); !strings.Contains(got, `"code":"not_found"`) {
				t.Errorf("acme asks to %s a job of %s: %s", request, tenant, got)
			}
		}
		if got, err := conn.Queue.Find(t.Context(), j.ID); err != nil || got.Tenant != tenant {
			t.Errorf("the job of %s after acme asked to cancel it: %+v, %v", tenant, got, err)
		}
	}
	// A dead letter on a subject of acme's that holds a job of another tenant is not queued again
	// at acme's word.
	jobstest.Publish(t.Context(), t, s, "exo.job.cpu.k.normal.acme.acme--dead",
		[]byte(`{"v":1,"id":"acme--dead","pool":"cpu","kind":"k","tenant":"umbrella","spec":1}`))
	jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "w", Handlers: map[string]jobs.Handler{
			"k": func(context.Context, jobs.Job, func(any)) (any, error) { return nil, nil },
		},
	})
	if r := jobstest.Await(t, conn.Results, "acme--dead"); r.Status != jobs.Failed {
		t.Fatalf("a job on another tenant's subject: %+v", r)
	}
	letters := func() (n int) {
		if err := conn.Letters.List(t.Context(), jobs.DeadFilter{ID: "acme--dead"},
			func(jobs.DeadLetter) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for letters() == 0 { // it comes behind the result
		if t.Context().Err() != nil {
			t.Fatal("no dead letter")
		}
	}
	if got := ask("exo.tenant.acme.retry.acme--dead", ""); !strings.Contains(got, `"code":"not_found"`) {
		t.Errorf("acme asks to retry a job of umbrella: %s", got)
	}
}
