package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

const (
	// seriesName is the name of the series of scores.
	seriesName = "exoswarm_score"
	// expectedName is the name of the series of expected values, which have the label feature.
	expectedName = "exoswarm_expected"
	// defaultSeries and mostSeries bound the series of a sink.
	defaultSeries = 10_000
	mostSeries    = 1_000_000
)

// prometheus sends scores as samples of series by Prometheus remote write, version 1. Each entity
// has a series, up to a bound. A sample has the time of its row.
type prometheus struct {
	*notifier
	layout rows.Layout
	clock  rows.Clock
	most   int
	names  []string         // of the labels of an entity
	last   map[uint32]int64 // milliseconds of the last sample of each entity
}

func newPrometheus(b base, l rows.Layout, s Resources) (Sink, error) {
	n, err := newNotifier(b, s, "prometheus", strings.TrimPrefix(b.spec.URI, "prometheus:"), "application/x-protobuf",
		cmp.Or(b.spec.Rate, 100))
	if err != nil {
		return nil, err
	}
	n.header = map[string]string{"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
	reserved := []string{"detector"}
	if l.Explain {
		reserved = append(reserved, "feature")
	}
	t := &prometheus{
		notifier: n, layout: l, most: cmp.Or(b.spec.MaxSeries, defaultSeries),
		names: labelNames(l.NameColumns(), reserved...), last: map[uint32]int64{},
	}
	if t.most < 1 || t.most > mostSeries {
		return nil, b.bad("max_series %d: use 1 to %d", t.most, mostSeries)
	}
	if b.spec.Anomalies {
		return nil, b.bad("anomalies: a series has all scores: leave it out")
	}
	if err := n.checkLabels(t.names, reserved...); err != nil {
		return nil, err
	}
	return t, nil
}

// Send implements Sink. It leaves out rows that the swarm has dropped, and samples that are not
// after the previous sample of their series, which Prometheus refuses.
func (t *prometheus) Send(_ context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.resumed {
		return nil
	}
	samples := map[uint32][]byte{}  // fields of a TimeSeries
	expected := map[uint32][]byte{} // by group and feature: fields of series of expected values
	features := len(t.layout.Features)
	beyond, order := 0, 0
	for i := range d.Len() {
		g := d.Group[i]
		if rows.DropReason(d, i) != "" {
			continue
		}
		// Groups are numbered in the order of the first rows, so the same ones have a series after
		// a restart.
		if int(g) >= t.most {
			beyond++
			continue
		}
		ns, err := t.clock.Parse(d.Timestamp[i])
		if err != nil {
			ns = time.Now().UnixNano()
		}
		ms := ns / int64(time.Millisecond)
		if last, is := t.last[g]; is && ms <= last {
			order++
			continue
		}
		t.last[g] = ms
		s := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type),
			math.Float64bits(float64(d.Score[i])))
		s = protowire.AppendVarint(protowire.AppendTag(s, 2, protowire.VarintType), uint64(ms))
		samples[g] = appendField(samples[g], 2, s)
		if !t.layout.Explain {
			continue
		}
		for f := range features {
			v := rows.Band(d, i, f)[0]
			if math.IsNaN(v) {
				continue
			}
			s := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v))
			s = protowire.AppendVarint(protowire.AppendTag(s, 2, protowire.VarintType), uint64(ms))
			at := g*uint32(features) + uint32(f)
			expected[at] = appendField(expected[at], 2, s)
		}
	}
	if beyond > 0 {
		t.drop(DroppedBound, beyond, fmt.Errorf("more than %d entities: see max_series", t.most))
	}
	if order > 0 {
		t.drop(DroppedOrder, order, errors.New("a sample is not after the one before it in milliseconds"))
	}
	if len(samples) == 0 {
		return nil
	}
	var all []byte
	for _, g := range slices.Sorted(maps.Keys(samples)) {
		all = appendField(all, 1, append(t.labels(g, seriesName, ""), samples[g]...))
	}
	for _, at := range slices.Sorted(maps.Keys(expected)) {
		labels := t.labels(at/uint32(features), expectedName, t.layout.Features[at%uint32(features)])
		all = appendField(all, 1, append(labels, expected[at]...))
	}
	return t.put(message{first: number, last: number, body: s2.EncodeSnappy(nil, all)})
}

// labels returns the labels of a series of a group, in the order of their names. feature is empty
// for the series of scores.
func (t *prometheus) labels(g uint32, name, feature string) (b []byte) {
	all := map[string]string{"__name__": name, "detector": t.resources.Name}
	if feature != "" {
		all["feature"] = shorten(feature)
	}
	for k, value := range t.layout.Names(int(g)) {
		if value != "" { // as a label that is missing
			all[t.names[k]] = shorten(value)
		}
	}
	maps.Copy(all, t.spec.Labels)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b = appendField(b, 1, appendField(appendField(nil, 1, []byte(name)), 2, []byte(all[name])))
	}
	return b
}

func appendField(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}
