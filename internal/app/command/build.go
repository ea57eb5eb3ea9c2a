package command

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// newBuildInfo returns the metric exoswarm_build_info: 1, labelled with the name of the program and
// what it was built from. Queries join it to other metrics, to select by program or version.
func newBuildInfo(program string) prometheus.Collector {
	number, revision := Version()
	labels := prometheus.Labels{
		"program": program, "version": number, "revision": revision,
		"go_version": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "exoswarm_build_info", Help: "1, labelled with the program, " +
		"and with the version and revision of this build.", ConstLabels: labels})
	g.Set(1)
	return g
}
