package sink

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// daemon starts a program of a monitoring system that listens on a port, and returns its URL. The
// test is skipped where it is not installed.
func daemon(t *testing.T, name, config string, args func(port int, config, dir string) []string,
) (base string, end func()) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install %s", name, name)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	port := 10_000 + rand.IntN(20_000)
	var log bytes.Buffer
	cmd := exec.Command(path, args(port, file, dir)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(log.String())
			}
		})
	}
	t.Cleanup(end)
	base = fmt.Sprint("http://127.0.0.1:", port)
	testkit.Until(t, name+" to be ready", func() bool {
		resp, err := http.Get(base + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return base, end
}

// keyed are the names of entities.
type keyed []string

func (k keyed) Key(group int) (string, bool) { return k[group], group < len(k) }

// alertLayout has the entities d0 to d4.
func alertLayout() rows.Layout {
	return rows.Layout{
		Candidates: []string{"normal", "suspicious", "anomalous"}, Features: []string{"value"},
		Keys: []string{"device id"}, Entities: keyed{"d0", "d1", "d2", "d3", "d4"},
	}
}

// decided returns a batch: a group, its decision and the seconds since 1970 of each row.
func decided(at int64, rows ...[2]uint32) *batch.Decisions {
	d := &batch.Decisions{Candidates: 3}
	for i, r := range rows {
		d.Group, d.Decision = append(d.Group, r[0]), append(d.Decision, r[1])
		d.Row, d.Read, d.Round = append(d.Row, 1), append(d.Read, 0), append(d.Round, 1)
		d.Timestamp = append(d.Timestamp, fmt.Sprint(at+int64(i)))
		d.Value, d.Score = append(d.Value, 512), append(d.Score, 0.25*float32(1+r[1]))
		d.Counts, d.Leader = append(d.Counts, 1, 2, 3), append(d.Leader, 0)
	}
	return d
}

// dropped counts what sinks have dropped.
type dropped struct {
	mu sync.Mutex
	n  map[string]int
}

func (d *dropped) count(kind, reason string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == nil {
		d.n = map[string]int{}
	}
	d.n[kind+" "+reason] += n
}

func (d *dropped) of(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n[key]
}

// told is a notifying sink under test.
func told(t *testing.T, s Resources, log swarms.Log, spec Spec) Sink {
	t.Helper()
	spec.Backoff = 0.01
	s.Name = "plant"
	k, err := s.New("job", 0, spec, alertLayout())
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if err := k.Open(fixture.Within(t), log); err != nil {
		t.Fatalf("Open: %v", err)
	}
	return k
}

func send(t *testing.T, k Sink, number uint64, d *batch.Decisions) {
	t.Helper()
	if err := k.Send(fixture.Within(t), number, d); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

// TestAlertmanager: an incident is an alert of a real Alertmanager until it ends. An incident that
// was open when its agent ended is resolved by the next one.
func TestAlertmanager(t *testing.T) {
	base, _ := daemon(t, "prometheus-alertmanager", "route: {receiver: none}\nreceivers: [{name: none}]\n",
		func(port int, config, dir string) []string {
			return []string{
				"--config.file=" + config, "--storage.path=" + dir, fmt.Sprint("--web.listen-address=127.0.0.1:", port),
				"--cluster.listen-address=",
			}
		})
	s, q, _, _ := resources(t)
	log := q.Swarms.Log("job", 9, swarms.Out)
	active := func() (names []string) {
		resp, err := http.Get(base + "/api/v2/alerts?active=true")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var all []struct{ Labels, Annotations map[string]string }
		if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Labels["alertname"] != "ExoswarmAnomaly" || a.Labels["detector"] != "plant" ||
				a.Labels["feature"] != "value" ||
				a.Labels["team"] != "ops" || !strings.Contains(a.Annotations["summary"], "value 512 at") {
				t.Errorf("the alert is %+v", a)
			}
			names = append(names, a.Labels["device_id"])
		}
		slices.Sort(names)
		return names
	}
	wait := func(want ...string) {
		t.Helper()
		testkit.Until(t, fmt.Sprintf("the alerts %v", want), func() bool { return slices.Equal(active(), want) })
	}
	now := time.Now().Unix() - 10
	spec := Spec{URI: "alertmanager:" + base, Labels: map[string]string{"team": "ops"}}
	k := told(t, s, log, spec)
	send(t, k, 1, decided(now, [2]uint32{0, 0}, [2]uint32{1, 2}, [2]uint32{2, 2}, [2]uint32{1, 1}))
	wait("d1", "d2")
	send(t, k, 2, decided(now+4, [2]uint32{1, 0}))
	wait("d2")
	testkit.Until(t, "the position", func() bool {
		last, err := log.Last(fixture.Within(t))
		return err == nil && last.Ref == 2
	})
	k.Close()
	k = told(t, s, log, spec)
	send(t, k, 1, decided(now, [2]uint32{3, 2})) // it has this one
	send(t, k, 3, decided(now+6, [2]uint32{2, 0}))
	wait()
	k.Close()
}

// prometheusServer starts a Prometheus that takes remote writes, and returns its URL.
func prometheusServer(t *testing.T) string {
	t.Helper()
	base, _ := daemon(t, "prometheus", "global: {scrape_interval: 1h}\n", func(port int, config, dir string) []string {
		return []string{
			"--config.file=" + config, "--storage.tsdb.path=" + dir,
			fmt.Sprint("--web.listen-address=127.0.0.1:", port), "--web.enable-remote-write-receiver",
		}
	})
	return base
}

// result is a series in the answer of a Prometheus.
type result struct {
	Metric map[string]string
	Value  [2]any   // of an instant
	Values [][2]any // of a range
}

// query returns the series of a query.
func query(t *testing.T, base, text string) []result {
	t.Helper()
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Data struct{ Result []result } }
	body, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(body, &got) != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return got.Data.Result
}

// TestPrometheus: scores are samples of series of a real Prometheus, up to the bound of series.
func TestPrometheus(t *testing.T) {
	base := prometheusServer(t)
	s, q, _, _ := resources(t)
	var lost dropped
	s.Dropped = lost.count
	k := told(t, s, q.Swarms.Log("job", 9, swarms.Out), Spec{
		URI: "prometheus:" + base + "/api/v1/write", MaxSeries: 3, Labels: map[string]string{"site": "a"},
	})
	defer k.Close()
	now := time.Now().Unix() - 10
	send(t, k, 1, decided(now, [2]uint32{0, 0}, [2]uint32{1, 2}, [2]uint32{3, 2}))
	send(t, k, 2, decided(now+3, [2]uint32{0, 1}, [2]uint32{2, 2}))
	send(t, k, 3, decided(now+3, [2]uint32{0, 1})) // not after the previous sample
	if err := k.End(fixture.Within(t)); err != nil {
		t.Fatalf("End: %v", err)
	}
	series := map[string]string{}
	for _, r := range query(t, base, `exoswarm_score{detector="plant",site="a"}[1m]`) {
		for _, v := range r.Values {
			series[r.Metric["device_id"]] += fmt.Sprintf("%.0f=%v ", v[0].(float64)-float64(now), v[1])
		}
	}
	if want := "map[d0:0=0.25 3=0.5  d1:1=0.75  d2:4=0.75 ]"; fmt.Sprint(series) != want {
		t.Errorf("the series are %v, want %s", series, want)
	}
	if lost.of("prometheus bound") != 1 || lost.of("prometheus order") != 1 {
		t.Errorf("dropped: %v", lost.n)
	}
}

// hook is a receiver of Slack that a test controls.
type hook struct {
	mu     sync.Mutex
	status int
	bodies []string
	paths  map[string]bool
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paths == nil {
		h.paths = map[string]bool{}
	}
	h.paths[r.URL.Path] = true
	if h.status != 0 {
		w.WriteHeader(h.status)
		return
	}
	h.bodies = append(h.bodies, string(body))
}

func (h *hook) set(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hook) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.bodies)
}

