package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// acting is a dashboard with actions over a real queue, and two jobs.
func acting(t *testing.T, edit func(*Options)) (*running, *natsq.Conn) {
	t.Helper()
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Dir: t.TempDir()}), natsq.Connect)
	for _, id := range []string{"one", "two"} {
		j := jobstest.Job(id, "work")
		j.Submitted = time.Now().UTC()
		if err := c.Queue.Submit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	op, err := action.New(action.Options{Conn: c})
	if err != nil {
		t.Fatal(err)
	}
	w := cluster.Start(cluster.Options{Conn: c})
	t.Cleanup(w.Close)
	return opened(t, Observe(w, c), func(o *Options) {
		o.Actions = op
		o.Audit = func(ctx context.Context, since time.Time, limit int) (all []control.AuditEntry, err error) {
			err = c.Audit.List(ctx, since, func(e control.AuditEntry) bool {
				all = append(all, e)
				return len(all) < limit
			})
			return all, err
		}
		if edit != nil {
			edit(o)
		}
	}), c
}

func (r *running) token(t *testing.T, headers ...string) string {
	t.Helper()
	var who Who
	_, body := r.do(t, "GET", "api/v1/login", "", headers...)
	if err := json.Unmarshal([]byte(body), &who); err != nil || !who.Actions {
		t.Fatalf("the login is %s, want one with actions", body)
	}
	return who.ActionToken
}

// post sends a request with an effect and decodes the answer.
func (r *running) post(t *testing.T, path string, body, into any, headers ...string) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	res, text := r.do(t, "POST", "api/v1/actions/"+path, string(data), append([]string{
		"Content-Type", "application/json",
	}, headers...)...)
	if into != nil && json.Unmarshal([]byte(text), into) != nil {
		t.Errorf("%s: the answer is no JSON: %s", path, text)
	}
	return res.status, text
}

func gone(t *testing.T, c *natsq.Conn, id string) bool {
	t.Helper()
	_, err := c.Queue.Find(t.Context(), id)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	return err != nil
}

// TestActions: a preview is confirmed once; a second confirmation, one of another preview, and one
// of a world that has changed are refused with a new preview. The audit has the user and the
// address.
func TestActions(t *testing.T) {
	r, c := acting(t, nil)
	r.logIn(t, testToken)
	header := []string{actionHeader, r.token(t)}
	cancel := func(id string) action.Request { return action.Request{Action: "job.cancel", Object: id} }
	look := func(id string) (p ActionPreview) {
		t.Helper()
		if status, text := r.post(t, "preview", cancel(id), &p, header...); status != http.StatusOK ||
			p.Ticket == "" || p.Digest == "" || len(p.Affects) == 0 {
			t.Fatalf("the preview: %d %s", status, text)
		}
		return p
	}
	first, second := look("one"), look("one")
	if gone(t, c, "one") {
		t.Fatal("a preview has cancelled the job")
	}
	mixed := ActionConfirm{first.Request, strings.Repeat("0", 64), second.Ticket}
	var refused ActionRefused
	if status, text := r.post(t, "confirm", mixed, &refused, header...); status != http.StatusConflict ||
		refused.Preview == nil || refused.Preview.Digest != first.Digest || gone(t, c, "one") {
		t.Errorf("another digest: %d %s, want 409 with the preview", status, text)
	}
	confirm := ActionConfirm{first.Request, first.Digest, first.Ticket}
	if status, text := r.post(t, "confirm", confirm, nil, header...); status != http.StatusOK || !gone(t, c, "one") {
		t.Errorf("the confirmation: %d %s", status, text)
	}
	if status, text := r.post(t, "confirm", confirm, nil, header...); status != http.StatusConflict {
		t.Errorf("the same confirmation again: %d %s, want 409", status, text)
	}
	old := look("two")
	child := jobstest.Job("child", "work")
	child.After = []string{"two"}
	if err := c.Queue.Submit(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	refused = ActionRefused{}
	if status, text := r.post(t, "confirm", ActionConfirm{old.Request, old.Digest, old.Ticket}, &refused,
		header...); status != http.StatusConflict || refused.Preview == nil || refused.Preview.Digest == old.Digest ||
		gone(t, c, "two") {
		t.Errorf("a changed world: %d %s, want 409 with a new preview", status, text)
	}
	again := refused.Preview
	if status, text := r.post(t, "confirm", ActionConfirm{again.Request, again.Digest, again.Ticket}, nil,
		header...); status != http.StatusOK || !gone(t, c, "two") {
		t.Errorf("the new preview: %d %s", status, text)
	}
	_, body := r.get(t, "audit")
	var all []control.AuditEntry
	if err := json.Unmarshal([]byte(body), &all); err != nil || len(all) != 2 {
		t.Fatalf("the audit is %s, %v, want two actions", body, err)
	}
	if e := all[1]; e.User != "operator" || !strings.HasPrefix(e.From, "127.0.0.1:") || e.Via != "dashboard" ||
		e.Action != "job.cancel" || e.Object != "one" || e.Outcome != control.OutcomeDone || e.Digest != first.Digest {
		t.Errorf("the audit has %+v", e)
	}
	for name, text := range map[string]string{
		"no action": `{"action":"none"}`, "no JSON": `{`, "a field of a later version": `{"action":"job.cancel","x":1}`,
	} {
		res, got := r.do(
			t,
			"POST",
			"api/v1/actions/preview",
			text,
			append(header, "Content-Type", "application/json")...)
		if res.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want 400", name, res.status, got)
		}
	}
}

