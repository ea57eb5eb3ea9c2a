package serveprocess_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// process is a process of the stand: a program, or its command in the process of the test.
type process struct {
	pid   int // 0: it runs in this one
	stop  func()
	ended chan struct{}
}

// end ends the process as a signal does, and waits for it.
func (p *process) end() {
	p.stop()
	<-p.ended
}

// stand is a cluster with a Prometheus that scrapes it every half second.
type stand struct {
	t       *testing.T
	dir     string
	port    int // of NATS
	nats    *server.Server
	conn    *natsq.Conn
	targets map[string]string // address of the metrics by name of the process
	held    map[string]net.Listener
	prom    string // URL of Prometheus
}

// reserve chooses the addresses of the metrics of processes. It holds them until the processes
// start, because other programs of the machine choose ports too.
func (s *stand) reserve(names ...string) {
	s.t.Helper()
	s.targets, s.held = map[string]string{}, map[string]net.Listener{}
	for _, name := range names {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", jobstest.Port(s.t)))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = l.Close() }) // a second time is an error
		s.targets[name], s.held[name] = l.Addr().String(), l
	}
}

// address returns the address of the metrics of a process, which starts now.
func (s *stand) address(name string) string {
	_ = s.held[name].Close() // a second time is an error
	return s.targets[name]
}

// start starts the command of a process in this one, under the name of a program, and waits until
// its metrics are served. It is for faults that a test makes within the process. It uses the server
// of the stand unless args have another server.
func (s *stand) start(name, program string, cmd *cobra.Command, args ...string) *process {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	p := &process{stop: cancel, ended: make(chan struct{})}
	var log testkit.Log
	cmd.Annotations = map[string]string{command.ProgramAnnotation: program}
	if !slices.Contains(args, "--nats") {
		args = append(args, "--nats", s.nats.URL())
	}
	cmd.SetArgs(append(args, "--metrics", s.address(name), "--log-level", "info"))
	cmd.SetErr(&log)
	cmd.SetOut(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	go func() {
		defer close(p.ended)
		if err := cmd.ExecuteContext(ctx); err != nil && ctx.Err() == nil {
			s.t.Errorf("%s: %v\n%s", name, err, log.String())
		}
	}()
	s.t.Cleanup(p.end)
	s.served(name, p, &log)
	return p
}

// get returns the body of a URL whose status is 200.
func get(t *testing.T, address, accept string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, r.Status, body)
	}
	return string(body), err
}

// eventually waits for a condition.
func (s *stand) eventually(what string, ok func() bool) {
	s.t.Helper()
	testkit.Until(s.t, what, ok)
}

// query returns the number of series of an expression, as of now.
func (s *stand) query(expr string) int {
	s.t.Helper()
	body, err := get(s.t, s.prom+"/api/v1/query?query="+url.QueryEscape(expr), "")
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	var r struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		s.t.Fatal(err)
	}
	return len(r.Data.Result)
}

// fires waits until each alert fires.
func (s *stand) fires(alerts ...string) {
	s.t.Helper()
	for _, a := range alerts {
		s.eventually(a+" fires", func() bool { return s.query(`ALERTS{alertstate="firing",alertname="`+a+`"}`) > 0 })
	}
}

// clears waits until no alert of a name fires.
func (s *stand) clears(alerts ...string) {
	s.t.Helper()
	for _, a := range alerts {
		s.eventually(a+" clears", func() bool { return s.query(`ALERTS{alertname="`+a+`"}`) == 0 })
	}
}