// TestSlack: anomalies that come while a message waits are one message. A destination that is away
// does not stop the sink, and the path of the URL is in no log and no error.
func TestSlack(t *testing.T) {
	var h hook
	server := httptest.NewServer(&h)
	defer server.Close()
	t.Setenv("EXOSWARM_SECRET_SLACK", "services/T0/secret-path")
	s, q, _, _ := resources(t)
	var lost dropped
	var log bytes.Buffer
	s.Dropped, s.Logger = lost.count, slog.New(slog.NewTextHandler(&log, nil))
	positions := q.Swarms.Log("job", 9, swarms.Out)
	k := told(t, s, positions, Spec{URI: "slack:" + server.URL + "/{env:SLACK}", Rate: 1000})
	h.set(http.StatusServiceUnavailable)
	send(t, k, 1, decided(0, [2]uint32{0, 0}))
	for i := range uint64(90) {
		send(t, k, 2+i, decided(int64(i), [2]uint32{0, 2}))
	}
	if held := k.(Holder).Held(); held != 2 {
		t.Errorf("the sink holds the positions from %d, want 2", held)
	}
	testkit.Until(t, "a try", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.paths) > 0 })
	h.set(0)
	if err := k.End(fixture.Within(t)); err != nil || k.(Holder).Held() != 0 {
		t.Fatalf("End: %v, it holds %d", err, k.(Holder).Held())
	}
	bodies := h.got()
	all := strings.Join(bodies, "\n")
	if n := len(bodies); n < 1 || n > 3 || strings.Count(all, "device id d0") < 20 ||
		!strings.Contains(all, " more\"") ||
		!strings.Contains(all, `"type":"header"`) || !strings.Contains(all, `"type":"mrkdwn"`) {
		t.Errorf("%d messages:\n%s", n, all)
	}
	// A refusal drops the message, and the next one comes.
	h.set(http.StatusForbidden)
	send(t, k, 140, decided(150, [2]uint32{1, 2}))
	testkit.Until(t, "the refusal", func() bool { return lost.of("slack refused") == 1 })
	h.set(0)
	send(t, k, 141, decided(151, [2]uint32{2, 2}))
	if err := k.End(fixture.Within(t)); err != nil {
		t.Fatal(err)
	}
	k.Close()
	if got := h.got(); !strings.Contains(got[len(got)-1], "device id d2") ||
		strings.Contains(strings.Join(got, ""), "id d1") {
		t.Errorf("the last messages are %v", got[len(bodies):])
	}
	if !h.paths["/services/T0/secret-path"] || strings.Contains(log.String(), "secret-path") || log.Len() == 0 {
		t.Errorf("paths %v, log:\n%s", h.paths, log.String())
	}
	// The next attempt sends nothing again.
	before := len(h.got())
	k = told(t, s, positions, Spec{URI: "slack:" + server.URL + "/{env:SLACK}", Rate: 1000})
	send(t, k, 141, decided(151, [2]uint32{2, 2}))
	if err := k.End(fixture.Within(t)); err != nil || len(h.got()) != before {
		t.Errorf("%d messages again: %v", len(h.got())-before, err)
	}
	k.Close()
}