// TestActionsForged: requests that a page of another origin can send have no effect: another
// Origin, a form, no header, and the header of another login.
func TestActionsForged(t *testing.T) {
	r, c := acting(t, nil)
	r.logIn(t, testToken)
	token := r.token(t)
	bearer := r.token(t, "Authorization", "Bearer "+testToken)
	if token == bearer {
		t.Error("two logins have the same token")
	}
	body := action.Request{Action: "job.cancel", Object: "one"}
	var p ActionPreview
	if status, text := r.post(t, "preview", body, &p, actionHeader, token); status != http.StatusOK {
		t.Fatalf("the preview: %d %s", status, text)
	}
	confirm := ActionConfirm{p.Request, p.Digest, p.Ticket}
	for name, headers := range map[string][]string{
		"a foreign origin":        {actionHeader, token, "Origin", "https://evil.example"},
		"a cross-site request":    {actionHeader, token, "Sec-Fetch-Site", "cross-site"},
		"no header":               {},
		"the header of another":   {actionHeader, bearer},
		"a form":                  {actionHeader, token, "Content-Type", "application/x-www-form-urlencoded"},
		"a form of plain text":    {actionHeader, token, "Content-Type", "text/plain"},
		"another host by DNS":     {actionHeader, token, "Host", "evil.example"},
		"a wrong token of Bearer": {actionHeader, bearer, "Authorization", "Bearer x"},
	} {
		if status, text := r.post(t, "confirm", confirm, nil, headers...); status < 400 ||
			status == http.StatusConflict {
			t.Errorf("%s: %d %s, want a refusal", name, status, text)
		}
	}
	if gone(t, c, "one") {
		t.Fatal("a forged request has cancelled the job")
	}
	for _, cookie := range r.cookies() {
		if cookie.Name == "" {
			t.Error("a cookie without a name")
		}
	}
	if status, text := r.post(t, "confirm", confirm, nil, actionHeader, token); status != http.StatusOK {
		t.Errorf("the real one: %d %s", status, text)
	}
}

// TestActionsUsers: the name of a proxy's header goes to the audit with both addresses, and a
// ticket is of one user.
func TestActionsUsers(t *testing.T) {
	r, _ := acting(t, func(o *Options) {
		o.BehindProxy, o.AuthHeader, o.ProxySecret = true, "X-Forwarded-User", testToken
	})
	as := func(user string) []string {
		h := []string{"X-Forwarded-User", user, "X-Forwarded-For", "10.1.2.3", ProxyHeader, testToken}
		return append(h, actionHeader, r.token(t, h...))
	}
	ann, eve := as("ann"), as("eve")
	var p ActionPreview
	if status, text := r.post(t, "preview", action.Request{Action: "queue.pause", Object: "gpu"}, &p,
		ann...); status != http.StatusOK {
		t.Fatalf("the preview: %d %s", status, text)
	}
	confirm := ActionConfirm{p.Request, p.Digest, p.Ticket}
	if status, _ := r.post(t, "confirm", confirm, nil, eve...); status != http.StatusConflict {
		t.Errorf("another user confirms: %d, want 409", status)
	}
	if status, text := r.post(t, "preview", confirm.Request, &p, ann...); status != http.StatusOK {
		t.Fatalf("the preview: %d %s", status, text)
	}
	confirm.Ticket = p.Ticket
	if status, text := r.post(t, "confirm", confirm, nil, ann...); status != http.StatusOK {
		t.Fatalf("the confirmation: %d %s", status, text)
	}
	_, body := r.do(t, "GET", "api/v1/audit", "", ann...)
	var all []control.AuditEntry
	if err := json.Unmarshal([]byte(body), &all); err != nil || len(all) != 1 || all[0].User != "ann" ||
		!strings.HasPrefix(all[0].From, "10.1.2.3 by 127.0.0.1:") {
		t.Errorf("the audit is %s, %v, want ann from 10.1.2.3", body, err)
	}
}

