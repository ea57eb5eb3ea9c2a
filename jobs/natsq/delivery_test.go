package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// delivered is a worker whose queue is empty, and what it replies to deliveries that a test makes.
type delivered struct {
	*Worker
	t       *testing.T
	in      *nats.Subscription
	replies *nats.Subscription
	n       int
}

func newDelivered(t *testing.T, handlers map[string]jobs.Handler) *delivered {
	t.Helper()
	_, c := jobstest.InProcess(t, Connect)
	w := worker(t, c, handlers)
	d := &delivered{Worker: w, t: t}
	var err error
	if d.in, err = c.NC.SubscribeSync("none"); err != nil {
		t.Fatal(err)
	}
	if d.replies, err = c.NC.SubscribeSync("$JS.ACK.TEST.>"); err != nil {
		t.Fatal(err)
	}
	return d
}

// storedAt is when the queue stored the jobs of deliveries.
var storedAt = time.Unix(1_800_000_000, 0)

// deliver returns the delivery of a message on a subject, which the worker holds.
func (d *delivered) deliver(subject string, attempt int, data []byte) *nats.Msg {
	d.n++
	m := &nats.Msg{
		Subject: subject, Data: data, Header: nats.Header{}, Sub: d.in,
		Reply: fmt.Sprintf("$JS.ACK.TEST.c.%d.%d.%d.%d.0", attempt, d.n, d.n, storedAt.UnixNano()),
	}
	d.heartbeats.Add(m)
	d.takeSlot(m)
	return m
}

// takeSlot counts a delivery as a job of the default tenant.
func (d *delivered) takeSlot(m *nats.Msg) {
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Tenant: jobs.DefaultTenant}
	d.limits.Began(s, d.limits.Reserve(s, 1), []*nats.Msg{m})
}

func (d *delivered) job(j jobs.Job, attempt int) *nats.Msg {
	d.t.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.deliver(wire.SourceOf(j).Job(j.ID), attempt, data)
}

// next returns the next reply that is no renewal of a lease. The worker renews the leases of all
// deliveries that it holds, at moments that no test chooses.
func (d *delivered) next() (*nats.Msg, error) {
	for {
		r, err := d.replies.NextMsg(20 * time.Second)
		if err != nil || string(r.Data) != "+WPI" {
			return r, err
		}
	}
}

// reply returns what the worker replies to a delivery.
func (d *delivered) reply(m *nats.Msg) string {
	d.t.Helper()
	r, err := d.next()
	if err != nil || r.Subject != m.Reply {
		d.t.Fatalf("the reply to %s: %+v, %v", m.Reply, r, err)
	}
	return string(r.Data)
}

// silent fails if the worker has replied anything.
func (d *delivered) silent(name string) {
	d.t.Helper()
	if err := d.c.NC.Publish("$JS.ACK.TEST.end", nil); err != nil {
		d.t.Fatal(err)
	}
	if r, err := d.next(); err != nil {
		d.t.Errorf("%s: %v", name, err)
	} else if r.Subject != "$JS.ACK.TEST.end" {
		d.t.Errorf("%s: a reply %q to %s", name, r.Data, r.Subject)
	}
}

// holds reports whether the lease of a delivery is renewed, and whether it has a slot.
func (d *delivered) holds(m *nats.Msg) (lease, slot bool) {
	before := d.limits.Running()[jobs.DefaultTenant]
	d.limits.End(m)
	if slot = d.limits.Running()[jobs.DefaultTenant] < before; slot {
		d.takeSlot(m)
	}
	return d.heartbeats.Has(m), slot
}

// letters returns the ids of all dead letters.
func (d *delivered) letters() (ids []string) {
	d.t.Helper()
	if err := d.c.Letters.List(d.t.Context(), jobs.DeadFilter{},
		func(l jobs.DeadLetter) bool { ids = append(ids, l.ID); return true }); err != nil {
		d.t.Fatal(err)
	}
	return ids
}

