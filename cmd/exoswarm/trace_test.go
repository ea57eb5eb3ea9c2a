package main

import (
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/otlptest"
)

// TestRunTrace: a run is one trace, from its submission over every batch and what the agents decide
// on it to the result.
func TestRunTrace(t *testing.T) {
	spans := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", spans.URL)
	t.Setenv("TRACEPARENT", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := write(t, filepath.Join(dir, "in.csv"), series(1, 350))
	if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", in, "--output",
		filepath.Join(dir, "out.ndjson"), "--batch-rows", "100"); code != 0 {
		t.Fatal(code, stderr)
	}
	one := func(name string) otlptest.Span {
		all := spans.Named(name)
		if len(all) != 1 {
			t.Fatalf("%d spans %q", len(all), name)
		}
		return all[0]
	}
	submit, process := one("submit EXO_JOBS_CPU"), one("process EXO_JOBS_CPU")
	if submit.Parent != "0123456789abcdef" || process.Parent != submit.ID ||
		one("receive EXO_RESULTS").Trace != submit.Trace {
		t.Errorf("%+v\n%+v", submit, process)
	}
	parent := func(name string, n int, of map[string]bool) map[string]bool {
		all := spans.Named(name)
		ids := map[string]bool{}
		for _, s := range all {
			if ids[s.ID] = true; s.Trace != submit.Trace || !of[s.Parent] || s.Failed {
				t.Errorf("span %+v: want one of the trace of the submission, with a known parent and without an "+
					"error", s)
			}
		}
		if len(all) != n {
			t.Errorf("%d spans %q, want %d", len(all), name, n)
		}
		return ids
	}
	const entries = 5 // four batches and the end
	appended := parent("append EXO_LOG_{swarm}_{shard}_in", entries, map[string]bool{process.ID: true})
	applied := parent("process EXO_LOG_{swarm}_{shard}_in", entries, appended)
	parent("append EXO_LOG_{swarm}_{shard}_out", entries, applied)
}