// TestReadOnly: without actions their routes do not exist, and a sentence says how to get them.
func TestReadOnly(t *testing.T) {
	r, c := acting(t, func(o *Options) { o.Actions = nil })
	r.logIn(t, testToken)
	for _, path := range []string{"preview", "confirm"} {
		status, text := r.post(t, path, action.Request{Action: "job.cancel", Object: "one"}, nil)
		if status != http.StatusNotFound || !strings.Contains(text, "--actions") {
			t.Errorf("%s: %d %s, want 404 with a sentence", path, status, text)
		}
	}
	if _, body := r.get(t, "login"); !strings.Contains(body, `"actions":false`) ||
		strings.Contains(body, "action_token") {
		t.Errorf("the login says %s, want no actions", body)
	}
	if gone(t, c, "one") {
		t.Error("the job was cancelled")
	}
}

// TestTickets: a ticket ends with its time, and the oldest one when there are too many.
func TestTickets(t *testing.T) {
	k, now := newTickets(), time.Now()
	late := k.issue("a", now)
	if k.use(late, "a", now.Add(ticketFor+time.Second)) {
		t.Error("an old ticket counts")
	}
	first := k.issue("a", now)
	for i := range maxTickets {
		k.issue("a", now.Add(time.Duration(i+1)*time.Millisecond))
	}
	if k.use(first, "a", now) || len(k.open) != maxTickets {
		t.Errorf("%d tickets, the oldest one counts", len(k.open))
	}
}

// TestActionPage: a job is cancelled with the keyboard alone; the dialog and the page of the audit
// violate neither the policy nor a rule of axe-core in both schemes; without actions there is no
// button.
func TestActionPage(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r, c := acting(t, nil)
	b := openBrowser(t)
	b.begin(r)
	key := func(name string, code int) {
		for _, kind := range []string{"keyDown", "keyUp"} {
			event := map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}
			if name == "Enter" {
				event["text"] = "\r"
			}
			b.call("Input.dispatchKeyEvent", event, nil)
		}
	}
	clean := func(what string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			b.look(1280, 900, scheme, false)
			if bad := append(b.violations(), b.axe()...); len(bad) > 0 {
				t.Errorf("%s, %s: %s", what, scheme, strings.Join(bad, "\n"))
			}
		}
	}
	b.eval(`location.hash = "#/jobs/one"`, nil)
	b.until("the button", `document.querySelector("button.act")`)
	b.until("the focus on it", `(document.querySelector("button.act").focus(),
		document.activeElement.textContent === "Cancel job")`)
	key("Enter", 13)
	b.until("the preview", `document.querySelector("dialog[open]")?.innerText.includes("Cancel job one of kind work")`)
	b.until("the focus on the confirmation", `document.activeElement.textContent === "Confirm"`)
	clean("the dialog")
	if gone(t, c, "one") {
		t.Fatal("the preview has cancelled the job")
	}
	key("Escape", 27)
	b.until("no dialog", `!document.querySelector("dialog")`)
	b.until("the focus on the button", `document.activeElement.textContent === "Cancel job"`)
	key("Enter", 13)
	b.until("the focus on the confirmation", `document.activeElement.textContent === "Confirm"`)
	child := jobstest.Job("child", "work")
	child.After = []string{"one"}
	if err := c.Queue.Submit(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	key("Enter", 13)
	b.until("the new preview", `document.querySelector("dialog[open]").innerText.includes("has changed")`)
	b.until("the child", `document.querySelector("dialog[open]").innerText.includes("wait for it: 1 (child)")`)
	b.forget() // the console has the status 409
	b.until("the focus on the confirmation", `document.activeElement.textContent === "Confirm"`)
	key("Enter", 13)
	b.until("the outcome", `document.querySelector("dialog[open]")?.innerText.includes("is asked to end")`)
	testkit.Until(t, "the job is cancelled", func() bool { return gone(t, c, "one") })
	clean("the outcome")
	key("Enter", 13)
	b.until("no dialog", `!document.querySelector("dialog")`)
	b.eval(`location.hash = "#/audit"`, nil)
	b.until("the audit", `document.querySelector("main").innerText.includes("job.cancel")`)
	clean("the page of the audit")
	b.eval(`location.hash = "#/tenants"`, nil)
	b.eval(`location.hash = "#/queue"`, nil)
	b.until("the buttons of pools", `[...document.querySelectorAll("button.act")].filter(x =>
		x.textContent === "Pause").length >= 2`)
	clean("the queue")

	reads, _ := acting(t, func(o *Options) { o.Actions = nil })
	b.open(reads.base + "#t=" + url.PathEscape(testToken))
	b.until("the overview", `document.body.innerText.includes("Needs attention")`)
	b.eval(`location.hash = "#/jobs/one"`, nil)
	b.until("the job", `document.querySelector("main").innerText.includes("Why it waits")`)
	var buttons int
	if b.eval(`document.querySelectorAll("button.act").length`, &buttons); buttons != 0 {
		t.Errorf("%d buttons for actions of a dashboard that only reads", buttons)
	}
}
