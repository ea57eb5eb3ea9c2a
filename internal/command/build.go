package command

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// newBuildInfo is the metric exoswarm_build_info: 1, with what the process was built from as its labels. It is joined to other metrics in
// queries, to see which version does what.
func newBuildInfo() prometheus.Collector {
	number, revision := Version()
	labels := prometheus.Labels{"version": number, "revision": revision, "go_version": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "exoswarm_build_info", Help: "1, labelled with the version and revision of this build.", ConstLabels: labels})
	g.Set(1)
	return g
}
