package access

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a request other than the class of its status, such as 2xx.
const (
	outcomeRefused = "refused" // the guard does not allow the URL
	outcomeFailed  = "failed"  // no answer
)

// counts are the requests of a guard and of the guards of tenants that are made of it. A nil counts
// counts nothing.
type counts struct {
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
}

func newCounts() *counts {
	c := &counts{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_egress_requests_total",
			Help: "HTTP requests of jobs, redirects included, by the class of " +
				"the status; refused: jobs may not reach the host; failed: no answer.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "exoswarm_egress_request_seconds", Help: "Time of an HTTP request of a job until the head of its " +
				"answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), // to 65 s
		}),
	}
	for _, o := range []string{"2xx", "3xx", "4xx", "5xx", outcomeRefused, outcomeFailed} {
		c.requests.WithLabelValues(o)
	}
	return c
}

func (c *counts) done(began time.Time, r *http.Response, err error) {
	if c == nil {
		return
	}
	outcome := outcomeFailed
	if err == nil {
		outcome = fmt.Sprintf("%dxx", min(max(r.StatusCode/100, 2), 5))
		c.seconds.Observe(time.Since(began).Seconds())
	}
	c.requests.WithLabelValues(outcome).Inc()
}

func (c *counts) refused() {
	if c != nil {
		c.requests.WithLabelValues(outcomeRefused).Inc()
	}
}

// Collectors returns the metrics of the requests of all clients of the guard and of the guards that
// For returns.
func (g *Guard) Collectors() []prometheus.Collector {
	if g.counts == nil {
		return nil
	}
	return []prometheus.Collector{g.counts.requests, g.counts.seconds}
}
