// The files monitoring_*_test.go test the metric families of all processes, dashboards and alerts,
// with a real cluster and a real Prometheus.

package serveprocess_test

import (
	"github.com/exoswarm/exoswarm/cmd/internal/serveprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// ByName returns the families of all processes by name.
func ByName() (map[string]command.Family, error) {
	all, err := serveprocess.Processes()
	if err != nil {
		return nil, err
	}
	by := map[string]command.Family{}
	for _, p := range all {
		for _, f := range p.Families {
			by[f.Name] = f
		}
	}
	return by, nil
}
