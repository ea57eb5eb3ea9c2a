package gateway

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics: requests are counted by operation and by the code of their error. A client that
// makes up an operation makes no label.
func TestMetrics(t *testing.T) {
	m := newMetrics(newRequestLine(nil))
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	m.answered("exo.api.submit", apiReply{}, time.Now())
	m.answered("exo.tenant.acme.result.j1", apiReply{Error: &apiError{Code: "not_found"}}, time.Now())
	m.answered("exo.api.whatever.j1", apiReply{}, time.Now())
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, x := range f.GetMetric() {
			key := f.GetName()
			for _, l := range x.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = x.GetCounter().GetValue() + x.GetGauge().GetValue() + float64(x.GetHistogram().GetSampleCount())
		}
	}
	for key, want := range map[string]float64{
		"exoswarm_gateway_requests_total ok submit": 1, "exoswarm_gateway_requests_total not_found result": 1,
		"exoswarm_gateway_requests_total ok other": 1, "exoswarm_gateway_request_seconds submit": 1,
		"exoswarm_gateway_in_flight running": 0,
	} {
		if n, ok := got[key]; !ok || n != want {
			t.Errorf("%s is %v, want %v: %v", key, n, want, got)
		}
	}
}
