package swarmclient

import (
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// oneCensus has a lost agent and a replay.
type oneCensus struct {
	lost, replayed string // lease keys
	since          time.Time
}

func (c oneCensus) Team(key string) []string {
	if key != c.replayed {
		return nil
	}
	return []string{"cuda:0", "cuda:1"}
}

func (c oneCensus) LostHolder(key string) *jobs.Agent {
	if key != c.lost {
		return nil
	}
	return &jobs.Agent{Name: "gone", Lost: &jobs.Lost{Since: c.since, Shards: []string{key}}}
}

func (c oneCensus) Recovery(key string) *jobs.Recovery {
	if key != c.replayed {
		return nil
	}
	return &jobs.Recovery{Shard: key, Entry: 57, Of: 120, Rate: 12}
}

// TestShardStates: a shard is served, replayed, or waits, with the agent that was lost if there is
// one; the summary is the state of the first shard that is not served.
func TestShardStates(t *testing.T) {
	s := swarms.Swarm{ID: "x", Nonce: "0123456789abcdef", Groups: 8, Shards: 5}
	key := func(k int) string { return swarms.LeaseKey(s.Key(), k) }
	census := oneCensus{lost: key(2), replayed: key(1), since: time.Now()}
	all := ShardStates(s, map[string]string{key(0): "a", key(1): "b", key(4): "c"}, census)
	if len(all) != 5 {
		t.Fatalf("%d states of 5 shards", len(all))
	}
	for k, want := range []struct{ holder, state, lost string }{
		{"a", StateServed, ""},
		{"b", "replaying entry 57 of 120", ""},
		{"", StateWaiting + ": gone was lost at ", "gone"},
		{"", StateWaiting, ""},
		{"c", "served", ""},
	} {
		got := all[k]
		if got.Shard != k || got.Holder != want.holder || !strings.HasPrefix(got.State, want.state) ||
			got.LostHolder != want.lost || (got.Recovering != nil) != (k == 1) || (len(got.Devices) == 2) != (k == 1) {
			t.Errorf("shard %d: %+v, want %+v", k, got, want)
		}
	}
	for _, c := range []struct {
		states []ShardState
		want   string
	}{
		{nil, StateServed},
		{all[:1], StateServed},
		{all[3:4], StateWaiting},
		{all[4:], all[4].State},
		{all[:2], "shard 1: " + all[1].State},
		{all, "shard 1: " + all[1].State + "; 2 more shards are not served"},
	} {
		if got := SummaryState(c.states); got != c.want {
			t.Errorf("the summary of %d shards is %q, want %q", len(c.states), got, c.want)
		}
	}
}
