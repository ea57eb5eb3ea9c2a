package swarmlog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSwarmRecords: a record claims its id alone, and is changed and removed only by callers that
// have read it.
func TestSwarmRecords(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	make := func(id, owner string) swarms.Swarm {
		s := swarms.Swarm{
			Version: jobs.Version, ID: id, Nonce: swarms.NewNonce(), Owner: owner, Name: "n",
			Spec: json.RawMessage(`{}`), Groups: 1,
		}
		if owner == "" {
			s.Shards = 1
		}
		return s
	}
	lasting, run := make("a", ""), make("b", "job")
	for _, s := range []swarms.Swarm{lasting, run, lasting} { // repeated
		if err := c.CreateSwarm(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{
		"a": "remove it with exoswarm swarm delete a",
		"b": "it is the swarm of the run of job job",
	} {
		if err := c.CreateSwarm(ctx, make(id, "")); !errors.Is(err, jobs.ErrExists) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	bad := make("c", "")
	if bad.Groups = 0; c.CreateSwarm(ctx, bad) == nil {
		t.Error("a swarm without groups")
	}
	if all, err := c.Swarms(ctx); err != nil || len(all) != 2 || all[0].ID != "a" || all[1].ID != "b" ||
		!all[0].Swarm.Same(lasting) {
		t.Errorf("%+v, %v", all, err)
	}
	other := make("a", "")
	if _, err := c.ChangeSwarm(ctx, other, func(*swarms.Swarm) { t.Error("another's is changed") }); !errors.Is(err,
		jobs.ErrNotFound) {
		t.Error(err)
	}
	if err := c.RemoveSwarm(ctx, other); err != nil {
		t.Error(err)
	}
	if now, err := c.Swarm(ctx, "a"); err != nil || !now.Same(lasting) || now.Ending {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := c.ChangeSwarm(ctx, lasting, func(s *swarms.Swarm) { s.Groups = 0 }); err == nil {
		t.Error("it has no groups now")
	}
	tries := 0
	changed, err := c.ChangeSwarm(ctx, lasting, func(s *swarms.Swarm) {
		if tries++; tries == 1 { // somebody else is faster
			if _, err := c.ChangeSwarm(ctx, lasting, func(s *swarms.Swarm) { s.Groups = 2 }); err != nil {
				t.Error(err)
			}
		}
		s.Name = "m"
	})
	if err != nil || tries != 2 || changed.Groups != 2 || changed.Name != "m" {
		t.Errorf("%+v after %d tries, %v", changed, tries, err)
	}
	if same, err := c.ChangeSwarm(ctx, lasting, func(*swarms.Swarm) {}); err != nil || same.Name != "m" {
		t.Errorf("%+v, %v", same, err)
	}
	for _, s := range []swarms.Swarm{changed, run} {
		l := c.Log(s.Key(), 0, swarms.In)
		stranger := c.Log(s.Key()+"x", 0, swarms.In)
		if err := errors.Join(l.Create(ctx), stranger.Create(ctx), c.RemoveSwarm(ctx, s),
			c.RemoveSwarm(ctx, s)); err != nil {
			t.Error(err)
		}
		if _, err := c.Swarm(ctx, s.ID); !errors.Is(err, jobs.ErrNotFound) {
			t.Error(err)
		}
		if _, err := l.Last(ctx); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("its log: %v", err)
		}
		if _, err := stranger.Last(ctx); err != nil {
			t.Errorf("another's log: %v", err)
		}
	}
	if _, err := c.ChangeSwarm(ctx, changed, func(*swarms.Swarm) {}); !errors.Is(err, jobs.ErrNotFound) {
		t.Error(err)
	}
	next := make("a", "")
	if err := c.CreateSwarm(ctx, next); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ChangeSwarm(ctx, next, func(s *swarms.Swarm) { s.Ending = true }); err != nil {
		t.Fatal(err)
	}
	last := make("a", "")
	if err := c.CreateSwarm(ctx, last); err != nil { // behind one that ends
		t.Error(err)
	}
	if now, err := c.Swarm(ctx, "a"); err != nil || !now.Same(last) {
		t.Errorf("%+v, %v", now, err)
	}
	data, _ := json.Marshal(last)
	for key, text := range map[string]string{"a": string(data), "x": string(data), "y": "{", "z": "{}"} {
		s, err := readSwarm(key, []byte(text))
		if s.ID != key || (err == nil) != (key == "a") || key == "x" &&
			!strings.Contains(err.Error(), `its id is "a"`) {
			t.Errorf("%s: %+v, %v", key, s, err)
		}
	}
	for _, id := range []string{"", "a.b", "*"} {
		if _, err := c.Swarm(ctx, id); err == nil || errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestSwarmsAreListed: every record is listed with its id, also one that cannot be read.
func TestSwarmsAreListed(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	if all, err := c.Swarms(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, id := range []string{"a", "b"} {
		if err := c.CreateSwarm(t.Context(), swarms.Swarm{
			Version: jobs.Version, ID: id, Name: "n",
			Groups: 3,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.RemoveSwarm(t.Context(), swarms.Swarm{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	all, err := c.Swarms(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "b" || all[0].Err != nil || all[0].Swarm.Groups != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}

// FuzzRecords: records of swarms that another program wrote are refused or valid.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"s","name":"n","spec":{},"groups":3,"created":"2026-01-31T12:00:00Z"}`))
	f.Add([]byte(`{"v":1,"id":"s","groups":-1}`))
	f.Add([]byte(`{"v":1,"id":"s","groups":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readSwarm("s", data)
		jobstest.Typed(t, err)
		if err == nil && (s.ID != "s" || s.Groups < 1 || s.Groups > swarms.MaxGroups) {
			t.Fatalf("%+v", s)
		}
	})
}

// FuzzEntry: headers of entries of logs may be anything.
func FuzzEntry(f *testing.F) {
	f.Add("observe", "7", "00-x")
	f.Add("", "-1", "")
	f.Add("x", "18446744073709551616", "\x00")
	f.Fuzz(func(t *testing.T, kind, ref, parent string) {
		e, err := entry(1, nats.Header{headerKind: {kind}, headerRef: {ref}, jobs.HeaderTraceparent: {parent}}, nil)
		jobstest.Typed(t, err)
		if err == nil && (e.Kind != kind || e.Seq != 1) {
			t.Fatalf("%+v", e)
		}
	})
}
