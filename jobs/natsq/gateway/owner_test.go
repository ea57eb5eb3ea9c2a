package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// TestOwner: a tenant's requests reach its own jobs and schedules only, whatever tenant they name.
func TestOwner(t *testing.T) {
	for subject, want := range map[string]string{
		"exo.api.submit": "|submit", "exo.api.result.a": "|result.a", "exo.tenant.acme.submit": "acme|submit",
		"exo.tenant.acme.cron.remove.x": "acme|cron.remove.x", "exo.tenant.acme": "acme|", "other": "|other",
	} {
		if from, what := caller(subject); string(from)+"|"+what != want {
			t.Errorf("%s: %s|%s, want %s", subject, from, what, want)
		}
	}
	for id, want := range map[string]string{
		"a": "acme--a", "acme--a": "acme--a", "": "", "acme-a": "acme--acme-a",
		"other--a": "acme--other--a",
	} {
		if got := owner("acme").own(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
		if got := owner("").own(id); got != id {
			t.Errorf("%s of nobody: %s", id, got)
		}
	}
	j := plain("a", "p", "acme--q")
	j = j.WithDefaults()
	for tenant, ok := range map[string]bool{"default": true, "acme": true, "other": false} {
		j := j
		j.Tenant, j.After = tenant, slices.Clone(j.After)
		got, err := owner("acme").admit(j)
		var e *jobs.Error
		switch {
		case !ok && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), "this login is of tenant acme")):
			t.Errorf("%s: %v", tenant, err)
		case ok && (err != nil || got.Tenant != "acme" || got.ID != "acme--a" ||
			!slices.Equal(got.After, []string{"acme--p", "acme--q"})):
			t.Errorf("%s: %+v, %v", tenant, got, err)
		}
		j.After = []string{"p"}
		if got, err := owner("").admit(j); err != nil || got.Tenant != tenant || got.ID != "a" || got.After[0] != "p" {
			t.Errorf("%s, of an operator: %+v, %v", tenant, got, err)
		}
		if err := owner("acme").check(j); (err == nil) != (tenant == "acme") || err != nil &&
			(!errors.Is(err, jobs.ErrNotFound) || strings.Contains(err.Error(), tenant)) {
			t.Errorf("%s: %v", tenant, err)
		}
		if err := owner("").check(j); err != nil {
			t.Error(err)
		}
	}
	long := j
	long.ID = strings.Repeat("a", 126)
	if _, err := owner("acme").admit(long); err == nil {
		t.Error("an id that is too long with its tenant is admitted")
	}
	for tenant, ok := range map[string]bool{"": true, "default": true, "acme": true, "other": false} {
		s := jobs.Schedule{Version: jobs.Version, Name: "s", Cron: "@daily", Job: j}
		s.Job.Tenant, s.Job.ID, s.Job.After = tenant, "", nil
		got, err := owner("acme").schedule(s)
		if !ok && (err == nil || !strings.Contains(err.Error(), "leave the tenant out")) || ok &&
			(got.Job.Tenant != "acme" || got.Name != "acme--s" || err != nil &&
				strings.Contains(err.Error(), "leave the tenant out")) {
			t.Errorf("schedule of %q: %+v, %v", tenant, got, err)
		}
		if same, err := owner("").schedule(s); err != nil || same.Name != "s" || same.Job.Tenant != tenant {
			t.Errorf("schedule of %q, of an operator: %+v, %v", tenant, same, err)
		}
	}
	for _, c := range []struct {
		from         owner
		name, tenant string
		want         bool
	}{
		{"", "s", "other", true},
		{"acme", "acme--s", "acme", true},
		{"acme", "s", "acme", false},
		{"acme", "acme--s", "other", false},
		{"acme", "acme-s", "acme", false},
	} {
		if got := c.from.mine(jobs.Schedule{Name: c.name, Job: jobs.Job{Tenant: c.tenant}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSubmission: what may be left out of a submission is filled in, what is there stays, and what
// is not valid is refused.
func TestSubmission(t *testing.T) {
	before := time.Now().Add(-time.Second)
	j, made, err := parseSubmission([]byte(`{"kind":"k","pool":"cpu","spec":1}`))
	if err != nil || !made || jobs.CheckID("id", j.ID) != nil || j.Version != jobs.Version ||
		j.Tenant != jobs.DefaultTenant || j.MaxAttempts < 1 || j.Submitted.Before(before) ||
		j.Submitted.Location() != time.UTC {
		t.Errorf("%+v, %v, %v", j, made, err)
	}
	j, made,
		err = parseSubmission([]byte(fmt.Sprintf(`{"v":%d,"id":"mine","kind":"k","pool":"cpu","spec":1,`+
		`"submitted":"2026-01-02T03:04:05Z"}`, jobs.Version)))
	if err != nil || made || j.ID != "mine" || !j.Submitted.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v, %v, %v", j, made, err)
	}
	for _, text := range []string{
		"", "{", "[]", `{"kind":"k","pool":"cpu"}`,
		`{"kind":"k","pool":"cpu","spec":1,"x":1}`, `{"kind":"a b","pool":"cpu","spec":1}`,
		`{"v":99,"kind":"k","pool":"cpu","spec":1}`, `{"id":"a","kind":"k","pool":"cpu","spec":1,"after":["a"]}`,
		`{"kind":"stream","pool":"cpu","spec":1}`,
	} {
		if _, err := ParseSubmission([]byte(text)); err == nil {
			t.Errorf("%s is a submission", text)
		}
	}
	for err, want := range map[error]string{
		&schema.Error{Field: "f", Value: "v", Cure: "c"}: string(jobs.CodeInvalid),
		fmt.Errorf("x: %w", jobs.ErrExists):              "exists", fmt.Errorf("x: %w", jobs.ErrFull): "full",
		fmt.Errorf("x: %w", jobs.ErrNotFound):    "not_found",
		fmt.Errorf("x: %w", jobs.ErrUnavailable): "unavailable", context.DeadlineExceeded: "unavailable",
		context.Canceled: "unavailable", jobs.Errorf(jobs.CodeInput, "x"): string(jobs.CodeInput),
		errors.New("x"): string(jobs.CodeInternal),
	} {
		e := apiFailure(err)
		if e.Code != want || e.Message != err.Error() || want == string(jobs.CodeInvalid) &&
			(e.Field != "f" || e.Value != "v" || e.Cure != "c") {
			t.Errorf("%v: %+v, want %s", err, e, want)
		}
	}
	if e := apiFailure(jobs.Later(jobs.ErrFull, 2500*time.Millisecond)); e.RetryAfter != 2.5 || e.Code != "full" {
		t.Errorf("%+v", e)
	}
	if data, err := (apiReply{Job: "a<&>"}).encode(); err != nil || !bytes.Contains(data, []byte("a<&>")) ||
		bytes.HasSuffix(data, []byte("\n")) {
		t.Errorf("%s, %v", data, err)
	}
	var o struct {
		A int `json:"a"`
	}
	for text, ok := range map[string]bool{
		"": true, `{"a":1}`: true, `{`: false, `{"a":"x"}`: false,
		`{"a":1,"a":2}`: jobs.CheckJSON([]byte(`{"a":1,"a":2}`)) == nil,
	} {
		if err := readRequest([]byte(text), &o); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if seconds(1.5) != 1500*time.Millisecond {
		t.Error(seconds(1.5))
	}
}

// TestGatewayBounds: a request is answered within its bounds and refused beyond them, over the
// queue.
func TestGatewayBounds(t *testing.T) {
	s, c := jobstest.InProcess(t, natsconn.Open)
	g, err := Serve(c, queueOf(c), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ask := func(subject, text string) (r apiReply) {
		t.Helper()
		m, err := jobstest.Open(t, s, natsconn.Open).NC.Request(subject, []byte(text), 20*time.Second)
		if err != nil {
			t.Fatal(subject, err)
		}
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Version != jobs.Version {
			t.Fatalf("%s: %s, %v", subject, m.Data, err)
		}
		return r
	}
	many := func(n int, prefix string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"id":"%s%d","kind":"k","pool":"cpu","spec":1}`, prefix, i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for _, k := range []struct{ subject, text, code, want string }{
		{"exo.api.submit", "[]", "invalid", "an array of 0 jobs: use 1 to 1000"},
		{"exo.api.submit", many(jobs.MaxBatch+1, "a"), "invalid", "an array of 1001 jobs"},
		{"exo.api.submit", " \t\r\n[1]", "invalid", "job 1 of the array"},
		{"exo.api.submit", "[{]", "invalid", ""},
		{"exo.api.result.none", `{"wait_s":-1}`, "invalid", "with N from 0 to 300"},
		{"exo.api.result.none", `{"wait_s":300.5}`, "invalid", "with N from 0 to 300"},
		{"exo.api.result.none", `{`, "invalid", "a request for a result"},
		{"exo.api.result.none", "", "not_found", ""},
		{"exo.api.result.none", `{"wait_s":0.01}`, "not_found", "it has no result yet"},
		{"exo.api.cancel.none", "{", "invalid", "a request to cancel"},
		{"exo.api.cancel.none", "", "not_found", ""},
		{"exo.api.find.none", "", "not_found", ""},
	} {
		r := ask(k.subject, k.text)
		if r.Error == nil || r.Error.Code != k.code || !strings.Contains(r.Error.Message, k.want) {
			t.Errorf("%s %.40s: %+v, want %s %q", k.subject, k.text, r.Error, k.code, k.want)
		}
	}
	if r := ask("exo.api.submit", many(3, "b")); r.Error != nil || !slices.Equal(r.Jobs, []string{"b0", "b1", "b2"}) {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.tenant.acme.submit", many(2, "b")); r.Error != nil ||
		!slices.Equal(r.Jobs, []string{"acme--b0", "acme--b1"}) {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.tenant.acme.find.b0", ""); r.Error != nil || r.Job != "acme--b0" || r.Queued == nil {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.tenant.other.find.acme--b0", ""); r.Error == nil || r.Error.Code != "not_found" {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.tenant.other.cancel.acme--b0", ""); r.Error == nil || r.Error.Code != "not_found" {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.cancel.b1", ""); r.Error != nil {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.result.b1", ""); r.Error != nil || r.Result == nil || r.Result.Error == nil ||
		r.Result.Error.Code != jobs.CodeCanceled {
		t.Errorf("%+v", r)
	}
	if r := ask("exo.api.cancel.b1", ""); r.Error != nil {
		t.Errorf("one that is over: %+v", r.Error)
	}
	if r := ask("exo.api.submit", `{"id":"b1","kind":"k","pool":"cpu","spec":1}`); r.Error == nil ||
		r.Error.Code != "exists" {
		t.Errorf("%+v", r)
	}
}
