package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// MetricsFlag adds --metrics.
func MetricsFlag(f *pflag.FlagSet) {
	f.String("metrics", "", "HOST:PORT to serve /metrics (Prometheus), /livez, /readyz and /healthz on, to whoever "+
		"asks; empty for none of them")
}

// ProgramAnnotation is the annotation of a root command that names the program in
// exoswarm_build_info; without it the name of the command does. Alerts tell by it what a process
// may have open.
const ProgramAnnotation = "program"

// checkPatience bounds all checks of a request: a probe of the default second or two gets its
// answer in time.
const checkPatience = 2 * time.Second

// Check is a condition without which the process does no work. It returns nil, or one sentence that
// says why not.
type Check func(ctx context.Context) error

// Metrics is the registry of a process, served over HTTP where --metrics says so.
type Metrics struct {
	*FamilyRegistry
	// slow has the metrics whose collection takes milliseconds of a processor. A scrape reads them,
	// the questions of a dashboard, one a second, do not.
	slow   *FamilyRegistry
	addr   string
	server *httpapi.Server // nil: it is not served
	watch  sync.WaitGroup  // logs the end of the server

	mu     sync.Mutex
	checks map[string]Check
}

// NewMetrics makes the registry, with the metrics of the build, the runtime and the process in it,
// and serves it, in the text format of Prometheus or in OpenMetrics, with exemplars, if the client
// accepts that. /livez answers 200 as long as the process answers at all; /readyz and /healthz
// answer 200, or 503 and the reasons of the checks that fail.
func NewMetrics(cmd *cobra.Command, log *slog.Logger) (*Metrics, error) {
	m := newMetrics(cmp.Or(cmd.Root().Annotations[ProgramAnnotation], cmd.Root().Name()))
	addr, _ := cmd.Flags().GetString("metrics")
	if addr == "" {
		return m, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, Usage("--metrics %s: %v: write HOST:PORT with another port, or :0 for a free one", addr, err)
	}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.all(),
		promhttp.HandlerOpts{Registry: m.FamilyRegistry, ErrorLog: errorLog, EnableOpenMetrics: true}))
	ready := func(w http.ResponseWriter, r *http.Request) {
		if err := m.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.addr = l.Addr().String()
	m.server = httpapi.Start(l, httpapi.Config{Handler: mux, ErrorLog: errorLog, Write: 30 * time.Second})
	m.watch.Go(func() {
		if err := m.server.Err(); err != nil {
			log.Error("metrics are not served any more", "error", err)
		}
	})
	log.Info("serving metrics", "url", "http://"+m.addr+"/metrics")
	return m, nil
}

// newMetrics returns the registry of a program with the metrics that every process has.
func newMetrics(program string) *Metrics {
	m := &Metrics{FamilyRegistry: NewFamilyRegistry(), slow: NewFamilyRegistry(), checks: map[string]Check{}}
	m.slow.MustRegister(NewHoldings("/proc/self"), readiness{m})
	m.MustRegister(newBuildInfo(program), logCounts{}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return m
}

// Describe returns the families that the processes of a program have before they add their own, and
// the families of a connection to NATS.
func Describe(program string) (*FamilyRegistry, error) {
	m := newMetrics(program)
	var none *natsconn.Conn
	err := errors.Join(m.Register(NewHoldings("/proc/self")), m.Register(readiness{m}), m.Register(none.Collector()))
	return m.FamilyRegistry, err
}

// readiness is a gauge of the answer of /readyz. A scrape waits for the checks.
type readiness struct{ m *Metrics }

var readyDesc = prometheus.NewDesc("exoswarm_ready", "1 when every check of /readyz passes, else 0.", nil, nil)

// Describe implements prometheus.Collector.
func (r readiness) Describe(out chan<- *prometheus.Desc) { out <- readyDesc }

// Collect implements prometheus.Collector.
func (r readiness) Collect(out chan<- prometheus.Metric) {
	v := 0.0
	if r.m.Ready(context.Background()) == nil {
		v = 1
	}
	out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, v)
}

// all returns every metric of the process.
func (m *Metrics) all() prometheus.Gatherer { return prometheus.Gatherers{m.FamilyRegistry, m.slow} }

// Require adds a check to /readyz, or replaces the check of that name.
func (m *Metrics) Require(name string, check Check) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks[name] = check
}

// Ready returns nil when every check passes within 2 s, and otherwise the reasons of the checks
// that do not, a line each.
func (m *Metrics) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	m.mu.Lock()
	var wait sync.WaitGroup
	var failed []string
	results := make(chan string, len(m.checks))
	for name, check := range m.checks {
		wait.Go(func() {
			if err := check(ctx); err != nil {
				results <- name + ": " + err.Error()
			}
		})
	}
	m.mu.Unlock()
	wait.Wait()
	close(results)
	for r := range results {
		failed = append(failed, r)
	}
	if len(failed) == 0 {
		return nil
	}
	slices.Sort(failed)
	return errors.New(strings.Join(failed, "\n"))
}

// Addr is the host and port that it is served on; empty when it is not.
func (m *Metrics) Addr() string { return m.addr }

// Close ends the serving; requests under way have two seconds. A second call does nothing.
func (m *Metrics) Close() {
	if m.server == nil {
		return
	}
	m.server.CloseWithin(2 * time.Second)
	m.watch.Wait()
}
