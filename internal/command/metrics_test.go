package command_test

import (
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
	healthy := func() error {
		if sick.Load() {
			return errors.New("the device is lost")
		}
		return nil
	}
	silent, err := command.NewMetrics(cmd, healthy, log)
	if err != nil || silent.Addr() != "" {
		t.Fatalf("%q, %v", silent.Addr(), err)
	}
	silent.Close()
	if err := cmd.Flags().Set("metrics", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	m, err := command.NewMetrics(cmd, healthy, log)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + m.Addr()
	if code, body := get(t, url+"/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") || !strings.Contains(body, "go_build_info") {
		t.Errorf("%d: %s", code, body)
	}
	if code, body := get(t, url+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d: %s", code, body)
	}
	sick.Store(true)
	if code, body := get(t, url+"/healthz"); code != 503 || body != "the device is lost\n" {
		t.Errorf("%d: %s", code, body)
	}
	if err := cmd.Flags().Set("metrics", m.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := command.NewMetrics(cmd, healthy, log); err == nil || !strings.Contains(err.Error(), m.Addr()) {
		t.Errorf("a port twice: %v", err)
	}
	m.Close()
	m.Close()
}
