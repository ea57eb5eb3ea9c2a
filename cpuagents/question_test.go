package cpuagents_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// question puts a question behind all that is in a swarm's log, under a number that means nothing
// to its stream, and waits for the answer. It returns false when the log has ended.
func (c *cluster) question(ctx context.Context, t *testing.T, swarm, kind,
	data string,
) (answer swarms.Entry, asked bool) {
	t.Helper()
	record, err := c.conn.Swarms.Swarm(ctx, swarm)
	if err != nil {
		t.Errorf("Swarms.Swarm: %v, want no error", err)
		return answer, false
	}
	in, out := c.conn.Swarms.Log(record.Key(), 0, swarms.In), c.conn.Swarms.Log(record.Key(), 0, swarms.Out)
	for {
		last, err := in.Last(ctx)
		if err == nil && last.Kind == swarms.EntryEnd {
			return answer, false
		}
		if err == nil {
			err = in.Append(ctx, last.Seq, swarms.Entry{Kind: kind, Ref: 1 << 40, Data: []byte(data)})
		}
		if errors.Is(err, jobs.ErrFenced) {
			continue
		}
		if err != nil {
			t.Errorf("in.Last: %v, want no error", err)
			return answer, false
		}
		r, err := out.Read(ctx, 1)
		if err != nil {
			t.Errorf("out.Read: %v, want no error", err)
			return answer, false
		}
		defer r.Close()
		for answer.Ref != last.Seq+1 {
			if answer, err = r.Next(ctx); err != nil {
				t.Errorf("r.Next: %v, want no error", err)
				return answer, false
			}
		}
		return answer, true
	}
}

// TestAskedStream: a stream whose swarm is asked before each of its steps, and that is stopped
// again and again behind a question, ends with the bytes of one that is left alone, and so does its
// webhook. Questions that are refused end nothing.
func TestAskedStream(t *testing.T) {
	c := newCluster(t)
	src := httptest.NewServer(http.HandlerFunc(pages))
	defer src.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	questions := []struct{ kind, data, want string }{
		{swarms.EntryQuery, `{"v":1,"agents":[0,15,3]}`, swarms.EntryState},
		{swarms.EntryFuse, `{"v":1,"by":"all"}`, swarms.EntryFused},
		{swarms.EntryCompute, `{"v":1,"text":"sum(round) by group"}`, swarms.EntryComputed},
		{swarms.EntryQuery, `{"v":1,"agents":[16]}`, swarms.EntryRejected},
		{swarms.EntryVote, `{"v":1,"round":1}`, swarms.EntryRejected},
		{swarms.EntryQuery, `{"v":1,"groups":[0]}`, swarms.EntryState},
		{swarms.EntrySnapshot, `{"v":1,"name":"here"}`, swarms.EntryRejected},
	}
	asked := 0
	var round uint64
	c.ask = func(swarm string) {
		for range 1 + asked%3 {
			q := questions[asked%len(questions)]
			e, ok := c.question(ctx, t, swarm, q.kind, q.data)
			if !ok {
				return
			}
			if e.Kind != q.want {
				t.Errorf("%s %s was answered %s %s, want %s", q.kind, q.data, e.Kind, e.Data, q.want)
			}
			if asked++; q.data == `{"v":1,"groups":[0]}` {
				g, err := batch.DecodeGroupVariables(e.Data)
				if err != nil || g.Vars[0].Name != "round" || g.Vars[0].Values.([]uint64)[0] < max(round, 1) {
					t.Errorf("%+v behind round %d: %v", g, round, err)
					continue
				}
				round = g.Vars[0].Values.([]uint64)[0]
			}
		}
	}
	goesOn(t, c, source.Series{
		URI:  src.URL + "/x.csv",
		HTTP: &source.HTTPSpec{CursorParam: "from", CursorFrom: "header:Next", Rate: 1000, Backoff: 0.001},
	})
	if asked < len(questions) {
		t.Errorf("%d questions", asked)
	}
}

// TestStreamFenced: an attempt at a stream ends when another one has written its log, also behind a
// question, and leaves the other attempt all that the job has on the queue, also when it is the
// last attempt that there is.
func TestStreamFenced(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	src := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// the first batch is stored, and the log is somebody else's before the second is
		if r.URL.Query().Get("from") != "" {
			record, err := c.conn.Swarms.Swarm(ctx, "fenced")
			if err != nil {
				t.Errorf("Swarms.Swarm: %v, want no error", err)
			}
			in := c.conn.Swarms.Log(record.Key(), 0, swarms.In)
			for {
				last, err := in.Last(ctx)
				if err != nil {
					t.Errorf("in.Last: %v, want no error", err)
					break
				}
				if last.Kind != swarms.EntryObserve {
					continue
				}
				// As another attempt would that is ahead of this one, and behind a question.
				if err := in.Append(ctx, last.Seq,
					swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"agents":[0]}`)},
					swarms.Entry{Kind: swarms.EntryObserve, Ref: 2, Data: last.Data}); err != nil {
					t.Errorf("in.Append: %v, want no error", err)
				}
				break
			}
		}
		pages(w, r)
	}))
	defer src.Close()
	job := c.job(t, "fenced", []source.Series{{
		Name: "s", URI: src.URL + "/x.csv",
		HTTP: &source.HTTPSpec{CursorParam: "from", CursorFrom: "header:Next", Rate: 1000, Backoff: 0.001},
	}}, nil)
	job.LastAttempt = true
	_, err := c.streamer.Handle(ctx, job, func(any) {})
	if !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("streamer.Handle: %v, want %v", err, jobs.ErrFenced)
	}
	record, err := c.conn.Swarms.Swarm(ctx, "fenced") // which is the other attempt's
	if err != nil || record.Ending {
		t.Fatalf("the swarm is %+v, %v, want it not ending", record, err)
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if _, err := c.conn.Swarms.Log(record.Key(), 0, d).Last(ctx); err != nil {
			t.Errorf("log %s: %v", d, err)
		}
	}
	if _, err := c.conn.Swarms.Log(record.Key(), 1, swarms.In).Last(ctx); err != nil {
		t.Errorf("the attempt that lost the job has removed the log of its source: %v", err)
	}
}
