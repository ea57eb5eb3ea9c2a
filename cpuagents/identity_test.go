package cpuagents_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestStreamLeavesOthersAlone: a stream whose id is the name of a swarm that is not its own fails
// with a sentence, and the swarm stays as it is.
func TestStreamLeavesOthersAlone(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	for name, s := range map[string]swarms.Swarm{
		"lasting":   {Nonce: swarms.NewNonce(), Shards: 2, Spec: json.RawMessage(`{}`)},
		"former":    {Shards: 2, Spec: json.RawMessage(`{"agents":40}`)}, // of an earlier version, without a nonce
		"another's": {ID: "another", Nonce: swarms.NewNonce(), Owner: "somebody", Spec: json.RawMessage(`{}`)},
	} {
		if s.ID == "" {
			s.ID = name
		}
		s.Version, s.Name, s.Groups, s.Created = jobs.Version, s.ID, 2, time.Now().UTC()
		if err := c.conn.Swarms.CreateSwarm(ctx, s); err != nil {
			t.Fatalf("Swarms.CreateSwarm: %v, want no error", err)
		}
		for k := range s.ShardCount() {
			for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
				if err := c.conn.Swarms.Log(s.Key(), k, d).Create(ctx); err != nil {
					t.Fatalf("Create: %v, want no error", err)
				}
			}
		}
		// it fails before and behind the claim
		for _, series := range []string{"file:dir/none.csv", "file:dir/there.csv"} {
			if err := os.WriteFile(filepath.Join(c.dir, "there.csv"), []byte("timestamp,value\n2020-01-01T00:00:00Z,"+
				"1\n"), 0o644); err != nil {
				t.Fatalf("os.WriteFile: %v, want no error", err)
			}
			_, err := c.streamer.Handle(ctx, c.job(t, s.ID, []source.Series{{Name: "s", URI: series}}, nil),
				func(any) {})
			if err == nil || strings.HasSuffix(series, "there.csv") && !strings.Contains(err.Error(), "that is not "+
				"its own, and is left as it is: submit the job with another id") {
				t.Errorf("%s, %s: %v, want an error that leaves the swarm as it is", name, series, err)
			}
		}
		now, err := c.conn.Swarms.Swarm(ctx, s.ID)
		if err != nil || !now.Same(s) || now.Ending || string(now.Spec) != string(s.Spec) {
			t.Errorf("%s: the swarm is %+v, %v, want it unchanged", name, now, err)
		}
		for k := range s.ShardCount() {
			for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
				if _, err := c.conn.Swarms.Log(s.Key(), k, d).Last(ctx); err != nil {
					t.Errorf("%s: Last: %v, want no error", name, err)
				}
			}
		}
	}
}

// TestStreamEndsWithoutSources: an attempt that fails for good before it begins removes the swarm
// of an earlier one.
func TestStreamEndsWithoutSources(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	s := swarms.Swarm{
		Version: jobs.Version, ID: "gone", Nonce: swarms.NewNonce(), Owner: "gone", Name: "gone",
		Spec: json.RawMessage(`{}`), Groups: 1,
	}
	if err := c.conn.Swarms.CreateSwarm(ctx, s); err != nil {
		t.Fatalf("Swarms.CreateSwarm: %v, want no error", err)
	}
	for _, k := range []int{0, 1, 65} {
		if err := c.conn.Swarms.Log(s.Key(), k, swarms.Out).Create(ctx); err != nil {
			t.Fatalf("Create: %v, want no error", err)
		}
	}
	job := c.job(t, "gone", []source.Series{{Name: "s", URI: "file:dir/none.csv"}}, nil)
	if _, err := c.streamer.Handle(ctx, job, func(any) {}); err == nil {
		t.Fatal("a source that is not there was read")
	}
	if _, err := c.conn.Swarms.Swarm(ctx, "gone"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("its swarm: %v", err)
	}
	if left, err := c.conn.Swarms.Orphans(ctx); err != nil || len(left) > 0 {
		t.Errorf("orphans %+v, %v, want none", left, err)
	}
}
