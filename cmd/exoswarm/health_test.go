package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// probe asks an HTTP endpoint once; status 0 stands for no answer.
func probe(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatalf("http.NewRequestWithContext: %v", err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

// becomes waits until an endpoint answers with a status, and returns the body and how long that
// took.
func becomes(t *testing.T, url string, status int) (string, time.Duration) {
	t.Helper()
	began, body := time.Now(), ""
	testkit.Until(t, fmt.Sprintf("status %d of %s", status, url), func() bool {
		var code int
		code, body = probe(t, url)
		return code == status
	})
	return body, time.Since(began)
}

// metric is the value of a metric without labels, as text.
func metric(t *testing.T, base, name string) string {
	t.Helper()
	_, body := probe(t, base+"/metrics")
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("there is no metric %s", name)
	}
	return m[1]
}

// TestProcessHealth runs both kinds of agent as processes through three outages: a server that is
// not there yet, one that stands still, and one that is killed. Each shows in /readyz and /healthz
// within 5 s, in a metric, and in one line of the log at its start and one at its end. Every line
// of the log is JSON, as asked for.
func TestProcessHealth(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	dir := t.TempDir()
	serve := func(port string) (*process, string) {
		return startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", port,
			"--data-dir", dir)
	}
	nats, url := serve("0")
	port := url[strings.LastIndex(url, ":")+1:]
	nats.end(t, syscall.SIGTERM)
	names := []string{"gpuagent", "cpuagent"}
	var agents []*process
	var bases []string
	for _, name := range names {
		args := []string{"--nats", url, "--log-format", "json", "--metrics", "127.0.0.1:0"}
		if name == "gpuagent" {
			args = append(args, "--device", "host")
		}
		p, _ := startProcess(t, "waiting for the NATS server", filepath.Join(bin, name), args...)
		m := regexp.MustCompile(`"url":"(http://[^"]+)/metrics"`).FindStringSubmatch(p.log.String())
		if m == nil {
			t.Fatalf("%s does not say where its metrics are:\n%s", name, p.log)
		}
		agents, bases = append(agents, p), append(bases, m[1])
	}
	each := func(fn func(name, base string)) {
		for i, name := range names {
			fn(name, bases[i])
		}
	}
	alive := func(name, base string) {
		if code, body := probe(t, base+"/livez"); code != 200 {
			t.Errorf("%s: /livez: %d: %s", name, code, body)
		}
	}
	each(func(name, base string) {
		if code, body := probe(t, base+"/readyz"); code != 503 || !strings.Contains(body, "nats: ") {
			t.Errorf("%s before its server: /readyz: %d: %s", name, code, body)
		}
		alive(name, base)
	})
	nats, _ = serve(port)
	up := func(name, base string) {
		becomes(t, base+"/readyz", 200)
		becomes(t, base+"/healthz", 200)
		if v := metric(t, base, "exoswarm_nats_connected"); v != "1" {
			t.Errorf("%s: exoswarm_nats_connected is %s while connected", name, v)
		}
	}
	each(up)
	each(func(name, base string) {
		for kind, want := range map[string]string{
			`exoswarm_process_open\{kind="listener"\}`: "1",
			`exoswarm_process_open\{kind="gpu"\}`:      "0", "exoswarm_process_gpu_libraries": "0",
		} {
			if v := metric(t, base, kind); v != want {
				t.Errorf("%s: %s is %s, want %s: it opens no listener but its metrics, and no GPU", name, kind, v, want)
			}
		}
	})
	down := func(name, base string) {
		for _, path := range []string{"/readyz", "/healthz"} {
			body, after := becomes(t, base+path, 503)
			if !strings.Contains(body, "nats: NATS") {
				t.Errorf("%s: %s after %v: %s", name, path, after, body)
			}
		}
		alive(name, base)
		testkit.Until(t, name+" to count itself as not connected", func() bool {
			return metric(t, base, "exoswarm_nats_connected") == "0"
		})
	}
	if err := nats.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("nats.cmd.Process.Signal: %v", err)
	}
	each(down)
	if err := nats.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("nats.cmd.Process.Signal: %v", err)
	}
	each(up)
	nats.end(t, syscall.SIGKILL)
	each(down)
	// An outage of some seconds, in which what repeats every few seconds shows.
	for range 10 {
		each(alive)
		letPass(t.Context(), time.Second)
	}
	serve(port)
	each(up)
	for i, p := range agents {
		p.end(t, syscall.SIGTERM)
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ended with %d", names[i], code)
		}
		counts := map[string]int{}
		for line := range strings.Lines(p.log.String()) {
			var l struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &l); err != nil || l.Msg == "" {
				t.Errorf("%s: a line of the log is no JSON: %s", names[i], line)
			}
			counts[l.Level+" "+l.Msg]++
		}
		for line, n := range counts {
			if n > 2 {
				t.Errorf("%s: %d times in two outages: %s", names[i], n, line)
			}
		}
		if counts["WARN the connection to NATS is lost; trying to reconnect until it is back"] != 2 || counts["INFO "+
			"the connection to NATS is restored"] != 2 ||
			counts["WARN waiting for the NATS server"] != 1 || counts["INFO the NATS server answers"] != 1 {
			t.Errorf("%s: not one line at each loss and one at each return: %v\n%s", names[i], counts, p.log)
		}
	}
}

// TestNATSFlags: flags of the server that are wrong are errors of the command line.
func TestNATSFlags(t *testing.T) {
	open := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(open, []byte(strings.Repeat("11", 32)), 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	for _, args := range [][]string{
		{"--host", "0.0.0.0"},
		{"--route", "a:1"},
		{"--tls-cert", "absent"},
		{"--tls-ca", "absent"},
		{"--cluster-port", "1", "--name", "n", "--route", "a"},
		{"--key-file", "absent"},
		{"--key-file", open},
	} {
		code, _, stderr := exec(t.Context(), t, append([]string{"nats", "--port", "0", "--data-dir", t.TempDir()},
			args...)...)
		if code != 2 {
			t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
}
