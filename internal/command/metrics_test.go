package command_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	cmd := &cobra.Command{}
	command.MetricsFlag(cmd.Flags())
	log := slog.New(slog.DiscardHandler)
	var sick atomic.Bool
	healthy := func(context.Context) error {
		if sick.Load() {
			return errors.New("the device is lost")
		}
		return nil
	}
	silent, err := command.NewMetrics(cmd, log)
	if err != nil || silent.Addr() != "" {
		t.Fatalf("%q, %v", silent.Addr(), err)
	}
	silent.Close()
	if err := cmd.Flags().Set("metrics", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	m, err := command.NewMetrics(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	m.Require("devices", func(context.Context) error { return errors.New("replaced below") })
	m.Require("devices", healthy)
	url := "http://" + m.Addr()
	if code, body := get(t, url+"/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") ||
		!strings.Contains(body, "go_build_info") || !strings.Contains(body, `exoswarm_build_info{go_version="go1.`) {
		t.Errorf("%d: %s", code, body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		if code, body := get(t, url+path); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d: %s", path, code, body)
		}
	}
	sick.Store(true)
	// a check that hangs
	m.Require("queue", func(ctx context.Context) error { <-ctx.Done(); return errors.New("no answer") })
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, url+path); code != 503 || body != "devices: the device is lost\nqueue: no answer\n" {
			t.Errorf("%s: %d: %s", path, code, body)
		}
	}
	if code, body := get(t, url+"/livez"); code != 200 {
		t.Errorf("/livez of a process that is alive but not ready: %d: %s", code, body)
	}
	if err := cmd.Flags().Set("metrics", m.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := command.NewMetrics(cmd, log); err == nil || !strings.Contains(err.Error(), m.Addr()) {
		t.Errorf("a port twice: %v", err)
	}
	m.Close()
	m.Close()
}
