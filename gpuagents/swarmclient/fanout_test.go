package swarmclient

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestEach: an error of some shards names the shards that failed and the shards that answered.
func TestEach(t *testing.T) {
	spec := &swarm.Spec{AgentsPerGroup: 10}
	s := &Swarm{spec: spec, timeout: time.Second, record: swarms.Swarm{ID: "x", Groups: 10, Shards: 4}}
	for want, c := range map[string]struct{ asked, failing []int }{
		"": {[]int{0, 1, 2, 3}, nil},
		"2: has failed; shards 0, 1, 3 have answered":                 {[]int{0, 1, 2, 3}, []int{2}},
		"0: has failed; shards 2, 3 failed too; shard 1 has answered": {[]int{0, 1, 2, 3}, []int{0, 2, 3}},
		"1: has failed; shard 3 failed too; no shard has answered":    {[]int{1, 3}, []int{1, 3}},
		"0: has failed; no shard has answered":                        {[]int{0}, []int{0}},
		"3: has failed; shard 0 has answered":                         {[]int{0, 3}, []int{3}},
	} {
		err := s.each(func(k int) bool { return slices.Contains(c.asked, k) }, func(k shard) error {
			if slices.Contains(c.failing, k.number) {
				return jobs.Errorf(jobs.CodeDeadline, "%d: has failed", k.number)
			}
			return nil
		})
		var of *jobs.Error
		if (err == nil) != (want == "") || err != nil &&
			(err.Error() != want || !errors.As(err, &of) || of.Code != jobs.CodeDeadline) {
			t.Errorf("shards %v with %v failing: error %v, want %q", c.asked, c.failing, err, want)
		}
	}
	if got := (shard{s, 1}).late(7).Error(); !strings.HasPrefix(got, "swarm x, shard 1 of 4 (agents 20 to 49): "+
		"entry 7 of its log has no answer after 1s") {
		t.Errorf("the error of a late answer is %q", got)
	}
	s.record.Shards = 0
	err := s.each(nil, func(shard) error { return os.ErrClosed })
	if err != os.ErrClosed { //nolint:errorlint // as it is
		t.Errorf("the error of the only shard is %v, want it unchanged", err)
	}
	if got := (shard{s, 0}).String(); got != "swarm x" {
		t.Errorf("the only shard is called %q, want the name of the swarm", got)
	}
}
