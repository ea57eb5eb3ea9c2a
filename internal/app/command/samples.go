package command

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/exoswarm/exoswarm/jobs"
)

// Samples returns the values of the metrics of these names, ordered by name. A histogram has the
// samples NAME_sum and NAME_count. Names that the registry does not have are left out, and so are
// the slow ones (exoswarm_process_...).
func (m *Metrics) Samples(names []string) []jobs.Sample { return Samples(m.FamilyRegistry, names) }

// Samples returns the values of the metrics of a registry by these names, ordered by name.
func Samples(g prometheus.Gatherer, names []string) (all []jobs.Sample) {
	families, _ := g.Gather() // what can be collected is returned also with an error
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.Metric {
			var labels map[string]string
			if len(m.Label) > 0 {
				labels = make(map[string]string, len(m.Label))
				for _, l := range m.Label {
					labels[l.GetName()] = l.GetValue()
				}
			}
			add := func(suffix string, v float64) {
				all = append(all, jobs.Sample{Name: f.GetName() + suffix, Labels: labels, Value: v})
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add("", m.Counter.GetValue())
			case dto.MetricType_GAUGE:
				add("", m.Gauge.GetValue())
			case dto.MetricType_HISTOGRAM:
				add("_sum", m.Histogram.GetSampleSum())
				add("_count", float64(m.Histogram.GetSampleCount()))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b jobs.Sample) int { return strings.Compare(a.Name, b.Name) })
	return all
}
