package auth_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// TestDenied uses a client of the NATS library: the server refuses every subject, or the subject
// has no subscriber.
func TestDenied(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.agent(t)
	streams := []string{
		"EXO_JOBS_CPU", "EXO_JOBS_GPU", "EXO_RESULTS", "EXO_DEAD", "EXO_SCHED", "EXO_WAIT",
		"EXO_JOBLOGS", "EXO_PUSH", "KV_EXO_CONTROL", "KV_EXO_TENANTS", "KV_EXO_CRON", "KV_EXO_LEASES",
		"OBJ_EXO_OBJECTS", "EXO_AUDIT", "EXO_DECISIONS",
	}
	of := func(pattern string) (all []string) {
		for _, s := range streams {
			all = append(all, strings.ReplaceAll(pattern, "NAME", s))
		}
		return all
	}
	changes := slices.Concat(of("$JS.API.STREAM.CREATE.NAME"), of("$JS.API.STREAM.UPDATE.NAME"),
		of("$JS.API.STREAM.DELETE.NAME"))
	reaches := slices.Concat(changes, of("$JS.API.STREAM.PURGE.NAME"), of("$JS.API.STREAM.MSG.DELETE.NAME"),
		of("$JS.API.STREAM.SNAPSHOT.NAME"), of("$JS.API.STREAM.RESTORE.NAME"),
		of("$JS.API.CONSUMER.CREATE.NAME"), of("$JS.API.CONSUMER.CREATE.NAME.c"),
		of("$JS.API.CONSUMER.CREATE.NAME.c.exo.job.>"), of("$JS.API.CONSUMER.DURABLE.CREATE.NAME.c"),
		of("$JS.API.CONSUMER.DELETE.NAME.c"), of("$JS.API.CONSUMER.MSG.NEXT.NAME.c"),
		of("$JS.API.CONSUMER.PAUSE.NAME.c"), of("$JS.API.DIRECT.GET.NAME"), of("$JS.API.DIRECT.GET.NAME.exo.res.x"),
		[]string{
			"exo.job.cpu.echo.normal.acme.x", "exo.job.cpu.echo.normal.umbrella.x", "exo.sched.cpu.echo.normal.acme.x",
			"exo.due.cpu.echo.normal.acme.x", "exo.wait.cpu.echo.normal.acme.x",
			"exo.edge.a.b", "exo.fired.n.t", "exo.res.x", "exo.done.x", "exo.dead.cpu.echo.acme.x", "exo.progress.x",
			"exo.joblog.x", "exo.wake.cpu.echo.normal.acme", "exo.log.s.0.in", "exo.push.x", "exo.out.x",
			"exo.agent.drain.a", "exo.audit",
			"$KV.EXO_CONTROL.pause.cpu", "$KV.EXO_TENANTS.cpu.acme", "$KV.EXO_CANCEL.x", "$KV.EXO_CRON.n",
			"$KV.EXO_LEASES.k", "$KV.EXO_SWARMS.s", "$KV.EXO_AGENTS.a", "$O.EXO_OBJECTS.C.x", "$O.EXO_OBJECTS.M.x",
			"$JS.ACK.EXO_JOBS_CPU.echo+normal+acme.1.1.1.1.1", "_INBOX.operator.x", "_INBOX.agent.x",
			"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.PING",
		})
	ears := []string{
		">", "*", "_INBOX.>", "_INBOX.operator.>", "_INBOX.agent.>", "_R_.>", "$JS.>", "$JS.API.>",
		"$KV.>", "$O.>", "$SYS.>", "exo.>", "exo.job.>", "exo.res.*", "exo.log.>", "exo.dead.>",
	}
	for user, c2 := range map[string]struct{ publish, subscribe []string }{
		"acme-submitter": {
			slices.Concat(reaches, of("$JS.API.STREAM.MSG.GET.NAME"), of("$JS.API.STREAM.INFO.NAME"), []string{
				"$JS.API.INFO", "$JS.API.STREAM.LIST", "exo.tenant.acme.submit", "exo.tenant.umbrella.submit",
				"exo.tenant.umbrella.result.x", "exo.tenant.umbrella.cancel.x",
				"exo.tenant.acme.list.cpu", "exo.tenant.umbrella.list.cpu", "exo.tenant.umbrella.logs.x",
				"exo.tenant.umbrella.retry.x", "exo.api.other", "exo.api.react", "exo.api.list.cpu.x",
				"exo.api.logs.x.y",
			}),
			append(slices.Clone(ears), "exo.progress.*", "exo.done.*", "exo.joblog.*", "exo.joblog.acme--x",
				"exo.progress.acme--x", "exo.api.>", "exo.tenant.>", "_INBOX.umbrella-submitter.>",
				"_INBOX.acme-submitter2.>"),
		},
		auth.Viewer: {
			append(slices.Clone(reaches), "exo.api.submit", "exo.api.cancel.x", "exo.api.list.cpu", "exo.api.logs.x",
				"exo.api.retry.x", "exo.api.react", "exo.tenant.acme.submit", "exo.tenant.acme.logs.x"),
			append(slices.Clone(ears), "exo.api.>", "exo.tenant.>", "_INBOX.viewer2.>"),
		},
		auth.Agent: {
			slices.Concat(changes, []string{
				"$JS.API.STREAM.PURGE.EXO_RESULTS", "$JS.API.STREAM.PURGE.EXO_DEAD", "$JS.API.STREAM.PURGE.EXO_JOBLOGS",
				"$JS.API.STREAM.PURGE.EXO_PUSH", "$JS.API.STREAM.MSG.DELETE.EXO_PUSH", "exo.push.a.b",
				"$JS.API.STREAM.MSG.DELETE.EXO_JOBLOGS", "$JS.API.STREAM.PURGE.KV_EXO_CONTROL",
				"$JS.API.STREAM.PURGE.KV_EXO_TENANTS", "$JS.API.STREAM.PURGE.KV_EXO_LEASES",
				"$JS.API.STREAM.MSG.DELETE.EXO_JOBS_CPU", "$JS.API.STREAM.MSG.DELETE.KV_EXO_CONTROL",
				"$JS.API.CONSUMER.DELETE.EXO_JOBS_CPU.echo+normal+acme",
				"$JS.API.CONSUMER.DELETE.EXO_SCHED.promoter", "$JS.API.CONSUMER.PAUSE.EXO_JOBS_CPU.c",
				"$JS.API.STREAM.UPDATE.EXO_JOBS_CPU_MEMORY", "$JS.API.STREAM.DELETE.EXO_JOBS_CPU_ONE",
				"$JS.API.CONSUMER.DELETE.EXO_JOBS_CPU_MEMORY.echo+normal+acme",
				"$JS.API.STREAM.SNAPSHOT.EXO_JOBS_CPU", "$JS.API.STREAM.RESTORE.EXO_JOBS_CPU",
				"$JS.API.STREAM.LEADER.STEPDOWN.EXO_JOBS_CPU",
				"$JS.API.ACCOUNT.PURGE.x", "$KV.EXO_CONTROL.pause.cpu", "$KV.EXO_CONTROL.tenant.acme",
				"exo.audit", "$JS.API.STREAM.PURGE.EXO_AUDIT", "$JS.API.STREAM.MSG.DELETE.EXO_AUDIT",
				"exo.agent.drain.a", "exo.api.submit", "exo.api.retry.x", "exo.tenant.acme.submit",
				"exo.tenant.acme.list.cpu", "exo.wake.cpu.echo.normal.acme", "exo.done.x",
				"_INBOX.operator.x", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.PING",
			}),
			append(slices.DeleteFunc(slices.Clone(ears), func(s string) bool { return s == "_INBOX.agent.>" }),
				"_INBOX.viewer.>"),
		},
		auth.GPUAgent: {
			[]string{
				"exo.audit", "$JS.API.STREAM.PURGE.EXO_AUDIT", "$JS.API.STREAM.MSG.DELETE.EXO_AUDIT",
				"$JS.API.STREAM.DELETE.EXO_AUDIT", "$JS.API.STREAM.UPDATE.EXO_AUDIT",
				"$JS.API.STREAM.MSG.GET.EXO_AUDIT",
			},
			[]string{"exo.audit"},
		},
		auth.Pusher: {
			append(slices.Clone(reaches[:len(reaches)-2]), "$SYS.REQ.SERVER.PING", "$SYS.REQ.CLAIMS.DELETE",
				"$SYS.REQ.ACCOUNT.x.CONNZ", "$SYS.REQ.SERVER.x.RELOAD"),
			append(slices.Clone(ears), "$SYS.ACCOUNT.>"),
		},
	} {
		t.Run(user, func(t *testing.T) {
			nc, said := c.raw(t, user)
			got := refusals(t, nc, said, c2.publish, func(s string) error { return nc.Publish(s, nil) })
			for _, s := range c2.publish {
				if !slices.Contains(got, s) {
					t.Errorf("may publish to %s", s)
				}
			}
			got = refusals(t, nc, said, c2.subscribe,
				func(s string) error { _, err := nc.SubscribeSync(s); return err })
			for _, s := range c2.subscribe {
				if !slices.Contains(got, s) {
					t.Errorf("may subscribe to %s", s)
				}
			}
		})
	}
	// An operator may use any name. The names of the system account belong to nobody in the
	// operator's account.
	nc, said := c.raw(t, auth.Operator)
	for _, s := range []string{
		"$JS.API.STREAM.PURGE.EXO_AUDIT", "$JS.API.STREAM.MSG.DELETE.EXO_AUDIT", "$JS.API.STREAM.DELETE.EXO_AUDIT",
	} {
		if err := nc.Publish(s, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-said:
			if !strings.Contains(err.Error(), s) {
				t.Errorf("an operator removes records by %s: %v, want a refusal", s, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("an operator may publish to %s", s)
		}
	}
	for _, s := range []string{"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.PING", "$SYS.REQ.CLAIMS.DELETE"} {
		if _, err := nc.RequestWithContext(within(t), s, nil); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", s, err)
		}
	}
	err := natsconn.PushAccounts(within(t), c.options(auth.Operator), []string{"x"})
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("an operator changes accounts: %v", err)
	}
}

