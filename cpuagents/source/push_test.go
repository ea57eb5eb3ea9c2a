package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// TestPushSourceRefuses: what has no end, and what is no name.
func TestPushSourceRefuses(t *testing.T) {
	for uri, spec := range map[string]PushSpec{
		"push:": {Rows: 1}, "push:a.b": {Rows: 1}, "push:*": {Rows: 1},
		"push:a": {}, "push:b": {Rows: 2e9}, "push:c": {For: -1}, "push:d": {Rows: 1, BatchSeconds: 61},
	} {
		if _, err := newPushFetcher(uri, "", &spec, Resources{}); err == nil {
			t.Errorf("%q: no error", uri)
		}
	}
	if _, err := newPushFetcher("push:a", "csv", &PushSpec{Rows: 1}, Resources{}); err == nil {
		t.Error("csv: no error")
	}
}

// TestPushNames: the endpoint of a tenant begins with the name of the tenant.
func TestPushNames(t *testing.T) {
	for tenant, want := range map[string]string{"": "p", "acme": "acme--p", "umbrella": "umbrella--p"} {
		owner := jobs.OwnerOf(jobs.Job{ID: "j", Tenant: tenant})
		f, err := newPushFetcher("push:p", "", &PushSpec{Rows: 1}, Resources{Owner: owner})
		if err != nil || f.sub.Push != want {
			t.Errorf("%q reads %+v, %v", tenant, f, err)
		}
	}
}

// TestPushResume: an attempt that ends anywhere is followed by one that continues, a job by the
// next job, and what the journal holds is in the queue no more.
func TestPushResume(t *testing.T) {
	t.Parallel()
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	put := func(v int) {
		t.Helper()
		if _, err := q.Streams.Push(ctx, "a", "", [][]byte{fmt.Appendf(nil, "{\"timestamp\":%d,\"value\":%d}\n", v,
			v)}); err != nil {
			t.Fatalf("Streams.Push: %v, want no error", err)
		}
	}
	open := func(id string, rows uint64) (*documentReader, *subjectFetcher) {
		t.Helper()
		f, err := newPushFetcher("push:a", "", &PushSpec{Rows: rows, BatchSeconds: 60},
			Resources{Queue: q.StreamJobs()})
		if err != nil {
			t.Fatalf("newPushFetcher: %v, want no error", err)
		}
		return remoteOf(ctx, t, q, id, f), f
	}
	const want = "1:0 2:1 3:2 - 4:3 5:4 6:5 - 7:6 8:7 9:8 - 10:9"
	for _, lost := range []bool{false, true} {
		for i := range 10 {
			put(i)
		}
		id := fmt.Sprint("resume-", lost)
		for stop := 1; ; stop++ {
			r, f := open(id, 10)
			f.bounds.BatchMessages, f.sub.Ahead = 3, 3
			if lost { // nothing that it reads is ever acknowledged
				r.src = deaf{f}
			}
			if readsPart(t, r, stop, want) {
				break
			}
		}
		if lost { // the next job takes what nobody has acknowledged: at least once, over a job's end without one
			break
		}
		// Another job continues behind this one.
		put(77)
		r, _ := open(id+"-next", 1)
		if got, err := told(r, 9); err != nil || strings.Join(got, " ") != "1:77" {
			t.Fatalf("the next job reads %q, %v, want 1:77", got, err)
		}
		_ = r.Close()
	}
}