// TestNotifierFull: the oldest messages of a destination that is away are dropped, never the
// newest, and the memory is bounded.
func TestNotifierFull(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	s, q, _, _ := resources(t)
	var lost dropped
	s.Dropped = lost.count
	k := told(t, s, q.Swarms.Log("job", 9, swarms.Out), Spec{URI: "alertmanager:http://" + address})
	for i := range uint64(maxQueued + 50) {
		send(t, k, 1+i, decided(int64(i), [2]uint32{1, 2 - 2*uint32(i%2)}))
	}
	if lost.of("alertmanager full") != 50 || k.(Holder).Held() > 51 {
		t.Errorf("dropped %v, held from %d", lost.n, k.(Holder).Held())
	}
	k.Close() // it waits for no try: the destination stays away
	for i, spec := range []Spec{
		{URI: "alertmanager:ftp://h/x"},
		{URI: "alertmanager:http://10.0.0.1:9093"},
		{URI: "alertmanager:http://127.0.0.1", Tries: 3},
		{URI: "alertmanager:http://127.0.0.1", Format: "csv"},
		{URI: "alertmanager:http://127.0.0.1", Labels: map[string]string{"detector": "x"}},
		{URI: "slack:http://127.0.0.1/services/secret-path"},
		{URI: "slack:http://{env:SLACK}/x"},
		{URI: "slack:http://127.0.0.1/{env:NOT_SET}"},
		{URI: "prometheus:http://127.0.0.1/w", MaxSeries: -1},
		{URI: "prometheus:http://127.0.0.1/w", Labels: map[string]string{"a b": "x"}},
		{URI: "file:db/a", Headers: map[string]string{"a": "b"}},
		{URI: "file:db/a", MaxSeries: 3},
		{URI: "slack:http://127.0.0.1/{env:SLACK}", Labels: map[string]string{"a": "b"}},
	} {
		if _, err := s.New("bad", 0, spec, alertLayout()); err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%d, %s: %v, want an error without the path", i, spec.URI, err)
		}
	}
}