// TestNobody: a client without credentials, or with the credentials of another cluster, is refused,
// and the error says what to do.
func TestNobody(t *testing.T) {
	t.Parallel()
	c, other := start(t), start(t)
	for name, login := range map[string]natsconn.Login{
		"nobody":   {},
		"a token":  {Token: "x"},
		"stranger": {Credentials: other.folder.CredsFile(auth.Operator)},
	} {
		conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: c.server.URL(), Login: login})
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "does not let") || name == "stranger" &&
			!strings.Contains(err.Error(), "user operator (operator)") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnswerElsewhere: the server sends an answer to the subject that the request names, even if
// the client may not publish there. From the accounts of tenants and viewers that leads nowhere;
// the last case shows that the same request of an agent, which is in the account with the streams,
// would be stored, so that this test is of something.
func TestAnswerElsewhere(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.agent(t)
	operator := c.connect(t, auth.Operator)
	ctx := within(t)
	paused := func() bool {
		s, err := operator.Queue.Stats(ctx, jobs.PoolGPU)
		if err != nil {
			t.Fatal(err)
		}
		return s.Paused
	}
	for user, subject := range map[string]string{
		"acme-submitter": "exo.api.cron.list",
		auth.Viewer:      "$JS.API.STREAM.INFO.EXO_JOBS_CPU",
	} {
		nc, said := c.raw(t, user)
		if err := nc.PublishRequest(subject, "$KV.EXO_CONTROL.pause.gpu", nil); err != nil {
			t.Fatal(err)
		}
		for range 10 { // answers that come through after it
			if _, err := nc.RequestWithContext(ctx, subject, nil); err != nil {
				t.Fatal(err)
			}
		}
		if paused() {
			t.Errorf("%s has paused a pool", user)
		}
		if len(said) > 0 {
			t.Errorf("%s: %v", user, <-said)
		}
	}
	nc, _ := c.raw(t, auth.Agent)
	if err := nc.PublishRequest("$JS.API.STREAM.INFO.EXO_JOBS_CPU", "$KV.EXO_CONTROL.pause.gpu", nil); err != nil {
		t.Fatal(err)
	}
	for !paused() {
		if ctx.Err() != nil {
			t.Fatal("agents cannot do it any more: docs/operations.md says that they can")
		}
	}
}

