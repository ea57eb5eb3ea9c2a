package cpuprocess

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/push"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
)

// newMetrics registers the metrics of jobs, of stream jobs and of the requests of jobs.
func newMetrics(r prometheus.Registerer, guard *access.Guard) (*natsq.Metrics, *cpuagents.Metrics, error) {
	worked, err := natsq.NewMetrics(r)
	if err != nil {
		return nil, nil, err
	}
	streamed, err := cpuagents.NewMetrics(r)
	for _, c := range guard.Collectors() {
		err = errors.Join(err, r.Register(c))
	}
	return worked, streamed, err
}

// newScratchMetric returns the gauge of the scratch folder. ready returns nil while it can be used.
func newScratchMetric(ready func() error) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "exoswarm", Subsystem: "cpuagent", Name: "scratch_usable", Help: "1 while the scratch folder can " +
			"be used, 0 while it cannot and no job is taken.",
	}, func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	})
}

// Families returns the metric families of the process, whether they have series at present or not.
func Families() ([]command.Family, error) {
	r, err := command.Describe("cpuagent")
	if err != nil {
		return nil, err
	}
	guard, err := access.NewGuard(nil)
	if err != nil {
		return nil, err
	}
	if _, _, err := newMetrics(r, guard); err != nil {
		return nil, err
	}
	var none *gateway.Gateway
	err = errors.Join(r.Register(newScratchMetric(func() error { return nil })), r.Register(none.Collector()))
	for _, c := range push.Collectors() {
		err = errors.Join(err, r.Register(c))
	}
	return r.Families(), err
}
