package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

type half struct {
	name    string
	streams []quality.Stream
}

// streams measures the labelled streams of the benchmark: all, and each half by itself. With
// --choose it reads the first half alone. Where the streams are not on the machine, the table says
// so and the rest of the report is made.
func (m *measurement) streams() ([]block, error) {
	dir, err := quality.NABDir()
	if errors.Is(err, quality.ErrNoData) {
		return []block{{"streams", err.Error() + "\n"}}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := quality.LoadNAB(dir)
	if err != nil {
		return nil, err
	}
	first, second := measures.Halves(all)
	halves := []half{{"all", all}, {"first half", first}, {"second half", second}}
	if m.o.choose {
		halves = halves[1:2]
	}
	t := newTable("detector", "standard: all; first half; second half", "few false alarms", "few misses",
		"standard of each half, threshold of the other")
	groups, err := m.variants()
	if err != nil {
		return nil, err
	}
	scoresOf := map[string][][]float32{} // by group, the scores of its first detector
	for _, g := range groups {
		scores := make([][][]float32, len(g.detectors))
		for i, d := range g.detectors {
			if scores[i], err = m.scores(d, halves[0].streams); err != nil {
				return nil, fmt.Errorf("%s: %w", d.name, err)
			}
		}
		scoresOf[g.name] = scores[0]
		if err := g.row(t, halves, scores); err != nil {
			return nil, err
		}
	}
	kinds := newTable("kind", "streams", "windows", "predictor", "threshold of the other kinds", "learning off")
	if err := byKind(kinds, halves[0].streams, scoresOf[m.own.name], scoresOf[m.off.name]); err != nil {
		return nil, err
	}
	blocks := []block{{"streams", t.String()}, {"kinds", kinds.String()}}
	if m.o.choose {
		copies, err := m.copies(groups[:1], first)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block{"copies", copies})
	}
	return blocks, nil
}

// copies measures groups of detectors on streams to choose on and on their copies, all together at
// one threshold, and each kind of stream at the threshold of the other kinds.
func (m *measurement) copies(groups []group, streams []quality.Stream) (string, error) {
	all := slices.Clone(streams)
	for _, s := range streams {
		all = append(all, measures.Copies(s)...)
	}
	t := newTable("detector", "streams and copies", "standard", "few false alarms", "few misses",
		"standard, thresholds of the other kinds")
	for _, g := range groups {
		var values [4][]float64
		for _, d := range g.detectors {
			scores, err := m.scores(d, all)
			if err != nil {
				return "", fmt.Errorf("%s: %w", d.name, err)
			}
			for k, p := range []quality.Profile{quality.Standard, quality.RewardLowFP, quality.RewardLowFN} {
				r, err := quality.NABScore(p, all, scores)
				if err != nil {
					return "", err
				}
				values[k] = append(values[k], r.Score)
			}
			apart, err := leftOut(all, scores)
			if err != nil {
				return "", err
			}
			values[3] = append(values[3], apart)
		}
		t.row(g.name, fmt.Sprint(len(all)), spread(values[0], g.random), spread(values[1], g.random),
			spread(values[2], g.random), spread(values[3], g.random))
	}
	return t.String(), nil
}

// leftOut is the mean of the standard scores of kinds with windows, each at the best threshold of
// all other kinds. A window weighs as much as another one.
func leftOut(streams []quality.Stream, scores [][]float32) (float64, error) {
	kinds, others := byKinds(streams)
	sum, windows := 0.0, 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		some := kinds[kind]
		if !slices.ContainsFunc(some, func(s quality.Stream) bool { return len(s.Windows) > 0 }) {
			continue
		}
		r, err := crossed(streams, scores, some, others[kind])
		if err != nil {
			return 0, err
		}
		sum += r.Score * float64(r.Windows)
		windows += r.Windows
	}
	return sum / float64(windows), nil
}

