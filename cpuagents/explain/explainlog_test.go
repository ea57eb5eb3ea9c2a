package explain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestVersions: a log that is opened again has the last state that includes no more than asked for,
// of several parts too, and a second writer is fenced.
func TestVersions(t *testing.T) {
	conn := jobstest.Connected(t, natsq.Connect)
	key := swarms.Swarm{ID: "d", Nonce: swarms.NewNonce()}.Key()
	layout := rows.Layout{Candidates: []string{"normal", "anomalous"}, Features: []string{"value"}}
	for g := range 4000 {
		layout.Series = append(layout.Series, fmt.Sprint("s", g))
	}
	open := func(upTo uint64) *explain.SummaryLog {
		t.Helper()
		x := explain.New(layout, nil)
		recent := explain.NewRecent(swarms.Swarm{Groups: 4000}, layout)
		l, err := explain.OpenSummaryLog(t.Context(), conn.Swarms.Log(key, 9, swarms.In), x, recent, upTo)
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		return l
	}
	decide := func(l *explain.SummaryLog, answer uint64) {
		d := &batch.Decisions{Candidates: 2}
		for g := range layout.Series {
			d.Group, d.Row, d.Read = append(d.Group, uint32(g)), append(d.Row, answer), append(d.Read, 0)
			d.Timestamp, d.Score = append(d.Timestamp, fmt.Sprint(1_700_000_000+60*answer)), append(d.Score, 0.1)
			d.Value = append(d.Value, float64(g)+float64(answer*7%11)/3)
			d.Decision = append(d.Decision, 0)
		}
		d.Decision[answer] = 1 // an incident of another entity each time
		l.Explainer.Explain(d)
		l.Recent.Add(d, time.Unix(int64(answer), 0))
		l.Reach(answer)
	}
	state := func(l *explain.SummaryLog) int {
		t.Helper()
		data, err := l.Explainer.State()
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	l := open(0)
	sizes := map[uint64]int{}
	for answer := uint64(1); answer <= 5; answer++ {
		decide(l, answer)
		if err := l.Put(t.Context()); err != nil {
			t.Fatalf("Put: %v", err)
		}
		sizes[answer] = state(l)
	}
	if sizes[5] < 700<<10 {
		t.Fatalf("the state has %d bytes, which is one part: the test reaches nothing", sizes[5])
	}
	for upTo, want := range map[uint64]uint64{5: 5, 9: 5, 4: 4} {
		if got := open(upTo); got.Next() != want+1 || state(got) != sizes[want] ||
			len(got.Recent.Found().Incidents) != int(want) {
			t.Errorf("up to answer %d: the next is %d, want %d, with the state and the incidents of then", upTo,
				got.Next(), want+1)
		}
	}
	other := open(5)
	decide(other, 6)
	if err := other.Put(t.Context()); err != nil {
		t.Fatalf("Put: %v", err)
	}
	decide(l, 6)
	if err := l.Put(t.Context()); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("Put of an earlier writer: %v, want ErrFenced", err)
	}
	layout.Features = []string{"a", "b"}
	_, err := explain.OpenSummaryLog(t.Context(), conn.Swarms.Log(key, 9, swarms.In), explain.New(layout, nil), nil, 6)
	if err == nil || !strings.Contains(err.Error(), "summaries of entities") {
		t.Errorf("Open with other features: %v", err)
	}
}
