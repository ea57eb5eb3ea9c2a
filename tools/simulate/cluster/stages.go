package cluster

import (
	"fmt"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

var axes = map[string][]string{
	"encode": {"beside", "rows"}, "decode": {"rows"}, "answer": {"rows"}, "merge": {"rows", "entries"},
	"observe": {"together", "rows", "entries"}, "append": {"beside", "idle", "entries", "bytes", "together"},
	"raft":    {"bytes", "together"},
	"deliver": {"bytes"}, "fetch": {"together", "bytes"}, "cores": {"together"},
	"workers": {"workers", "rows"},
}

type stages struct {
	encode, decode, answer, merge, observe, appends, raft, deliver, fetch, cores, workers *times.Curve
}

func newStages(files []*times.File, c *Config) (*stages, error) {
	t, err := times.NewTable(axes, files...)
	if err != nil {
		return nil, err
	}
	s := &stages{}
	need := []struct {
		name string
		to   **times.Curve
		is   bool
	}{
		{"encode", &s.encode, true},
		{"decode", &s.decode, true},
		{"answer", &s.answer, true},
		{"merge", &s.merge, true},
		{"workers", &s.workers, c.Agents.Device == "host"},
		{"observe", &s.observe, c.Agents.Device == "host"},
		{"append", &s.appends, true},
		{"raft", &s.raft, c.Brokers.Replicas > 1},
		{"deliver", &s.deliver, true},
		{"fetch", &s.fetch, true},
		{"cores", &s.cores, true},
	}
	for _, n := range need {
		if *n.to, err = t.Curve(n.name); err != nil && n.is {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return s, nil
}

// slower returns how much slower a thread is while others run, by their number, from the times of
// equal work on 1 to n cores.
func (s *stages) slower(cores int) []float64 {
	all := make([]float64, cores)
	alone := s.cores.Mean(1)
	for k := range all {
		all[k] = max(1, s.cores.Mean(float64(k+1))/max(1, alone))
	}
	return all
}

// threads returns how many threads a launch on the host device keeps at work: the processor time
// that it takes on one worker, over its time on all. More workers take more processor time for the
// same work; while they wait for each other, others have the cores.
func (s *stages) threads(rows, entries float64) float64 {
	return max(1, s.workers.Key("cpu", 1, rows)/max(1, s.observe.Mean(1, rows, 1)))
}

// speed returns how fast a launch is beside others, as a share of its speed alone.
func (s *stages) speed(rows, entries float64) func(n int) float64 {
	alone := s.observe.Mean(1, rows, entries)
	return func(n int) float64 { return min(1, alone/max(1, s.observe.Mean(float64(n), rows, entries))) }
}
