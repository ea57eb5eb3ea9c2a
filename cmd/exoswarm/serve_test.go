package main

import (
	"archive/zip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// startServe starts exoswarm serve on free ports, and returns the URL of its NATS server and an API
// client that has logged in.
func startServe(t *testing.T, dir string, args ...string) (p *process, nats string, api *http.Client, base string) {
	t.Helper()
	p, logged := startProcess(t, `the dashboard is ready.*url="?([^"\s]+)`, filepath.Join(binaries(t), "exoswarm"),
		append([]string{"serve", "--data-dir", dir, "--nats-port", "0", "--listen", "127.0.0.1:0", "--device", "host"},
			args...)...)
	_, rest, _ := strings.Cut(p.log.String(), `msg="nats is ready" url=`)
	nats, _, _ = strings.Cut(rest, " ")
	api, base = openDashboard(t, p, logged)
	return p, nats, api, base
}

// openDashboard logs in to the dashboard of a process, which has logged its address, and returns a
// client of the API.
func openDashboard(t *testing.T, p *process, logged string) (api *http.Client, base string) {
	t.Helper()
	var login string
	testkit.Until(t, "the address of the dashboard", func() bool {
		_, rest, found := strings.Cut(p.out.String(), "open the dashboard: ")
		login, _, _ = strings.Cut(rest, "\n")
		return found && login != ""
	})
	base, token, found := strings.Cut(login, "#t=")
	if !found {
		t.Fatalf("the address of the dashboard is %q, want one with a token", login)
	}
	if strings.TrimRight(logged, "/") != strings.TrimRight(base, "/") || strings.Contains(p.log.String(), token) {
		t.Errorf("the log has the address %s, want %s without the token", logged, base)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("cookiejar.New: %v", err)
	}
	api = &http.Client{Jar: jar, Timeout: time.Minute}
	r, err := api.Post(base+"api/v1/login", "application/json", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil || r.StatusCode >= http.StatusBadRequest {
		t.Fatalf("log in: %v, %v", r, err)
	}
	_ = r.Body.Close()
	return api, base
}

// stateOf asks the API for the state of the cluster.
func stateOf(t *testing.T, api *http.Client, base string) *ops.State {
	t.Helper()
	r, err := api.Get(base + "api/v1/state")
	if err != nil {
		t.Fatalf("ask the API: %v", err)
	}
	defer r.Body.Close()
	s := &ops.State{}
	if err := json.NewDecoder(r.Body).Decode(s); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("the API answers %s: %v", r.Status, err)
	}
	return s
}

// TestServe: one command gives a cluster with a dashboard whose data moves within ten seconds of
// the start; after a kill it continues where it was, and a signal ends it in order.
func TestServe(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	dir := t.TempDir()
	moving := func(api *http.Client, base string) *ops.State {
		t.Helper()
		var s *ops.State
		testkit.Until(t, "data that moves", func() bool {
			s = stateOf(t, api, base)
			served := 0
			for _, sw := range s.Swarms {
				for _, sh := range sw.Shards {
					if sh.EntriesPerSecond > 0 {
						served++
					}
				}
			}
			return served > 0 && len(s.Agents) == 2
		})
		return s
	}
	binaries(t)
	began := time.Now()
	p, _, api, base := startServe(t, dir, "--demo")
	s := moving(api, base)
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("the dashboard shows moving data after %v, want at most two minutes", took)
	}
	if s.Numbers[ops.ShardsUnserved] != 0 {
		t.Errorf("%v shards are not served", s.Numbers[ops.ShardsUnserved])
	}
	for len(s.Incidents) == 0 && time.Since(began) < time.Minute {
		letPass(t.Context(), time.Second/5)
		s = stateOf(t, api, base)
	}
	took := time.Since(began)
	t.Logf("the first incident comes after %v", took)
	if len(s.Incidents) == 0 || s.Incidents[0].Entity != "requests_per_s" || s.Incidents[0].Feature != "value" {
		t.Errorf("after %v the incidents are %+v", took, s.Incidents)
	}
	clock, first := s.Watches[0].Clock, s.Incidents[len(s.Incidents)-1].Begin
	p.end(t, syscall.SIGKILL)
	p, nats, api, base := startServe(t, dir, "--demo")
	// The detector goes on where it was.
	testkit.Until(t, "the time of the data goes on", func() bool {
		s = moving(api, base)
		return len(s.Swarms) == 1 && len(s.Watches) == 1 && s.Watches[0].Clock > clock
	})
	testkit.Until(t, "the incidents of the process before", func() bool {
		return slices.ContainsFunc(stateOf(t, api, base).Incidents, func(in ops.Incident) bool {
			return in.Begin == first
		})
	})
	// Other commands reach it.
	out, err := osexec.Command(filepath.Join(binaries(t), "exoswarm"), "status", "--nats", nats).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "agents    2 alive") {
		t.Errorf("exoswarm status: %v\n%s", err, out)
	}
	seen(t, s, api, base, nats, filepath.Join(dir, "trace.json"))
	p.end(t, syscall.SIGTERM)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d after SIGTERM:\n%s", code, p.log)
	}
}

