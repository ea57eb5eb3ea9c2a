package command_test

import (
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestOf: a registry knows name, type, help, labels and unit of what is registered, before there is
// a series.
func TestOf(t *testing.T) {
	r := command.NewFamilyRegistry()
	r.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "exoswarm_a_bytes_total", Help: `Say "a", {b}.`},
			[]string{"pool", "kind"}),
		prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "exoswarm_b", Help: "B.", ConstLabels: prometheus.Labels{"device": `x="y",z`},
		}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "exoswarm_c_seconds", Help: "C."}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "other", Help: "D."}),
	)
	want := []command.Family{
		{Name: "exoswarm_a_bytes_total", Type: "counter", Help: `Say "a", {b}.`, Labels: []string{"pool", "kind"}},
		{Name: "exoswarm_b", Type: "gauge", Help: "B.", Labels: []string{"device"}},
		{Name: "exoswarm_c_seconds", Type: "histogram", Help: "C."},
	}
	got := r.Families()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("families are\n%+v\nwant\n%+v", got, want)
	}
	for i, unit := range []string{"bytes", "", "seconds"} {
		if got[i].Unit() != unit {
			t.Errorf("the unit of %s is %q, want %q", got[i].Name, got[i].Unit(), unit)
		}
	}
	if err := r.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "exoswarm_b", Help: "Other."})); err == nil {
		t.Error("a second family of a name is registered")
	}
}
