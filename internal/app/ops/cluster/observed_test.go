package cluster_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestObserved: the observations of an agent come from its entries and answers, newest first,
// also of logs that somebody has written wrongly.
func TestObserved(t *testing.T) {
	t.Parallel()
	_, c := jobstest.InProcess(t, natsq.Connect)
	s := create(t, c)
	var seq uint64
	add := func(o *batch.AgentObservations, d *batch.AgentDecisions) {
		t.Helper()
		for dir, b := range map[swarms.Direction]interface{ Encode() ([]byte, error) }{swarms.In: o, swarms.Out: d} {
			data, err := b.Encode()
			if err != nil {
				t.Fatal(err)
			}
			e := swarms.Entry{Kind: swarms.EntryObserve, Ref: seq + 1, Data: data}
			if dir == swarms.Out {
				e.Kind = swarms.EntryDecide
			}
			if err := c.Swarms.Log(s.Key(), 0, dir).Append(t.Context(), seq, e); err != nil {
				t.Fatal(err)
			}
		}
		seq++
	}
	none := float32(math.NaN())
	add(&batch.AgentObservations{
		Agent: []uint32{107, 3, 107}, Features: []float32{4, 5, 6}, Width: 1, Item: []int32{2, 1, -1},
	}, &batch.AgentDecisions{
		Agent: []uint32{107, 3, 107}, Vote: []uint8{0, 1, 1}, Decision: []uint8{batch.NoVote, 1, 0},
		Score: []float32{0.25, 0.5, none},
	})
	add(&batch.AgentObservations{Agent: []uint32{3}, Features: []float32{7}, Width: 1},
		&batch.AgentDecisions{Agent: []uint32{3}, Vote: []uint8{1}, Decision: []uint8{1}})
	add(&batch.AgentObservations{Agent: []uint32{107}, Features: []float32{float32(math.Inf(1))}, Width: 1},
		&batch.AgentDecisions{Agent: []uint32{107}, Vote: []uint8{batch.NoVote}, Decision: []uint8{batch.NoVote}})
	add(&batch.AgentObservations{Agent: []uint32{3, 4}, Features: []float32{8, 9}, Width: 1},
		&batch.AgentDecisions{Agent: []uint32{107}, Vote: []uint8{0}, Decision: []uint8{0}, Score: []float32{0.75}})
	w := watch(t, c)
	until(t, w, "the swarm", func(s *cluster.State) bool { return len(s.Swarms) == 1 })
	show := func(agent uint32, limit int) (lines []string) {
		t.Helper()
		v, err := w.Observed(t.Context(), "crowd", agent, limit)
		if err != nil || v.Agent != agent || v.Group != int(agent)/100 || strings.Join(v.Features, ",") != "a" {
			t.Fatalf("Observed of agent %d returns %+v, %v", agent, v, err)
		}
		for _, o := range v.Observations {
			line := fmt.Sprint(o.Entry, o.Answer)
			for _, x := range o.Values {
				line += " " + text(x)
			}
			line += fmt.Sprint(" asks ", text(o.Item), " ", text(o.Score), ", votes ", o.Vote, o.Decision)
			lines = append(lines, line)
		}
		return lines
	}
	all := []string{
		"4 4 asks - 0.75, votes 0 0", "3 3 - asks - -, votes -1 -1", "1 1 6 asks - -, votes 1 0",
		"1 1 4 asks 2 0.25, votes 0 -1",
	}
	for limit := 1; limit <= 5; limit++ {
		want := all[:min(limit, len(all))]
		if got := show(107, limit); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the last %d observations of agent 107 are\n%s\nwant\n%s", limit, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	if got := show(999, 5); len(got) != 0 {
		t.Errorf("an agent without observations has %q", got)
	}
	for name, agent := range map[string]uint32{"crowd": 1000, "none": 0} {
		if _, err := w.Observed(t.Context(), name, agent, 1); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("agent %d of swarm %s: %v, want %v", agent, name, err, jobs.ErrNotFound)
		}
	}
}

// text is the text of a value; - without one.
func text[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}