// seen reads the heat map of a swarm and the trace of the GPU agent of a cluster, and writes the
// trace into a file.
func seen(t *testing.T, s *ops.State, api *http.Client, base, nats, file string) {
	t.Helper()
	r, err := api.Get(base + "api/v1/swarms/" + s.Swarms[0].ID + "/heat?size=16")
	if err != nil {
		t.Fatalf("ask the API: %v", err)
	}
	defer r.Body.Close()
	var h ops.Heat
	if err := json.NewDecoder(r.Body).Decode(&h); err != nil || len(h.Parts) == 0 || h.Parts[0].Error != "" ||
		len(h.Cells) == 0 {
		t.Errorf("the heat map of swarm %s: status %s, %+v, %v", s.Swarms[0].Name, r.Status, h.Parts, err)
	}
	for _, a := range s.Agents {
		if a.Pool != jobs.PoolGPU {
			continue
		}
		out, err := osexec.Command(filepath.Join(binaries(t), "exoswarm"), "debug", "trace", a.Name, "-o", file,
			"--nats", nats).CombinedOutput()
		if err != nil {
			t.Errorf("exoswarm debug trace: %v\n%s", err, out)
		}
	}
	var trace ops.Trace
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &trace)
	}
	kernels := 0
	for _, e := range trace.Events {
		if e.Name == "kernel" && e.Phase == "X" && e.Took > 0 {
			kernels++
		}
	}
	if err != nil || kernels == 0 {
		t.Errorf("a trace with %d kernels in %d events: %v", kernels, len(trace.Events), err)
	}
}

// TestBundleSecrets: secrets that are planted wherever one can be are not in a bundle.
func TestBundleSecrets(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const mark = "s3cr3t-PLANTED-7f2a"
	dir, in := t.TempDir(), t.TempDir()
	t.Setenv("EXOSWARM_PLANTED", mark)
	t.Setenv("NATS_PASSWORD", mark)
	rows := write(t, filepath.Join(in, "bad.csv"),
		"timestamp,value\n2026-01-01 00:00:00,1\n2026-01-01 00:00:01,"+mark+"\n")
	spec := write(t, filepath.Join(in, "swarm.yaml"), "name: planted\nagents_per_group: 16\n")
	p, nats, _, _ := startServe(t, dir, "--root", "in="+in)
	exe := filepath.Join(binaries(t), "exoswarm")
	run := func(want int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := osexec.CommandContext(ctx, exe, append(args, "--nats", nats)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("exoswarm %s: exit %d, want %d\n%s", strings.Join(args, " "), code, want, out)
		}
		return string(out)
	}
	run(0, "run", "-f", spec, "--input", rows, "--output", filepath.Join(in, "out.ndjson"), "--max-rejects", "1")
	// A job whose spec holds secrets.
	run(0, "submit", "--kind", "nobody", "--id", "waits1", "--spec", fmt.Sprintf(`{"password":%q}`, mark))
	letPass(t.Context(), 2*time.Second) // agents and dashboard see the job
	file := filepath.Join(dir, "b.zip")
	run(0, "debug", "bundle", "-o", file, "--for", "1s")
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatalf("zip.OpenReader: %v", err)
	}
	defer z.Close()
	var plain []byte
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatalf("f.Open: %v", err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("io.ReadAll: %v", err)
		}
		plain = append(append(plain, f.Name...), data...)
		if strings.HasSuffix(f.Name, "cpu.pprof.err.txt") {
			t.Errorf("%s: %s: the agents of one process do not share a CPU profile", f.Name, data)
		}
	}
	for _, secret := range []string{mark, base64.StdEncoding.EncodeToString([]byte(mark))[:20]} {
		if i := strings.Index(string(plain), secret); i >= 0 {
			t.Errorf("the bundle holds a planted secret: …%s…", plain[max(0, i-200):min(len(plain), i+100)])
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 64<<20 || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle: %+v, %v, want at most 64 MiB for its owner alone", info, err)
	}
	p.end(t, syscall.SIGTERM)
}

// TestServeTiers: serve has the flags of tiers, and bounds its memory and its open shards. Pages of
// a swarm that nobody uses are on the tier, and parked shards answer.
func TestServeTiers(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	dir := t.TempDir()
	nvme, ssd := filepath.Join(dir, "nvme"), filepath.Join(dir, "ssd")
	for _, folder := range []string{nvme, ssd} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatalf("os.Mkdir: %v", err)
		}
	}
	p, nats, _, _ := startServe(t, filepath.Join(dir, "data"), "--tier", "nvme="+nvme+",capacity=1GiB", "--tier",
		"ssd="+ssd, "--memory", "1200MiB", "--open-shards", "1", "--fast")
	for i := range 3 {
		spec := filepath.Join(dir, fmt.Sprintf("s%d.yaml", i))
		text := fmt.Sprintf("name: s%d\naddressed: agent\ncell: {kind: leaky}\nagents: 1000\nagents_per_group: 100\n"+
			"features: [current, gain]\nvote: {candidates: [quiet, spike], rule: majority}\npage_size: 64KiB\n", i)
		if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v", err)
		}
		for _, args := range [][]string{{"swarm", "create", "-f", spec}, {"swarm", "tick", fmt.Sprint("s", i)}} {
			if out, err := osexec.Command(filepath.Join(binaries(t), "exoswarm"),
				append(args, "--nats", nats)...).CombinedOutput(); err != nil {
				t.Fatalf("exoswarm %v: %v: %s", args, err, out)
			}
		}
	}
	out, err := osexec.Command(filepath.Join(binaries(t), "exoswarm"), "swarm", "pages", "s2", "--nats",
		nats).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nvme") || !strings.Contains(string(out), "ssd") {
		t.Errorf("swarm pages: %v: %s", err, out)
	}
	// Beside the folders of shards, each named by its swarm, is the lock of the process.
	if shards, err := filepath.Glob(filepath.Join(nvme, "s?=*.0")); err != nil || len(shards) != 3 {
		t.Errorf("the first tier has the folders of shards %v, want 3: %v", shards, err)
	}
	if !strings.Contains(p.log.String(), fmt.Sprintf("memory=%d", int64(1200-358)<<20)) {
		t.Errorf("the GPU agent does not log its part of the memory:\n%s", p.log.String())
	}
}