// TestExpired: the server ends the connection when the credentials expire, and a new connection
// gets that reason.
func TestExpired(t *testing.T) {
	t.Parallel()
	c := start(t)
	if _, err := c.folder.AddUser(auth.User{
		Name: "short", Role: auth.Agent,
		Expires: time.Now().Add(3 * time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := natsq.Connect(t.Context(), c.options("short"))
	if err == nil { // a busy machine may be too late
		defer conn.Close()
		ctx := within(t)
		select {
		case <-conn.Refused():
		case <-ctx.Done():
			t.Fatal("it is connected still")
		}
		if _, err := conn.Registry.Agents(ctx); !errors.Is(err, jobs.ErrDenied) ||
			!strings.Contains(err.Error(), "user short (agent)") || !strings.Contains(err.Error(), "expired at") {
			t.Error(err)
		}
	}
	if _, err := natsq.Connect(t.Context(), c.options("short")); err == nil ||
		!strings.Contains(err.Error(), "the credentials expired at") {
		t.Error(err)
	}
	if _, err := c.folder.AddUser(auth.User{
		Name: "past", Role: auth.Agent,
		Expires: time.Now().Add(-time.Second),
	}); err == nil {
		t.Error("a user that has expired was made")
	}
}

// TestRevoked: a running server that is told ends the user's connections and lets it in no more; a
// restart, also with an old file, does not bring it back. Others stay.
func TestRevoked(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, u := range []auth.User{
		{Name: "bad", Role: auth.Submitter, Tenant: "acme"},
		{Name: "worse", Role: auth.Agent},
	} {
		if _, err := c.folder.AddUser(u); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(c.folder.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{}
	for _, u := range []string{"bad", "worse"} {
		data, err := os.ReadFile(c.folder.CredsFile(u))
		if err != nil {
			t.Fatal(err)
		}
		kept[u] = filepath.Join(t.TempDir(), u)
		if err := os.WriteFile(kept[u], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	login := func(u string) natsconn.Options {
		return natsconn.Options{URL: c.server.URL(), Login: natsconn.Login{Credentials: kept[u]}}
	}
	out := func(when string) {
		t.Helper()
		for u := range kept {
			conn, err := natsq.Connect(t.Context(), login(u))
			if err == nil {
				conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "does not let user "+u) ||
				!strings.Contains(err.Error(), "revoked") {
				t.Errorf("%s: %s: %v", when, u, err)
			}
		}
	}
	c.agent(t)
	bad, err := gateway.Connect(t.Context(), login("bad"))
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	if _, err := bad.Submit(within(t), job("echo", "x")); err != nil {
		t.Fatal(err)
	}
	worse, err := natsq.Connect(t.Context(), login("worse"))
	if err != nil {
		t.Fatal(err)
	}
	defer worse.Close()
	for u := range kept {
		if err := c.folder.Revoke(u); err != nil {
			t.Fatal(err)
		}
		if err := c.folder.Revoke(u); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	push := func() {
		t.Helper()
		claims, err := c.folder.Accounts()
		if err != nil {
			t.Fatal(err)
		}
		if err := natsconn.PushAccounts(within(t), c.options(auth.Pusher), claims); err != nil {
			t.Fatal(err)
		}
	}
	push()
	ctx := within(t)
	select {
	case <-worse.Refused():
	case <-ctx.Done():
		t.Fatal("worse is connected still")
	}
	for ctx.Err() == nil { // until its connection is gone, too
		if _, err = bad.Submit(ctx, job("echo", natsconn.NewID())); errors.Is(err, jobs.ErrDenied) {
			break
		}
	}
	if !errors.Is(err, jobs.ErrDenied) || !strings.Contains(err.Error(), "user bad (submitter of tenant acme)") {
		t.Error(err)
	}
	out("pushed")
	c.client(t, "acme-submitter").Close()
	users, err := c.folder.Users()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range users {
		if u.Revoked != (u.Name == "bad" || u.Name == "worse") {
			t.Errorf("%+v", u)
		}
	}
	if plan, err := c.folder.Plan(auth.Options{}); err != nil || len(plan) > 0 {
		t.Errorf("init would take revocations back: %v, %v", plan, err)
	}
	if err := c.folder.Revoke("nobody"); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	// The file of before, on a server that was told.
	port := c.port(t)
	c.server.Close()
	if err := os.WriteFile(c.folder.ConfigFile(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	c.serve(t, port) // the agent comes back
	out("restarted with an old file")
	c.connect(t, auth.Operator).Close()
}

// TestInboxes: one submitter does not get the answers of another of its tenant.
func TestInboxes(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.agent(t)
	if _, err := c.folder.AddUser(auth.User{Name: "eve", Role: auth.Submitter, Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	eve, said := c.raw(t, "eve")
	heard := make(chan string, 100)
	for _, s := range []string{"_INBOX.>", "_INBOX.acme-submitter.>", "_INBOX.*.*", ">", "_INBOX.eve.>"} {
		if _, err := eve.Subscribe(s, func(m *nats.Msg) { heard <- m.Subject }); err != nil {
			t.Fatal(err)
		}
	}
	if got := refusals(t, eve, said, nil, func(s string) error {
		_, err := eve.SubscribeSync(s)
		return err
	}); len(got) != 4 {
		t.Errorf("refused: %v", got)
	}
	me := c.client(t, "acme-submitter")
	if _, err := me.Submit(within(t), job("echo", "x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := eve.RequestWithContext(ctx, "exo.api.cron.list", nil); err != nil { // behind the answer to me
		t.Fatal(err)
	}
	for len(heard) > 0 {
		if s := <-heard; !strings.HasPrefix(s, "_INBOX.eve.") {
			t.Errorf("heard %s", s)
		}
	}
}