// shortened returns the rules with windows of seconds, and with objectives that jobs miss that wait
// for a second, and that entries of any load miss.
func shortened(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, r := range [][2]string{
		{`\[\d+[mh]\]`, "[6s]"},
		{`offset \d+[mh]`, "offset 6s"},
		{`for: \d+[smh]`, "for: 1s"},
		{`interval: 30s`, "interval: 500ms"},
		{`le="32.768"`, `le="0.512"`},
		{`le="0.4096"`, `le="0.0001"`},
		{`\) > 100 and`, ") > 5 and"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// prometheus starts Prometheus over the targets, with the rules. Targets whose names start with cpu
// are CPU agents, with gpu GPU agents, and with ui dashboards.
func (s *stand) prometheus() {
	s.t.Helper()
	path := tool(s.t, "prometheus")
	dir := s.t.TempDir()
	targets := func(kind string) string {
		var all []string
		for n, address := range s.targets {
			if strings.HasPrefix(n, kind) {
				all = append(all, "'"+address+"'")
			}
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	config := fmt.Sprintf(`global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yaml]
scrape_configs:
  - {job_name: exoswarm-cpuagent, static_configs: [{targets: %s}]}
  - {job_name: exoswarm-gpuagent, static_configs: [{targets: %s}]}
  - {job_name: exoswarm-cluster, static_configs: [{targets: %s}]}
`, targets("cpu"), targets("gpu"), targets("ui"))
	for name, text := range map[string]string{"prometheus.yaml": config, "rules.yaml": shortened(s.t)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	addr := fmt.Sprintf("127.0.0.1:%d", jobstest.Port(s.t))
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), path,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
		"--enable-feature=exemplar-storage")
	var log testkit.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	s.prom = "http://" + addr
	s.eventually("Prometheus is ready", func() bool {
		_, err := get(s.t, s.prom+"/-/ready", "")
		return err == nil
	})
}

// serveNATS starts the server at its port, on the data of before.
func (s *stand) serveNATS() {
	s.t.Helper()
	dir := filepath.Join(s.dir, "nats")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if s.nats, err = server.Start(s.t.Context(), server.Options{Dir: dir, Port: s.port, Fast: true}); err != nil {
		s.t.Fatal(err)
	}
}

// submit submits a job without a specification, which no handler of a stream accepts.
func (s *stand) submit(id, kind string) {
	s.t.Helper()
	if err := s.conn.Queue.Submit(s.t.Context(), jobstest.Job(id, kind)); err != nil {
		s.t.Fatal(err)
	}
}

// late submits jobs while their kind is paused, again and again, until an alert fires.
func (s *stand) late(alert string) {
	s.t.Helper()
	submitted := 0
	s.eventually(alert+" fires", func() bool {
		if err := s.conn.Control.Pause(s.t.Context(), jobs.PoolCPU, "stream"); err != nil {
			s.t.Fatal(err)
		}
		for range 5 {
			s.submit(fmt.Sprintf("late-%d", submitted), "stream")
			submitted++
		}
		<-time.After(time.Second) // the jobs become late
		if err := s.conn.Control.Resume(s.t.Context(), jobs.PoolCPU, "stream"); err != nil {
			s.t.Fatal(err)
		}
		<-time.After(500 * time.Millisecond) // Prometheus scrapes and evaluates meanwhile
		return s.query(`ALERTS{alertstate="firing",alertname="`+alert+`"}`) > 0
	})
}

// crowd makes a lasting swarm of a name without entries.
func (s *stand) crowd(name string, agents int) swarms.Swarm {
	s.t.Helper()
	return s.swarm(s.conn, name, agents, "")
}

// swarm makes a lasting swarm over a connection. more are further lines of its specification.
func (s *stand) swarm(conn *natsq.Conn, name string, agents int, more string) swarms.Swarm {
	s.t.Helper()
	spec, err := swarm.Parse("crowd.yaml", []byte(fmt.Sprintf(`name: %s
addressed: agent
cell: {kind: gru, params: {hidden: 8}}
agents: %d
agents_per_group: 100
features: [a]
vote: {candidates: [x, y], rule: majority}
seed: 1
page_size: 64KiB
checkpoint: {entries: 2, interval: 1s}
%s`, name, agents, more)))
	if err != nil {
		s.t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	record := swarms.Swarm{
		Version: jobs.Version, ID: name, Name: name, Spec: data, Groups: spec.Groups(), Nonce: swarms.NewNonce(),
		Created: time.Now().UTC(),
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := conn.Swarms.Log(record.Key(), 0, d).Create(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := conn.Swarms.CreateSwarm(s.t.Context(), record); err != nil {
		s.t.Fatal(err)
	}
	return record
}

// load keeps a swarm ticking, and runs stream jobs one after the other, until stop is called.
func (s *stand) load(record swarms.Swarm, ticks *uint64) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := s.tick(ctx, record, *ticks, 1); err == nil {
				*ticks++
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			err := runjob.Run(ctx, runjob.Options{
				Command: "run", Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler), Progress: "none",
				SpecFile: "../../../examples/telemetry/swarm.yaml",
				Inputs:   []string{"../../../examples/telemetry/data/room_temperature_c.csv"}, Output: "-",
				NATS: s.nats.URL(), Patience: time.Minute,
			})
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("a stream job: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// phase logs the time of a part of a test.
func (s *stand) phase(name string, do func()) {
	s.t.Helper()
	began := time.Now()
	do()
	s.t.Logf("%s: %v", name, time.Since(began).Round(100*time.Millisecond))
}

// tick appends an entry that steps all agents.
func (s *stand) tick(ctx context.Context, record swarms.Swarm, after uint64, count int) error {
	data, err := json.Marshal(swarms.Tick{Version: jobs.Version, Count: count})
	if err != nil {
		return err
	}
	return s.conn.Swarms.Log(record.Key(), 0, swarms.In).Append(ctx, after,
		swarms.Entry{Kind: swarms.EntryTick, Ref: after + 1, Data: data})
}

// TestLive scrapes a cluster with a real Prometheus. Its processes are the programs that a user
// deploys. They have only families of the catalogue, each panel of each dashboard has data, and
// alerts fire for faults and clear after them. Agents that must not be what they say, with a
// listener more or a library of a GPU, run in the process of the test.
func TestLive(t *testing.T) {
	testkit.OnlyLong(t)
	tool(t, "prometheus")
	s := &stand{t: t, dir: t.TempDir(), port: jobstest.Port(t)}
	s.reserve("cpu", "cpu2", "gpu", "gpu2", "ui")
	s.serveNATS()
	t.Cleanup(func() { s.nats.Close() })
	var err error
	if s.conn, err = natsq.Connect(t.Context(), natsconn.Options{URL: s.nats.URL()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.conn.Close)
	gpu := func() *process {
		return s.launch("gpu", "gpuagent", "--name", "gpu", "--device", "host", "--lease-ttl", "2s",
			"--data-dir", filepath.Join(s.dir, "gpu"), "--page-memory", fmt.Sprint(pageMemory))
	}
	first := gpu()
	s.launch("cpu", "cpuagent", "--name", "cpu", "--data-dir", filepath.Join(s.dir, "cpu"))
	s.launch("ui", "exoswarm", "ui", "--listen", "127.0.0.1:0")
	s.prometheus()
	unseen := s.queries()
	s.phase("more work than a device does, and than its memory holds", func() {
		// A quarter of the agents fits, and each tick accesses all.
		heavy := s.crowd("heavy", 400_000)
		after, slowed := uint64(0), false
		backlog := uint64(120) // entries without an answer, more each time, whatever the machine
		end := time.Now().Add(2 * time.Minute)
		for ; !slowed && time.Now().Before(end); <-time.After(200 * time.Millisecond) { // the rate of the load
			answered, err := s.conn.Swarms.Log(heavy.Key(), 0, swarms.Out).Last(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for backlog += 4; after < answered.Ref+backlog; after++ {
				if err := s.tick(t.Context(), heavy, after, 1); err != nil {
					t.Fatal(err)
				}
			}
			slowed = s.query(`ALERTS{alertstate="firing",alertname="ExoswarmLogLag"}`) > 0 &&
				s.query(`ALERTS{alertstate="firing",alertname="ExoswarmPagesThrash"}`) > 0
			unseen = s.unseen(unseen)
		}
		s.fires("ExoswarmLogLag", "ExoswarmPagesThrash")
		if err := s.conn.Swarms.RemoveSwarm(t.Context(), heavy); err != nil {
			t.Fatal(err)
		}
	})
	// Agents of these names have the listeners and the libraries of this process, and raise alerts.
	second := s.start("gpu2", "gpuagent", gpuprocess.Command(),
		"--name", "gpu2", "--device", "auto", "--max-shards", "1")
	record, ticks := s.crowd("crowd", 1000), uint64(0)
	stop := s.load(record, &ticks)
	t.Cleanup(func() { stop() })
	s.submit("failed", "stream")
	s.phase("panels", func() {
		end := time.Now().Add(time.Minute)
		testkit.Until(t, "data in all panels", func() bool {
			unseen = s.unseen(unseen)
			return len(unseen) == 0 || time.Now().After(end)
		})
		for _, p := range unseen {
			t.Errorf("%s has no data: %s", p.where, p.expr)
		}
	})
	s.phase("families", s.families)
	s.phase("a GPU agent without a GPU and with other listeners", func() {
		s.fires("ExoswarmWithoutGPU", "ExoswarmGPUAgentListens")
		second.end()
	})
	followed := s.runbooks(map[string]string{
		"AGENT": "gpu", "NAME": "gpu", "SWARM": "crowd", "JOB": s.deadLetter(),
	})
	s.phase("a process that is down", func() { s.fires("ExoswarmTargetDown") })
	s.phase("objectives that are missed", func() {
		s.late("ExoswarmJobsLateBurn")
		s.fires("ExoswarmDecisionsSlowBurn")
	})
	s.phase("jobs that nobody handles, and jobs that fail", func() {
		s.submit("unserved", "nosuch")
		s.submit("broken", "stream")
		s.fires("ExoswarmKindWithoutAgent", "ExoswarmDeadLetters")
		j, err := s.conn.Queue.Find(t.Context(), "unserved")
		if err == nil {
			err = s.conn.Queue.Cancel(t.Context(), j, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	s.phase("the commands of the runbooks", followed)
	stop()
	s.phase("no GPU agent", func() {
		first.end()
		s.fires("ExoswarmShardUnserved")
		gpu()
		s.launch("gpu2", "gpuagent", "--name", "gpu2", "--device", "host", "--max-shards", "1")
	})
	s.phase("a library of a GPU in a CPU agent", s.mapLibrary)
	s.phase("no NATS server", func() {
		s.nats.Close()
		s.fires("ExoswarmDisconnected", "ExoswarmClusterUnobserved", "ExoswarmNotReady")
		s.serveNATS()
	})
	s.phase("the end of all alerts", func() {
		for _, r := range rules(t) {
			if r.Alert != "" {
				s.clears(r.Alert)
			}
		}
	})
}

// pageMemory is the memory for pages of the first GPU agent, in bytes.
const pageMemory = 8 << 20

// mapLibrary maps a file with the name of a GPU library, for a CPU agent.
func (s *stand) mapLibrary() {
	s.t.Helper()
	name := filepath.Join(s.dir, "libcuda.so.1")
	if err := os.WriteFile(name, make([]byte, 4096), 0o600); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	s.start("cpu2", "cpuagent", cpuprocess.Shared(), "--name", "cpu2", "--data-dir", filepath.Join(s.dir, "cpu2"))
	data, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		s.t.Fatal(err)
	}
	s.fires("ExoswarmIsolationBroken")
	if err := syscall.Munmap(data); err != nil {
		s.t.Fatal(err)
	}
	s.clears("ExoswarmIsolationBroken")
}

// panel is a query of a panel that must have data.
type panel struct{ where, expr string }

// queries returns the queries of all panels that must have data.
func (s *stand) queries() []panel {
	var all []panel
	for _, d := range dashboards(s.t) {
		for _, p := range d.Panels {
			if strings.Contains(p.Description, " Empty if ") {
				continue // the panel says itself that it may have no data
			}
			for _, q := range p.Targets {
				all = append(all, panel{d.UID + ", " + p.Title, concrete(q.Expr, "6s")})
			}
		}
	}
	return all
}

// unseen returns the queries that have no data now.
func (s *stand) unseen(all []panel) []panel {
	s.t.Helper()
	left := all[:0]
	for _, p := range all {
		if s.query(p.expr) == 0 {
			left = append(left, p)
		}
	}
	return left
}

// maxSeries bounds the series of a process.
const maxSeries = 1500

// families compares what the processes serve with the catalogue.
func (s *stand) families() {
	s.t.Helper()
	known, err := ByName()
	if err != nil {
		s.t.Fatal(err)
	}
	promtool := tool(s.t, "promtool")
	for name, addr := range s.targets {
		if name == "cpu2" {
			continue // it starts later
		}
		text, err := get(s.t, "http://"+addr+"/metrics", "text/plain")
		if err != nil {
			s.t.Fatal(err)
		}
		cmd := exec.CommandContext(s.t.Context(), promtool, "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Errorf("promtool check metrics of %s: %v\n%s", name, err, out)
		}
		p := expfmt.NewTextParser(model.LegacyValidation)
		found, err := p.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			s.t.Fatal(err)
		}
		series := 0
		for _, l := range strings.Split(text, "\n") {
			if l != "" && l[0] != '#' {
				series++
			}
		}
		s.t.Logf("%s: %d series", name, series)
		if series > maxSeries {
			s.t.Errorf("%s has %d series, more than %d", name, series, maxSeries)
		}
		for n, f := range found {
			if !strings.HasPrefix(n, "exoswarm_") {
				continue
			}
			have, ok := known[n]
			if !ok || have.Type != strings.ToLower(f.GetType().String()) {
				s.t.Errorf("%s: family %s is a %v, the catalogue has %+v", name, n, f.GetType(), have)
				continue
			}
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) != len(have.Labels) {
					s.t.Errorf("%s: %s has the labels %v, the catalogue has %v", name, n, m.GetLabel(), have.Labels)
					break
				}
			}
		}
	}
}
