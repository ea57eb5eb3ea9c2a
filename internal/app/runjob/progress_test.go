package runjob

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// TestProgressRate: the rate that a run shows is the present one, and what the run waits for stands
// behind it.
func TestProgressRate(t *testing.T) {
	var out bytes.Buffer
	p, err := newProgress("plain", &out)
	if err != nil {
		t.Fatalf("plain progress: %v", err)
	}
	now := time.Now()
	p.rates = []rateSample{{at: now}}
	for i, c := range []struct {
		after     time.Duration
		decisions uint64
		want      float64
	}{
		{time.Second, 1000, 1000},
		{4 * time.Second, 4000, 1000},
		{10 * time.Second, 4000, 0},
		{20 * time.Second, 4000, 0},
		{21 * time.Second, 5100, 100},
	} {
		if got := p.rate(now.Add(c.after), c.decisions); got < c.want-1 || got > c.want+1 {
			t.Errorf("step %d, after %v: %v decisions/s, want %v", i, c.after, got, c.want)
		}
	}
	p.update(cpuagents.StreamProgress{Series: 1, Observations: 9, Decisions: 3})
	p.waiting("waiting for a GPU agent")
	p.waiting("waiting for a GPU agent")
	p.waiting("gpu2 is replaying entry 1 of 9")
	p.waiting("gpu2 is replaying entry 2 of 9")
	if got := out.String(); strings.Count(got, "\n") != 3 ||
		!strings.Contains(got, "0 rejected, waiting for a GPU agent\n") ||
		!strings.Contains(got, ", gpu2 is replaying entry 1 of 9\n") {
		t.Errorf("shown:\n%s", got)
	}
}
