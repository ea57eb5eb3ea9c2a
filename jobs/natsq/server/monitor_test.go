package server

import (
	"encoding/json"
	"net/http"
	"testing"
)

// TestMonitor: the monitoring endpoints answer at the address that the server tells, with the state
// of JetStream; a server without them listens for none.
func TestMonitor(t *testing.T) {
	without, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: InProcess})
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	if url := without.MonitorURL(); url != "" {
		t.Errorf("a server without monitoring has it at %s", url)
	}
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: InProcess, Monitor: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, key := range map[string]string{
		"/varz": "server_id", "/jsz": "streams", "/healthz": "status",
		"/healthz?js-server-only=true": "status", "/healthz?js-enabled-only=true": "status", // probes of the chart
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.MonitorURL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		err = json.NewDecoder(r.Body).Decode(&body)
		if r.Body.Close(); err != nil || r.StatusCode != http.StatusOK || body[key] == nil {
			t.Errorf("%s: status %d, %v: %v", path, r.StatusCode, err, body)
		}
	}
}