// badID is the id of the letter of a message that has none: half of its digest.
var badID = regexp.MustCompile("^bad-[0-9a-f]{32}$")

// TestDeliveries: some deliveries are jobs to run. Other deliveries are dropped, given back, or
// ended with a result and a letter.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	d := newDelivered(t, nil)
	ctx := t.Context()
	with := func(id string, change func(j *jobs.Job)) jobs.Job {
		j := plain(id)
		change(&j)
		return j
	}
	for id, text := range map[string]string{"over": "", "broken": "{"} {
		r := jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done, Finished: time.Now()}
		m, err := queue.ResultMessage(r, 60)
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			m.Data = []byte(text)
		}
		if err := d.c.PublishMsg(ctx, d.c.RetryIdempotent, "store", m); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		j       jobs.Job
		attempt int
		last    bool
	}{
		"the first":           {plain("a"), 1, false},
		"one before the last": {plain("a"), 4, false},
		"the last":            {plain("a"), 5, true},
		"behind the last":     {plain("a"), 10, true},
		"of one attempt":      {with("a", func(j *jobs.Job) { j.MaxAttempts = 1 }), 1, true},
		"before its deadline": {with("a", func(j *jobs.Job) { j.Deadline = time.Now().Add(time.Hour) }), 1, false},
		"over, says another":  {plain("over"), 1, false}, // the first attempt reads no result
	} {
		m := d.job(c.j, c.attempt)
		m.Header.Set(queue.HeaderForgiven, "7")
		x := d.open(ctx, m)
		if x == nil {
			t.Errorf("%s: it is not run", name)
			continue
		}
		if x.id != c.j.ID || x.src != wire.SourceOf(c.j) || x.attempt != c.attempt || x.job.LastAttempt != c.last ||
			!x.queued.Equal(storedAt) || x.forgiven != 7 || x.job.Lane == "" || x.m != m {
			t.Errorf("%s: %+v", name, x)
		}
		if lease, slot := d.holds(m); !lease || !slot {
			t.Errorf("%s: lease %v, slot %v", name, lease, slot)
		}
		d.silent(name)
		d.release(m)
		if lease, slot := d.holds(m); lease || slot {
			t.Errorf("%s, released: lease %v, slot %v", name, lease, slot)
		}
	}
	bare := d.deliver("exo.job.cpu.k.normal.default.a", 1, []byte(`{"v":1,"id":"a","pool":"cpu","kind":"k","spec":1}`))
	bare.Reply = "none"
	if x := d.open(ctx, bare); x == nil || x.attempt != 1 || !x.queued.IsZero() {
		t.Errorf("a delivery that says nothing of itself: %+v", x)
	}
	gone := &jobs.ObjectRef{Name: "spec-gone", Size: 1, SHA256: strings.Repeat("0", 64)}
	data := func(j jobs.Job) []byte {
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	letters := 0
	for name, c := range map[string]struct {
		m      *nats.Msg
		reply  string
		id     string // of the result
		code   jobs.Code
		want   string
		letter bool
	}{
		"no job's subject": {d.deliver("exo.job.cpu.k", 1, data(plain("b1"))), "+TERM ", "", "", "", false},
		"no id":            {d.deliver("exo.job.cpu.k.normal.default", 1, data(plain("b2"))), "+ACK", "", "", "", true},
		"a bad id": {
			d.deliver("exo.job.cpu.k.normal.default.b 3", 1, data(plain("b3"))), "+ACK", "", "", "",
			true,
		},
		"another's id": {
			d.deliver("exo.job.cpu.k.normal.default.b4", 1, data(plain("x"))), "+ACK", "b4",
			jobs.CodeInvalid, "the subject must be exo.job.cpu.k.normal.default.x", true,
		},
		"another's kind": {
			d.deliver("exo.job.cpu.l.normal.default.b5", 1, data(plain("b5"))), "+ACK", "b5",
			jobs.CodeInvalid, "the subject must be exo.job.cpu.k.normal.default.b5", true,
		},
		"no JSON": {
			d.deliver("exo.job.cpu.k.normal.default.b6", 1, []byte("{")), "+ACK", "b6",
			jobs.CodeInvalid, "", true,
		},
		"late": {
			d.job(with("b7", func(j *jobs.Job) { j.Deadline = time.Now().Add(-time.Second) }), 1),
			"+ACK", "b7", jobs.CodeDeadline, "was not begun by", false,
		},
		"too often": {d.job(plain("b8"), 11), "+ACK", "b8", jobs.CodeInternal, "was given out 10 times", true},
		"no spec": {
			d.job(with("b9", func(j *jobs.Job) { j.Spec, j.SpecRef = nil, gone }), 1), "+ACK", "b9",
			jobs.CodeInvalid, "its spec is not in the object store any more", true,
		},
		"over":            {d.job(plain("over"), 2), "+ACK", "over", "", "", false},
		"a broken result": {d.job(plain("broken"), 2), "-NAK", "", "", "", false},
	} {
		if x := d.open(ctx, c.m); x != nil {
			t.Errorf("%s: it is run: %+v", name, x)
			continue
		}
		if got := d.reply(c.m); !strings.HasPrefix(got, c.reply) || c.reply == "-NAK" && got != "-NAK" ||
			c.reply == "+TERM " && !strings.Contains(got, `a job on the subject "exo.job.cpu.k"`) {
			t.Errorf("%s: the reply %q, want %s", name, got, c.reply)
		}
		d.silent(name)
		if lease, _ := d.holds(c.m); lease {
			t.Errorf("%s: its lease is renewed", name)
		}
		if c.id != "" {
			r, err := d.c.Results.Lookup(ctx, c.id)
			if err != nil || (r.Error == nil) != (c.code == "") || r.Error != nil &&
				(r.Error.Code != c.code || !strings.Contains(r.Error.Message, c.want)) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if c.letter {
			letters++
		}
		if got := d.letters(); len(got) != letters || c.letter && c.id == "" && !badID.MatchString(got[len(got)-1]) ||
			c.letter && c.id != "" && got[len(got)-1] != c.id {
			t.Errorf("%s: letters %v, want %d", name, got, letters)
		}
	}
}

// TestConclusions: what a handler returned, and why its context ended, decide what becomes of a
// job.
func TestConclusions(t *testing.T) {
	t.Parallel()
	d := newDelivered(t, nil)
	ctx := t.Context()
	failed := jobs.Errorf(jobs.CodeInput, "no such row")
	passing := jobs.Retry(errors.New("busy"))
	i := 0
	for name, c := range map[string]struct {
		err, cause error
		ending     bool
		attempt    int
		reply      string // "" for none
		code       jobs.Code
		letter     bool
	}{
		"done":                    {nil, nil, false, 1, "+ACK", "", false},
		"done while it ends":      {nil, jobs.ErrDrain, true, 1, "+ACK", "", false},
		"done although cancelled": {nil, jobs.ErrCancelled, false, 1, "+ACK", "", false},
		"cancelled":               {failed, jobs.ErrCancelled, false, 1, "+ACK", jobs.CodeCanceled, false},
		"cancelled while it ends": {failed, jobs.ErrCancelled, true, 1, "+ACK", jobs.CodeCanceled, false},
		"late":                    {failed, jobs.ErrDeadline, false, 1, "+ACK", jobs.CodeDeadline, false},
		"the worker ends":         {failed, jobs.ErrDrain, true, 1, "-NAK", "", false},
		"the worker is sick":      {failed, errors.New("sick"), false, 1, "", "", false},
		"asked to finish":         {failed, jobs.ErrFinish, false, 1, "+ACK", jobs.CodeInput, true},
		"unfit": {
			fmt.Errorf("x: %w", jobs.ErrUnfit), nil, false, 1, `-NAK {"delay": 1000000000}`,
			"", false,
		},
		"fenced":                   {fmt.Errorf("x: %w", jobs.ErrFenced), nil, false, 1, "", "", false},
		"tried again":              {passing, nil, false, 1, `-NAK {"delay": `, "", false},
		"tried again, before last": {passing, nil, false, 4, `-NAK {"delay": `, "", false},
		"the last attempt":         {passing, nil, false, 5, "+ACK", jobs.AsError(passing).Code, true},
		"failed":                   {failed, nil, false, 1, "+ACK", jobs.CodeInput, true},
	} {
		i++
		id := fmt.Sprint("a", i)
		before := len(d.letters())
		m := d.job(plain(id), c.attempt)
		x := d.open(ctx, m)
		d.conclude(ctx, x, 7, c.err, c.cause, c.ending)
		if c.reply != "" {
			if got := d.reply(m); !strings.HasPrefix(got, c.reply) || !strings.Contains(c.reply, "{") &&
				got != c.reply {
				t.Errorf("%s: the reply %q, want %q", name, got, c.reply)
			}
		}
		d.silent(name)
		// do releases the rest
		if lease, slot := d.holds(m); lease != (c.reply == "") || slot != (c.reply == "" || c.reply == "+ACK") {
			t.Errorf("%s: lease %v, slot %v", name, lease, slot)
		}
		r, err := d.c.Results.Lookup(ctx, id)
		switch {
		case c.reply != "+ACK":
			if !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%s: a result %+v, %v", name, r, err)
			}
		case err != nil || r.Attempts != c.attempt || r.Worker != "w" || (c.code == "") != (r.Status == jobs.Done) ||
			c.code == "" && string(r.Output) != "7" || c.code != "" && r.Error.Code != c.code:
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if after := len(d.letters()); (after > before) != c.letter {
			t.Errorf("%s: %d letters, then %d", name, before, after)
		}
	}
}

// TestSettled: the first result of a job stands, its spec goes when it is done, its swarm when it
// has failed, and one whose result cannot be stored stays.
func TestSettled(t *testing.T) {
	t.Parallel()
	d := newDelivered(t, nil)
	ctx := t.Context()
	if first, err := d.c.Results.Put(ctx, jobs.Result{
		Version: jobs.Version, JobID: "a", Kind: "k", Status: jobs.Done,
		Output: []byte("1"), Finished: time.Now(),
	}, 60); !first || err != nil {
		t.Fatal(first, err)
	}
	m := d.job(plain("a"), 1)
	d.settle(ctx, d.open(ctx, m), nil, jobs.Errorf(jobs.CodeInput, "x"))
	if got := d.reply(m); got != "+ACK" {
		t.Errorf("the second of two: %q", got)
	}
	if r, err := d.c.Results.Lookup(ctx, "a"); err != nil || r.Status != jobs.Done || len(d.letters()) != 0 {
		t.Errorf("the second of two: %+v, %v, letters %v", r, err, d.letters())
	}
	m = d.job(plain("b"), 1)
	d.stored(ctx, d.open(ctx, m), jobs.Result{JobID: "b", Status: jobs.Done}, false, errors.New("no room"))
	d.silent("a result that was not stored")
	d.stored(ctx, d.open(ctx, m), jobs.Result{JobID: "b", Status: jobs.Done}, false, nil) // refused, and there is none
	d.silent("a result that is not there")
	if lease, slot := d.holds(m); !lease || !slot {
		t.Errorf("a result that was not stored: lease %v, slot %v", lease, slot)
	}
	for id, err := range map[string]error{"c": nil, "d": jobs.Errorf(jobs.CodeInput, "x"), "e": jobs.ErrCancelled} {
		j := plain(id)
		j.Spec = []byte(`"` + strings.Repeat("x", jobs.MaxInline) + `"`)
		msg, ready, perr := d.c.Queue.Prepare(ctx, j)
		if perr != nil {
			t.Fatal(perr)
		}
		for sid, owner := range map[string]string{id: id, id + "-other": "another"} {
			s := swarms.Swarm{
				Version: jobs.Version, ID: sid, Nonce: swarms.NewNonce(), Owner: owner, Name: "n",
				Spec: json.RawMessage(`{}`), Groups: 1,
			}
			if err := d.c.Swarms.CreateSwarm(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		m := d.deliver(msg.Subject, 1, msg.Data)
		x := d.open(ctx, m)
		if x == nil || string(x.job.Spec) != string(j.Spec) {
			t.Fatalf("%s: its spec is not read", id)
		}
		d.settle(ctx, x, nil, err)
		if got := d.reply(m); got != "+ACK" {
			t.Errorf("%s: %q", id, got)
		}
		_, serr := d.c.Queue.Spec(ctx, ready.SpecRef)
		if kept := serr == nil; kept != (id == "d") {
			t.Errorf("%s: its spec: %v", id, serr)
		}
		if _, serr := d.c.Swarms.Swarm(ctx, id); (serr == nil) != (err == nil) {
			t.Errorf("%s: its swarm: %v", id, serr)
		}
		if _, serr := d.c.Swarms.Swarm(ctx, id+"-other"); serr != nil {
			t.Errorf("%s: another's swarm: %v", id, serr)
		}
	}
}

// TestProgress: progress of a job goes to its watchers. Progress that is not JSON is dropped.
func TestProgress(t *testing.T) {
	t.Parallel()
	d := newDelivered(t, nil)
	got := make(chan string, 10)
	stop, err := d.c.Results.Progress("a", func(data json.RawMessage) { got <- string(data) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	a := &task{id: "a", shown: d.current.begin("a", 1, "w")}
	defer d.current.end(a.shown)
	d.progress(a, func() {})
	d.progress(&task{id: "b"}, 1)
	d.progress(a, map[string]int{"rows": 3})
	select {
	case text := <-got:
		if text != `{"rows":3}` {
			t.Error(text)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("no news")
	}
	if _, err := d.c.Results.Progress("a b", nil); err == nil {
		t.Error("progress of no job")
	}
}

// TestTwoAttempts: when the earlier of two attempts at a job ends, which run at a time after a
// server was killed, the later one is still shown, has its own progress, and hears of a
// cancellation.
func TestTwoAttempts(t *testing.T) {
	t.Parallel()
	d := newDelivered(t, nil)
	begin := func(attempt int) (k *task, ctx context.Context, detach func()) {
		k = &task{id: "a", attempt: attempt, shown: d.current.begin("a", attempt, "w")}
		ctx, cancel := context.WithCancelCause(t.Context())
		return k, ctx, d.ctl.attach("a", 0, cancel)
	}
	first, one, detachFirst := begin(1)
	later, two, detachLater := begin(2)
	d.progress(later, "new")
	d.progress(first, "old")
	d.current.end(first.shown)
	detachFirst()
	got := d.current.answer("w", queue.RunningQuestion{Job: "a"}).Running
	if len(got) != 1 || got[0].Attempt != 2 || string(got[0].Progress) != `"new"` {
		t.Errorf("what runs is %+v", got)
	}
	if err := d.c.Queue.Cancel(t.Context(), jobs.Job{ID: "a"}, true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-two.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("the later attempt does not hear of the cancellation")
	}
	if one.Err() != nil || !errors.Is(context.Cause(two), jobs.ErrFinish) {
		t.Errorf("the attempts end with %v, %v", context.Cause(one), context.Cause(two))
	}
	d.current.end(later.shown)
	detachLater()
	if got := d.current.answer("w", queue.RunningQuestion{}).Running; len(got) != 0 || len(d.ctl.running) != 0 {
		t.Errorf("after both: %+v, %d attached", got, len(d.ctl.running))
	}
}
