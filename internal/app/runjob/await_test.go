package runjob

import (
	"context"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// fakeSwarms has one swarm and one census.
type fakeSwarms struct {
	record swarms.Swarm
	census swarmlog.Census
}

func (f *fakeSwarms) Swarm(context.Context, string) (swarms.Swarm, error) { return f.record, nil }

func (f *fakeSwarms) Census(context.Context) (*swarmlog.Census, error) { return &f.census, nil }

// TestWaits: a run without decisions shows, after hintAfter, that there is no GPU agent, that the
// last one was lost, or how far the next one has replayed the log.
func TestWaits(t *testing.T) {
	record := swarms.Swarm{ID: "job", Nonce: "0123456789abcdef", Groups: 4}
	key := swarms.LeaseKey(record.Key(), 0)
	since := time.Now().Add(-time.Minute)
	lost := jobs.Agent{Name: "gpu1", Lost: &jobs.Lost{Since: since, Shards: []string{key}}}
	replays := jobs.Agent{Name: "gpu2", Recovering: []jobs.Recovery{{Shard: key, Entry: 57, Of: 120, Rate: 12}}}
	held := map[string]string{key: "gpu2"}
	for _, c := range []struct {
		name     string
		quiet    time.Duration // since the last decision
		progress cpuagents.StreamProgress
		census   swarmlog.Census
		want     string
	}{
		{name: "no agent, just now", quiet: hintAfter / 2},
		{name: "no agent", quiet: hintAfter, want: "waiting for a GPU agent (gpuagent --nats URL starts one)"},
		{name: "served", quiet: time.Minute, census: swarmlog.Census{Holders: held}},
		{
			name: "lost", quiet: hintAfter, census: swarmlog.Census{Agents: []jobs.Agent{lost}},
			want: "waiting for a GPU agent: gpu1 was lost at " + since.Local().Format(time.TimeOnly),
		},
		{
			name: "replayed", quiet: hintAfter, census: swarmlog.Census{Agents: []jobs.Agent{replays}, Holders: held},
			want: "gpu2 is replaying entry 57 of 120 (48 %, 12 entries/s)",
		},
		{name: "a decision", quiet: time.Minute, progress: cpuagents.StreamProgress{Observations: 9, Decisions: 4}},
		{name: "all decided", quiet: time.Minute, progress: cpuagents.StreamProgress{Observations: 3, Decisions: 3}},
		{name: "done", quiet: time.Minute, progress: cpuagents.StreamProgress{
			Observations: 9, Decisions: 3,
			Done: true,
		}},
	} {
		if c.progress == (cpuagents.StreamProgress{}) {
			c.progress = cpuagents.StreamProgress{Series: 4, Observations: 9, Decisions: 3}
		}
		h := hints{
			swarms: &fakeSwarms{record, c.census}, job: "job", began: time.Now(), decided: 3,
			since: time.Now().Add(-c.quiet),
		}
		if got := h.waits(t.Context(), &c.progress); got != c.want {
			t.Errorf("%s: a run shows %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNoCPUAgent: a run shows once that no CPU agent has taken its job.
func TestNoCPUAgent(t *testing.T) {
	h := hints{began: time.Now()}
	if got := h.next(false); got != "" {
		t.Errorf("of a job that an agent has, a run shows %q, want nothing", got)
	}
	if got := h.next(true); got == "" {
		t.Error("of a job that nobody has taken, a run shows nothing")
	}
	if got := h.next(true); got != "" {
		t.Errorf("a run shows %q again", got)
	}
}
