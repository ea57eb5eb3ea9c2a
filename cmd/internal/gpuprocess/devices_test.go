package gpuprocess

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// gpuagent runs the command in this process.
func gpuagent(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := Command()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	code = command.Run(t.Context(), cmd, &errs)
	return code, out.String(), errs.String()
}

// TestDeviceMissing: a device that was asked for and is not there is an error of the command line
// that says which there are, before anything is connected.
func TestDeviceMissing(t *testing.T) {
	if n, _ := cuda.Count(); n > 0 {
		t.Skip("this machine has a GPU")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--device", "cuda"}, "there is host"},
		{[]string{"--device", "cuda:7"}, "there is host"},
		{[]string{"--device", "all"}, "there is host"},
		{[]string{"--device", "quantum"}, "there is host"},
		{[]string{"--require-gpu"}, "--require-gpu: no GPU can be used: "},
		{[]string{"--require-gpu", "--device", "host"}, "names the host device"},
		{[]string{"--device", "host", "--snapshots", "ftp://x"}, "--snapshots"},
	} {
		code, _, stderr := gpuagent(t, append(c.args, "--nats", "nats://127.0.0.1:1")...)
		if code != command.ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d: %s", c.args, code, stderr)
		}
	}
}

// TestFallback: auto that falls back to the host warns once, has a reason for the registry, and a
// metric.
func TestFallback(t *testing.T) {
	if n, _ := cuda.Count(); n > 0 {
		t.Skip("this machine has a GPU")
	}
	var log bytes.Buffer
	all, err := openDevices(t.Context(), "auto", false, cuda.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatalf("openDevices auto: %v", err)
	}
	defer func() {
		if err := closeDevices(all); err != nil {
			t.Errorf("closeDevices: %v", err)
		}
	}()
	if fallback(all) == "" || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("fallback %q, log:\n%s", fallback(all), log.String())
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(newFallbackMetric(fallback(all) != ""))
	if v := values(t, reg)["exoswarm_gpuagent_auto_fallback"]; v != 1 {
		t.Errorf("exoswarm_gpuagent_auto_fallback is %v", v)
	}
	host, err := openDevices(t.Context(), "host", false, cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("openDevices host: %v", err)
	}
	defer func() { _ = closeDevices(host) }()
	if f := fallback(host); f != "" {
		t.Errorf("the host that was asked for is no fallback: %q", f)
	}
}

// TestDevices: the list has the host with its memory, as a table and as JSON.
func TestDevices(t *testing.T) {
	code, table, stderr := gpuagent(t, "devices")
	if code != 0 || !strings.Contains(table, "FREE MiB") || !strings.Contains(table, "host") {
		t.Errorf("exit %d: %s%s", code, table, stderr)
	}
	code, text, stderr := gpuagent(t, "devices", "-o", "json")
	var all []listed
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, text, stderr)
	}
	last := all[len(all)-1]
	if last.Name != "host" || last.MemoryFree <= 0 || last.MemoryTotal < last.MemoryFree || last.Error != "" {
		t.Errorf("the last device is %+v; want the host with its free and total memory", last)
	}
	if code, _, _ := gpuagent(t, "devices", "-o", "xml"); code != command.ExitUsage {
		t.Errorf("-o xml: exit %d", code)
	}
}
