package travel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func (c *testCluster) guide(edit func(*Options)) *Guide {
	c.t.Helper()
	o := Options{Conn: c.conn}
	if edit != nil {
		edit(&o)
	}
	g, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := g.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return g
}

// TestAt: a view of two moments has the values of each, what differs, and what the entries were.
func TestAt(t *testing.T) {
	c := newCluster(t)
	c.agent("a", nil)
	s := c.create(crowd)
	observe := func(agents ...uint32) uint64 {
		o := &batch.AgentObservations{Width: 1, Agent: agents}
		for range agents {
			o.Features = append(o.Features, 1)
		}
		return c.append(s, 1, swarms.Entry{Kind: swarms.EntryObserve, Data: c.encode(o)})
	}
	observe(1000, 1001, 1250)
	observe(1251)
	c.answered(s, 1, 2)
	g := c.guide(nil)
	v, err := g.At(t.Context(), Question{Swarm: s.ID, Shard: 1, Entry: 1, And: 2, Group: 12, First: 50, Agents: 3})
	if err != nil {
		t.Fatal(err)
	}
	if v.First != 1 || v.Last != 2 || v.FirstGroup != 10 || v.EndGroup != 20 || v.PerGroup != 100 || *v.Same ||
		v.Group.FirstAgent != 1250 || v.Group.Agents != 3 || fmt.Sprint(v.Moments[0].Entry.Groups) != "[10 12]" ||
		v.Moments[0].Entry.Count != 3 || v.Moments[1].Entry.Answer != swarms.EntryDecide {
		t.Errorf("the view is %+v", v)
	}
	for _, of := range v.Group.Variables {
		switch {
		case of.Per == "agent" && len(of.At) != 3, of.Per == "group" && len(of.At) != 1:
			t.Errorf("%s has %d rows", of.Name, len(of.At))
		case of.Name == "vote" && (fmt.Sprint(of.Changed) != "[1]" || of.At[0][0] == uint8(0) ||
			of.At[1][0] != uint8(0)):
			t.Errorf("the votes are %v, then %v, and differ in %v: want the vote of agent 1251 alone", of.At, of.And,
				of.Changed)
		case len(of.Changed) > 0 && of.Per == "agent" && fmt.Sprint(of.Changed) != "[1]":
			t.Errorf("%s differs in the agents %v, want the second one alone", of.Name, of.Changed)
		}
	}
	// The first group of the entry, unless a group is named; as many agents as the group has.
	if v, err = g.At(t.Context(), Question{Swarm: s.ID, Shard: 1, Entry: 2, Group: -1, Agents: 5000}); err != nil ||
		v.Group.Group != 12 || v.Group.Agents != 100 || v.Same != nil {
		t.Errorf("the group of the entry: %+v, %v", v.Group, err)
	}
	_, err = g.At(t.Context(), Question{Swarm: s.ID, Shard: 1, Entry: 2, Group: 9})
	if !errors.Is(err, jobs.ErrNotFound) ||
		!strings.Contains(err.Error(), "shard 1 of 3 has the groups 10 to 19") {
		t.Errorf("a group of another shard: %v", err)
	}
	if _, err := g.At(t.Context(), Question{Swarm: "none", Entry: 1}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an unknown swarm: %v", err)
	}
	if _, err := g.At(t.Context(), Question{Swarm: s.ID, Shard: 3, Entry: 1}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an unknown shard: %v", err)
	}
	e, err := g.Entry(t.Context(), s.ID, 1, 1, 12)
	if err != nil || len(e.Rows) != 1 || *e.Rows[0].Agent != 1250 || e.Rows[0].Group != 12 || e.Count != 3 ||
		strings.Join(e.Columns, ",") != "a" || *e.Rows[0].Values[0] != 1 {
		t.Errorf("the entry is %+v, %v", e, err)
	}
}

