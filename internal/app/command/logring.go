package command

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// ringLines and ringBytes bound the lines that a process keeps of its log.
const (
	ringLines = 1000
	ringBytes = 1 << 20
)

// LogRing keeps the last lines of a log as JSON, for a debug bundle. Its methods may be called from
// several goroutines.
type LogRing struct {
	mu    sync.Mutex
	lines [][]byte
	bytes int
}

// Write takes one line.
func (r *LogRing) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, bytes.Clone(line))
	r.bytes += len(line)
	for len(r.lines) > ringLines || r.bytes > ringBytes && len(r.lines) > 1 {
		r.bytes -= len(r.lines[0])
		r.lines = r.lines[1:]
	}
	return len(line), nil
}

// Lines returns the lines, oldest first, each with its end.
func (r *LogRing) Lines() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(r.lines, nil)
}

var logRing LogRing

// ringed is a handler that writes what another one writes to the ring too, as JSON.
type ringed struct {
	slog.Handler
	ring slog.Handler
}

func newRinged(h slog.Handler, o *slog.HandlerOptions) slog.Handler {
	return ringed{h, slog.NewJSONHandler(&logRing, o)}
}

// Handle implements slog.Handler.
func (h ringed) Handle(ctx context.Context, r slog.Record) error {
	_ = h.ring.Handle(ctx, r.Clone()) // to memory
	countLine(r.Level)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h ringed) WithAttrs(a []slog.Attr) slog.Handler {
	return ringed{h.Handler.WithAttrs(a), h.ring.WithAttrs(a)}
}

// WithGroup implements slog.Handler.
func (h ringed) WithGroup(name string) slog.Handler {
	return ringed{h.Handler.WithGroup(name), h.ring.WithGroup(name)}
}

// logLevels are the values of the label level, from the lowest one on.
var logLevels = [...]string{"debug", "info", "warn", "error"}

// logLines counts the lines of this process, which has one log, by level.
var logLines [len(logLevels)]atomic.Uint64

// countLine counts a line. A level between two named ones counts as the lower one.
func countLine(l slog.Level) {
	i := 0
	for _, least := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if l >= least {
			i++
		}
	}
	logLines[i].Add(1)
}

// logCounts collects how many lines the process has logged.
type logCounts struct{}

var logDesc = prometheus.NewDesc("exoswarm_log_messages_total", "Lines that the process has logged.",
	[]string{"level"}, nil)

// Describe implements prometheus.Collector.
func (logCounts) Describe(out chan<- *prometheus.Desc) { out <- logDesc }

// Collect implements prometheus.Collector.
func (logCounts) Collect(out chan<- prometheus.Metric) {
	for i, level := range logLevels {
		out <- prometheus.MustNewConstMetric(logDesc, prometheus.CounterValue, float64(logLines[i].Load()), level)
	}
}
