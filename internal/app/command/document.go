package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// shownFlags are the flags whose values a bundle shows. Others may hold a secret, or a path that
// names a customer, and are shown as set or not.
var shownFlags = []string{
	"replicas", "name", "metrics", "log-level", "log-format", "device", "require-gpu", "page-memory",
	"host-page-memory",
	"memory", "concurrency", "max-shards", "page-age", "host-page-age", "batch", "patience", "sweep", "lease",
}

// Document makes a document of this process for a telemetry. A CPU profile is shared with the other
// agents of the process that are asked for one meanwhile.
func (m *Metrics) Document(ctx context.Context, cmd *cobra.Command, what string, seconds int) ([]byte, error) {
	var b bytes.Buffer
	switch what {
	case telemetry.CPU:
		return profiles.take(ctx, time.Duration(max(seconds, 1))*time.Second)
	case telemetry.Heap:
		if err := pprof.Lookup("heap").WriteTo(&b, 0); err != nil {
			return nil, fmt.Errorf("heap profile: %w", err)
		}
	case telemetry.Goroutines:
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			return nil, fmt.Errorf("stacks: %w", err)
		}
	case telemetry.Metrics:
		families, err := m.all().Gather()
		if err != nil && len(families) == 0 {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
				return nil, fmt.Errorf("metrics: %w", err)
			}
		}
	case telemetry.Log:
		return logRing.Lines(), nil
	case telemetry.Process:
		return process(cmd)
	default:
		return nil, fmt.Errorf("there is no document %q", what)
	}
	return b.Bytes(), nil
}

// process describes the process: its program, its flags and its machine.
func process(cmd *cobra.Command) ([]byte, error) {
	number, revision := Version()
	flags := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case slices.Contains(shownFlags, f.Name):
			flags[f.Name] = f.Value.String()
		case f.Changed:
			flags[f.Name] = "(set)"
		}
	})
	return json.MarshalIndent(map[string]any{
		"program": cmd.Root().Name(), "version": number, "revision": revision, "go": runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH, "cpus": runtime.NumCPU(), "gomaxprocs": runtime.GOMAXPROCS(0),
		"goroutines": runtime.NumGoroutine(), "flags": flags,
	}, "", " ")
}