// TestProgress: a question whose time is over has a view with its progress, and the next question
// continues it.
func TestProgress(t *testing.T) {
	c := newCluster(t)
	s := c.create(cells)
	for range 500 {
		c.append(s, 0, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":3}`)})
	}
	g, parts := c.guide(nil), 0
	for {
		v, err := g.At(t.Context(), Question{Swarm: s.ID, Entry: 400, And: 500, Agents: 1, Within: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if v.Progress == nil {
			if len(v.Moments) != 2 || v.Group == nil || *v.Same {
				t.Errorf("the view is %+v", v)
			}
			break
		}
		if parts++; v.Moments != nil || v.Group != nil || v.Progress.Entry >= v.Progress.Of {
			t.Errorf("a view with progress has %+v", v)
		}
	}
	if parts == 0 {
		t.Error("500 entries are replayed at once within a millisecond")
	}
}

// TestClose: a closed guide ends the question in progress, and answers no further one.
func TestClose(t *testing.T) {
	c := newCluster(t)
	s := c.create(cells)
	for range 300 {
		c.append(s, 0, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":100}`)})
	}
	g, began, failed := c.guide(nil), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := g.At(t.Context(), Question{Swarm: s.ID, Entry: 300, Progress: func(uint64, uint64) {
			select {
			case began <- struct{}{}:
			default:
			}
		}})
		failed <- err
	}()
	<-began
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the question that was asked: %v", err)
	}
	if _, err := g.At(t.Context(), Question{Swarm: s.ID, Entry: 1}); !errors.Is(err, context.Canceled) &&
		!errors.Is(err, ErrClosed) {
		t.Errorf("a question after Close: %v", err)
	}
}

// TestSources: a row of a run names its series and its source, without the login in its URI, and a
// series is found by its name.
func TestSources(t *testing.T) {
	c := newCluster(t)
	j := jobstest.Job("watch", "stream")
	j.Spec = json.RawMessage(`{"name":"shops","manifest":"object:watch.json"}`)
	if err := c.conn.Queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.Objects.PutObject(t.Context(), "watch.json", jobs.OwnerOf(j), strings.NewReader(
		`[{"name":"north","uri":"file:in/north.csv"},{"name":"south","uri":"http://me:hunter2@host/south.csv"}]`,
	)); err != nil {
		t.Fatal(err)
	}
	s := c.create(shops)
	if _, err := c.conn.Swarms.ChangeSwarm(t.Context(), s, func(s *swarms.Swarm) { s.Owner = "watch" }); err != nil {
		t.Fatal(err)
	}
	o := &batch.Observations{
		Group: []uint32{0, 1, 1}, Row: []uint64{4, 8, 9}, Time: []int64{1, 2, 3}, Read: []int64{4, 5, 6}, Width: 1,
		Features: []float32{1, float32(math.Inf(1)), 3}, Timestamp: []string{"a", "b", "c"},
		Value: []float64{1, math.Inf(1), 3},
	}
	c.append(s, 0, swarms.Entry{Kind: swarms.EntryObserve, Data: c.encode(o)})
	g := c.guide(nil)
	e, err := g.Entry(t.Context(), s.ID, 0, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Rows) != 2 || e.Rows[0].Series != "south" || e.Rows[0].Source != "http://host/south.csv" ||
		e.Rows[0].Row != 8 || e.Rows[0].Values[0] != nil || *e.Rows[1].Values[0] != 3 || e.Job != "watch" ||
		e.Answer != "" || fmt.Sprint(e.Groups) != "[0 1]" || e.Count != 3 {
		t.Errorf("the entry is %+v", e)
	}
	if n, err := g.GroupOf(t.Context(), s.ID, "south"); n != 1 || err != nil {
		t.Errorf("south is group %d, %v", n, err)
	}
	if _, err := g.GroupOf(t.Context(), s.ID, "west"); !errors.Is(err, jobs.ErrNotFound) ||
		!strings.Contains(err.Error(), "it has 2 series, north to south") {
		t.Errorf("an unknown series: %v", err)
	}
}
