package main

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
	"github.com/exoswarm/exoswarm/tools/quality/opponents"
)

type detector struct {
	name  string
	score func(s *labelled.Series) (outcome, error)
}

// outcome is what a detector says of a series.
type outcome struct {
	scores []float32
	// alarms are the rows at which the detector itself raises an alarm, and away the rows that it
	// calls not normal, if it has a threshold of its own.
	alarms, away []int
}

type measurement struct {
	ctx context.Context //nolint:containedctx // one command, one context
	o   *options

	own, off, half *detector // the predictor, without learning, and with half of the agents
	others         []*detector
}

// newMeasurement binds the detectors. A parameter that the predictor does not have is an error.
func newMeasurement(ctx context.Context, o *options) (*measurement, error) {
	m := &measurement{ctx: ctx, o: o}
	var err error
	if m.own, err = m.predictor("predictor", nil, o.agents, 1); err != nil {
		return nil, err
	}
	if m.off, err = m.predictor("predictor, learning off", map[string]float64{"learn": 0}, o.agents, 1); err != nil {
		return nil, err
	}
	if m.half, err = m.predictor("predictor, half the agents", nil, o.agents/2, 1); err != nil {
		return nil, err
	}
	if o.opponents {
		for _, d := range opponents.All() {
			m.others = append(m.others, other(d))
		}
	}
	return m, nil
}

// other returns a detector without a threshold of its own.
func other(d opponents.Detector) *detector {
	return &detector{d.Name(), func(s *labelled.Series) (outcome, error) {
		return outcome{scores: d.Score(s.Flat(), s.Features())}, nil
	}}
}

// predictor returns the predictor with the parameters of the command line and some more.
func (m *measurement) predictor(name string, values map[string]float64, agents int, seed uint64) (*detector, error) {
	all := maps.Clone(m.o.values)
	maps.Copy(all, values)
	return observed(name, evaluation.CellOptions{Values: all, Agents: agents, Seed: seed})
}

// observed returns a detector that is a cell.
func observed(name string, o evaluation.CellOptions) (*detector, error) {
	d, err := evaluation.NewCellDetector(o)
	if err != nil {
		return nil, err
	}
	return &detector{name, func(s *labelled.Series) (outcome, error) {
		out, err := d.Run(s.Times, s.Flat(), s.Features())
		o := outcome{scores: out.Scores, alarms: out.Anomalous()}
		for row, d := range out.Decisions {
			if d != kernels.VoteNormal {
				o.away = append(o.away, row)
			}
		}
		return o, err
	}}, nil
}

// randomValues draws every parameter of the predictor around its default, by a factor of up to 1.8
// either way, within its limits. The alarm and suspect stay: scores depend on the alarm, and the
// benchmark chooses a threshold of its own.
func randomValues(seed uint64) map[string]float64 {
	c, _ := cells.Lookup("predictor")
	rng, values := rand.New(rand.NewPCG(seed, 1)), map[string]float64{}
	for _, p := range c.Params {
		v := p.Default * math.Pow(1.8, 2*rng.Float64()-1)
		if p.Name == "alarm" || p.Name == "suspect" {
			continue
		}
		if p.Integer {
			v = math.Round(v)
		}
		values[p.Name] = min(max(v, p.Min), p.Max)
	}
	return values
}

// each calls f for 0 to n-1 on all processors, until one fails or the context ends.
func (m *measurement) each(n int, f func(i int) error) error {
	ctx, stop := context.WithCancelCause(m.ctx)
	defer stop(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

type result struct {
	series *labelled.Series
	scores []float32
	alarms []int // rows of the whole series
	away   []int // rows of the whole series
	vus    float64
	f1     float64
}

// run scores series with a detector. Without windows there are no measures.
func (m *measurement) run(d *detector, series []labelled.Series) ([]result, error) {
	results := make([]result, len(series))
	return results, m.each(len(series), func(i int) error {
		s := &series[i]
		out, err := d.score(s)
		if err != nil {
			return err
		}
		if err := measures.Check(out.scores, len(s.Times)); err != nil {
			return err
		}
		r := result{series: s, alarms: out.alarms, away: out.away}
		behind, windows := measures.Behind(out.scores, s.Windows, quality.Probation(len(out.scores)))
		r.scores = behind
		if len(windows) > 0 {
			r.vus = quality.VUSPR(behind, windows, quality.Buffer)
			r.f1, _ = measures.BestF1(behind, windows)
		}
		results[i] = r
		return nil
	})
}
