package access

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics: requests of all tenants are counted by their outcome, and timed where there was an
// answer.
func TestMetrics(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	g, err := NewGuard([]string{"tenant=acme,host=127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(g.Collectors()...)
	get := func(tenant, url string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := g.For(tenant).Client(false).Do(req); err == nil {
			a.Body.Close()
		}
	}
	get("acme", s.URL)
	get("acme", s.URL+"/none")
	get("other", s.URL)
	get("acme", "http://127.0.0.1:1/")
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) > 0 {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			} else {
				got["timed"] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"2xx": 1, "4xx": 1, "refused": 1, "failed": 1, "timed": 2, "3xx": 0, "5xx": 0,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%v requests are %s, want %v: %v", n, name, want, got)
		}
	}
}
