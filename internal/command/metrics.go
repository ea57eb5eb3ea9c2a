package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// MetricsFlag adds --metrics.
func MetricsFlag(f *pflag.FlagSet) {
	f.String("metrics", "", "HOST:PORT to serve /metrics (Prometheus) and /healthz on, to whoever asks; empty for neither")
}

// Metrics is the registry of a process, served over HTTP where --metrics says so.
type Metrics struct {
	*prometheus.Registry
	addr   string
	server *http.Server
	ended  chan struct{}
}

// NewMetrics makes the registry, with the runtime's and the process's own metrics in it, and serves it. healthy is asked by /healthz,
// which answers 200, or 503 and the error.
func NewMetrics(cmd *cobra.Command, healthy func() error, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	addr, _ := cmd.Flags().GetString("metrics")
	if addr == "" {
		return m, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, Usage("--metrics %s: %v", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	m.addr, m.ended = l.Addr().String(), make(chan struct{})
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	go func() {
		defer close(m.ended)
		if err := m.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	log.Info("serving metrics", "url", "http://"+m.addr+"/metrics")
	return m, nil
}

// Addr is the host and port that it is served on; empty when it is not.
func (m *Metrics) Addr() string { return m.addr }

// Close ends the serving; requests under way have two seconds. A second call does nothing.
func (m *Metrics) Close() {
	if m.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if m.server.Shutdown(ctx) != nil {
		_ = m.server.Close()
	}
	<-m.ended
}