// byKinds returns the streams of each kind, and for each kind all other streams.
func byKinds(streams []quality.Stream) (kinds, others map[string][]quality.Stream) {
	kinds, others = map[string][]quality.Stream{}, map[string][]quality.Stream{}
	for _, s := range streams {
		kinds[measures.Kind(s)] = append(kinds[measures.Kind(s)], s)
	}
	for kind := range kinds {
		for _, s := range streams {
			if measures.Kind(s) != kind {
				others[kind] = append(others[kind], s)
			}
		}
	}
	return kinds, others
}

type group struct {
	name      string
	random    bool // show the range instead of the deviation
	detectors []*detector
}

// row adds a row of the table, whose cells have a value for each half; scores are from its
// detectors on the first half, which has all streams.
func (g *group) row(t *table, halves []half, scores [][][]float32) error {
	all := halves[0].streams
	cells := []string{g.name}
	for _, p := range []quality.Profile{quality.Standard, quality.RewardLowFP, quality.RewardLowFN} {
		var cell []string
		for _, h := range halves {
			var values []float64
			for _, of := range scores {
				r, err := quality.NABScore(p, h.streams, pick(all, of, h.streams))
				if err != nil {
					return err
				}
				values = append(values, r.Score)
			}
			cell = append(cell, spread(values, g.random))
		}
		cells = append(cells, strings.Join(cell, "; "))
	}
	var cell []string
	for k, h := range halves[1:] {
		var values []float64
		for _, of := range scores {
			r, err := crossed(all, of, h.streams, halves[2-k].streams)
			if err != nil {
				return err
			}
			values = append(values, r.Score)
		}
		cell = append(cell, spread(values, g.random))
	}
	t.row(append(cells, strings.Join(cell, "; "))...)
	return nil
}

// crossed is the standard score of some streams with the best threshold of others.
func crossed(all []quality.Stream, scores [][]float32, some, others []quality.Stream) (quality.Result, error) {
	r, err := quality.NABScore(quality.Standard, others, pick(all, scores, others))
	if err != nil {
		return quality.Result{}, err
	}
	return quality.NABScoreAt(quality.Standard, some, pick(all, scores, some), r.Threshold)
}

// variants are the detectors that are measured on the labelled streams: the predictor with several
// seeds, without learning, with half of its agents, and with random parameters; then the others,
// which need one seed each.
func (m *measurement) variants() ([]group, error) {
	groups := []group{
		{name: "predictor"},
		{name: m.off.name},
		{name: m.half.name},
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

func (m *measurement) scores(d *detector, streams []quality.Stream) ([][]float32, error) {
	scores := make([][]float32, len(streams))
	return scores, m.each(len(streams), func(i int) error {
		out, err := d.score(&labelled.Series{Stream: streams[i]})
		scores[i] = out.scores
		return err
	})
}

func pick(all []quality.Stream, scores [][]float32, some []quality.Stream) [][]float32 {
	picked := make([][]float32, len(some))
	for i, s := range some {
		picked[i] = scores[slices.IndexFunc(all, func(a quality.Stream) bool { return a.Name == s.Name })]
	}
	return picked
}

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

// byKind adds a row for each kind of stream with windows: the score at the best threshold for all
// streams, and at the best threshold for all other kinds.
func byKind(t *table, streams []quality.Stream, own, off [][]float32) error {
	kinds, others := byKinds(streams)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		some := kinds[kind]
		r, err := crossed(streams, own, some, streams)
		if err != nil {
			return err
		}
		if r.Windows == 0 {
			continue
		}
		apart, err := crossed(streams, own, some, others[kind])
		if err != nil {
			return err
		}
		without, err := crossed(streams, off, some, streams)
		if err != nil {
			return err
		}
		t.row(kind, fmt.Sprint(len(some)), fmt.Sprint(r.Windows), f1(r.Score), f1(apart.Score), f1(without.Score))
	}
	return nil
}
