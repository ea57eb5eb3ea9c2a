package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/internal/labelled"
	"github.com/exoswarm/exoswarm/internal/nab"
)

// half is a part of the labelled streams.
type half struct {
	name    string
	streams []nab.Stream
}

// streams measures the labelled streams of the benchmark.
func (m *measurement) streams() ([]block, error) {
	dir, err := nab.Dir()
	if errors.Is(err, nab.ErrNoData) {
		return []block{{"streams", err.Error() + "\n"}}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := nab.Load(dir)
	if err != nil {
		return nil, err
	}
	first, second := nab.Halves(all)
	halves := []half{{"all", all}, {"first half", first}, {"second half", second}}
	if m.o.choose {
		halves = halves[1:2]
	}
	t := newTable("detector", "streams", "standard", "few false alarms", "few misses",
		"standard, threshold of the other half")
	kinds := newTable("kind", "streams", "windows", "predictor", "learning off")
	var ownScores, offScores [][]float32
	detectors, err := m.variants()
	if err != nil {
		return nil, err
	}
	for _, group := range detectors {
		scores := make([][][]float32, len(group.detectors)) // by detector and stream of all
		for i, d := range group.detectors {
			if scores[i], err = m.scores(d, halves[0].streams); err != nil {
				return nil, err
			}
		}
		for k, h := range halves {
			picked := make([][][]float32, len(scores))
			for i := range scores {
				picked[i] = pick(halves[0].streams, scores[i], h.streams)
			}
			cells := []string{group.name, h.name}
			for _, p := range []nab.Profile{nab.Standard, nab.RewardLowFP, nab.RewardLowFN} {
				var values []float64
				for i := range picked {
					r, err := nab.Score(p, h.streams, picked[i])
					if err != nil {
						return nil, err
					}
					values = append(values, r.Score)
				}
				cells = append(cells, spread(values, group.random))
			}
			crossed := "-"
			if k > 0 && len(halves) == 3 {
				var values []float64
				other := halves[3-k]
				for i := range picked {
					r, err := nab.Score(nab.Standard, other.streams, pick(all, scores[i], other.streams))
					if err != nil {
						return nil, err
					}
					at, err := nab.ScoreAt(nab.Standard, h.streams, picked[i], r.Threshold)
					if err != nil {
						return nil, err
					}
					values = append(values, at.Score)
				}
				crossed = spread(values, group.random)
			}
			t.row(append(cells, crossed)...)
		}
		switch group.name {
		case "predictor":
			ownScores = scores[0]
		case m.off.name:
			offScores = scores[0]
		}
	}
	if err := byKind(kinds, halves[0].streams, ownScores, offScores); err != nil {
		return nil, err
	}
	return []block{{"streams", t.String()}, {"kinds", kinds.String()}}, nil
}

// group is the same detector with several seeds or parameters.
type group struct {
	name      string
	random    bool // show the range instead of the deviation
	detectors []*detector
}

// variants are the detectors that are measured on the labelled streams.
func (m *measurement) variants() ([]group, error) {
	groups := []group{
		{name: "predictor"}, {name: m.off.name}, {name: m.half.name},
		{name: "random parameters, 64 agents", random: true},
	}
	add := func(g int, values map[string]float64, agents int, seed uint64) error {
		d, err := m.predictor(groups[g].name, values, agents, seed)
		groups[g].detectors = append(groups[g].detectors, d)
		return err
	}
	for seed := range uint64(m.o.seeds) {
		if err := errors.Join(add(0, nil, m.o.agents, seed+1), add(2, nil, m.o.agents/2, seed+1)); err != nil {
			return nil, err
		}
		if seed < 2 {
			if err := add(1, map[string]float64{"learn": 0}, m.o.agents, seed+1); err != nil {
				return nil, err
			}
		}
	}
	for draw := range m.o.draws {
		if err := add(3, randomValues(uint64(draw)), 64, 1); err != nil {
			return nil, err
		}
	}
	for _, d := range m.others {
		groups = append(groups, group{name: d.name, detectors: []*detector{d}})
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.detectors) == 0 }), nil
}

// scores runs a detector over streams.
func (m *measurement) scores(d *detector, streams []nab.Stream) ([][]float32, error) {
	scores := make([][]float32, len(streams))
	return scores, m.each(len(streams), func(i int) (err error) {
		scores[i], _, err = d.score(&labelled.Series{Stream: streams[i]})
		return err
	})
}

// pick returns the scores of some streams of all.
func pick(all []nab.Stream, scores [][]float32, some []nab.Stream) [][]float32 {
	picked := make([][]float32, len(some))
	for i, s := range some {
		picked[i] = scores[slices.IndexFunc(all, func(a nab.Stream) bool { return a.Name == s.Name })]
	}
	return picked
}

// spread formats mean and deviation, or mean and the range from the tenth to the ninetieth
// percentile.
func spread(values []float64, random bool) string {
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	if len(values) == 1 {
		return f1(mean)
	}
	for _, v := range values {
		square += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	if !random {
		return fmt.Sprintf("%.1f ± %.1f", mean, math.Sqrt(square))
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return sorted[int(math.Round(q*float64(len(sorted)-1)))] }
	return fmt.Sprintf("%.1f (%.1f to %.1f)", mean, at(0.1), at(0.9))
}

// byKind adds a row for each kind of stream, with the threshold of all streams.
func byKind(t *table, streams []nab.Stream, own, off [][]float32) error {
	kinds := map[string][]nab.Stream{}
	for _, s := range streams {
		kinds[s.Kind()] = append(kinds[s.Kind()], s)
	}
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		cells := []string{name, fmt.Sprint(len(kinds[name]))}
		for _, scores := range [][][]float32{own, off} {
			all, err := nab.Score(nab.Standard, streams, scores)
			if err != nil {
				return err
			}
			r, err := nab.ScoreAt(nab.Standard, kinds[name], pick(streams, scores, kinds[name]), all.Threshold)
			if err != nil {
				return err
			}
			if len(cells) == 2 {
				cells = append(cells, fmt.Sprint(r.Windows))
			}
			if r.Windows == 0 {
				cells = append(cells, "-")
				continue
			}
			cells = append(cells, f1(r.Score))
		}
		t.row(cells...)
	}
	return nil
}
