package programs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// cluster starts a cluster without the sync of each message.
func cluster(t *testing.T) *natsq.Conn {
	t.Helper()
	c, err := runjob.StartCluster(t.Context(), runjob.ClusterOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c.Conn()
}

type client struct {
	base string
	http *http.Client
}

func serving(t *testing.T, o Options) (*Server, *client) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	mux := http.NewServeMux()
	httpapi.Register(mux, "/", s.Routes(), func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), httpapi.StatusOf(err, nil))
	})
	h := httptest.NewServer(mux)
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return s, &client{h.URL, h.Client()}
}

// do sends a request and returns status and body of its answer.
func (c *client) do(t *testing.T, method, path, media string, body []byte, accept string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.base+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Accept", accept)
	res, err := c.http.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, data
}

// post sends JSON, and decodes the answer into out, unless that is nil. It returns the status.
func (c *client) post(t *testing.T, path string, in, out any) int {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	status, data := c.do(t, "POST", path, httpapi.JSON, body, httpapi.JSON)
	if status == http.StatusOK && out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatalf("%s: %v: %s", path, err, data)
		}
	} else if status >= http.StatusBadRequest {
		t.Logf("%s: %d %s", path, status, data)
	}
	return status
}

const spec = "name: devices\nkey: device\nagents_per_group: 16\nmax_entities: 3\n"

// rowsOf returns rows of two devices as CSV and as arrays.
func rowsOf(t *testing.T, from, n int) (text, packed []byte) {
	t.Helper()
	var b, z bytes.Buffer
	b.WriteString("timestamp,device,value\n")
	var times []int64
	var x []float64
	var codes []uint32
	for i := from; i < from+n; i++ {
		at := time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		v := float64(i*i%17) / 3
		fmt.Fprintf(&b, "%s,d%d,%v\n", at.Format(time.RFC3339), i%2, v)
		times, x, codes = append(times, at.UnixNano()), append(x, v), append(codes, uint32(i%2))
	}
	w := numpy.NewArchive(&z)
	w.Array("time", times, 0)
	w.Array("x0", x, 0)
	w.Array("key", codes, 0)
	w.JSON("keys", [][]string{{"d0"}, {"d1"}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), z.Bytes()
}

// TestRows: rows have the same decisions as text and as arrays, in several batches, in their order,
// and also from a server that has started meanwhile.
func TestRows(t *testing.T) {
	conn := cluster(t)
	_, c := serving(t, Options{Conn: conn})
	for _, name := range []string{"text", "arrays"} {
		if status := c.post(t, "/swarms", NewSwarm{Spec: spec, Name: name}, nil); status != http.StatusOK {
			t.Fatalf("create: %d", status)
		}
	}
	const n = 9000 // more than two batches
	text, packed := rowsOf(t, 0, n)
	status, lines := c.do(t, "POST", "/swarms/text/rows", MediaCSV, text, MediaNDJSON)
	if got := bytes.Count(lines, []byte("\n")); status != http.StatusOK || got != n {
		t.Fatalf("text: %d, %d lines of %d: %.300s", status, got, n, lines)
	}
	status, data := c.do(t, "POST", "/swarms/arrays/rows", MediaArrays, packed, MediaArrays)
	if status != http.StatusOK {
		t.Fatalf("arrays: %d %s", status, data)
	}
	a, err := numpy.ReadArchive(data, 1<<30)
	if err != nil {
		t.Fatalf("the answer: %v", err)
	}
	scores, _, err := numpy.Values[float32](a, "score")
	if err != nil {
		t.Fatal(err)
	}
	rounds, _, err := numpy.Values[uint64](a, "round")
	if err != nil {
		t.Fatal(err)
	}
	surprised := 0
	for i, line := range bytes.Split(bytes.TrimSpace(lines), []byte("\n")) {
		var d struct {
			Device string
			Score  float32
			Round  uint64
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		if d.Device != fmt.Sprint("d", i%2) || d.Score != scores[i] || d.Round != rounds[i] ||
			d.Round != uint64(i/2+1) {
			t.Fatalf("row %d: the text has %+v, the arrays score %v and round %d", i+1, d, scores[i], rounds[i])
		}
		if d.Score > 0 {
			surprised++
		}
	}
	if surprised == 0 {
		t.Error("no row has a score")
	}
	// Another server finds the entities and their states.
	_, c = serving(t, Options{Conn: conn})
	text, packed = rowsOf(t, n, 2)
	_, lines = c.do(t, "POST", "/swarms/text/rows", MediaCSV, text, MediaNDJSON)
	if want := fmt.Sprintf(`"round":%d`, n/2+1); strings.Count(string(lines), want) != 2 {
		t.Errorf("after a restart: %s, want two rows with %s", lines, want)
	}
	status, data = c.do(t, "POST", "/swarms/arrays/rows", MediaArrays, packed, MediaArrays)
	if status != http.StatusOK {
		t.Errorf("arrays after a restart: %d %s", status, data)
	}
}

// TestRefusals: what a server does not do has a status and a text with the cure.
func TestRefusals(t *testing.T) {
	_, c := serving(t, Options{Conn: cluster(t)})
	if status := c.post(t, "/swarms", NewSwarm{Spec: spec}, nil); status != http.StatusOK {
		t.Fatalf("create: %d", status)
	}
	text, packed := rowsOf(t, 0, 4)
	short := bytes.Buffer{}
	w := numpy.NewArchive(&short)
	w.Array("time", []int64{1}, 0)
	w.Array("x0", []float64{1}, 0)
	w.Array("key", []uint32{7}, 0)
	w.JSON("keys", [][]string{{"d0"}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		method, path, media string
		body                []byte
		status              int
		want                string
	}{
		{"POST", "/swarms/nobody/rows", MediaCSV, text, 404, "nobody"},
		{"POST", "/swarms/devices/rows", httpapi.JSON, text, 415, "text/csv"},
		{"POST", "/swarms/devices/rows", MediaArrays, text, 400, "archive"},
		{"POST", "/swarms/devices/rows", MediaArrays, short.Bytes(), 400, "index 7"},
		{"POST", "/swarms/devices/rows", MediaCSV, []byte("timestamp,device,temp\n"), 400, "value"},
		{"POST", "/swarms", httpapi.JSON, []byte(`{"spec":"name: devices\nagents_per_group: 8"}`), 409, "devices"},
		{
			"POST", "/swarms", httpapi.JSON, []byte(`{"spec":"name: devices\nagents_per_group: 8","open":true}`), 409,
			"agents_per_group",
		},
		{"POST", "/swarms", httpapi.JSON, []byte(`{"spec":"name: x\nkeys: y"}`), 400, "keys"},
		{"POST", "/swarms", httpapi.JSON, []byte(`{"spec":"name: x","more":1}`), 400, "more"},
		{"POST", "/swarms", httpapi.JSON, nil, 400, "empty"},
		{"POST", "/swarms", httpapi.JSON, []byte(`{"spec":"` + strings.Repeat("x", maxJSON) + `"}`), 413, "large"},
		{"POST", "/jobs", httpapi.JSON, []byte(`{"kind":"detector"}`), 400, "agents of the cluster"},
		{"POST", "/workers", httpapi.JSON, []byte(`{"kinds":["kernel"]}`), 400, "agents of the cluster"},
		{"POST", "/workers/none/take", httpapi.JSON, []byte(`{"wait_s":0}`), 404, "begin again"},
	} {
		status, data := c.do(t, r.method, r.path, r.media, r.body, MediaNDJSON)
		if status != r.status || !strings.Contains(string(data), r.want) {
			t.Errorf("%s %s %.60s: %d %s, want %d with %q", r.method, r.path, r.body, status, data, r.status, r.want)
		}
	}
	// None of them has harmed the swarm.
	if status, data := c.do(t, "POST", "/swarms/devices/rows", MediaArrays, packed, MediaNDJSON); status != 200 {
		t.Errorf("rows after the refusals: %d %s", status, data)
	}
	if status, _ := c.do(t, "DELETE", "/swarms/devices", "", nil, ""); status != http.StatusNoContent {
		t.Errorf("delete: %d", status)
	}
	if status, _ := c.do(t, "POST", "/swarms/devices/rows", MediaCSV, text, ""); status != http.StatusNotFound {
		t.Errorf("rows of a swarm that is gone: %d", status)
	}
}

// TestSlowBodies: slow bodies, far more than there are places, delay no other request, and are cut
// off. A body that arrives in pieces is read.
func TestSlowBodies(t *testing.T) {
	s, c := serving(t, Options{Conn: cluster(t)})
	s.bodies.Wait, s.bodies.Pause = time.Second, time.Second
	var stalled sync.WaitGroup
	for i := range 3 * maxRequests {
		path, media := "/swarms/devices/rows", MediaCSV
		if i%2 == 0 {
			path, media = "/swarms", httpapi.JSON
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		head := "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n{"
		if _, err := fmt.Fprintf(conn, head, path, media); err != nil {
			t.Fatal(err)
		}
		stalled.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			answer, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(answer, " 408 ") {
				t.Errorf("a body that stalls: %q, error %v, want status 408", answer, err)
			}
		})
	}
	for i := range maxRequests {
		var job SubmittedJob
		in := NewJob{Kind: "words", Spec: json.RawMessage(`"a"`)}
		if status := c.post(t, "/jobs", in, &job); status != http.StatusOK {
			t.Fatalf("request %d beside slow bodies: status %d", i, status)
		}
	}
	stalled.Wait()
	from, to := io.Pipe()
	go func() {
		for _, piece := range []string{`{"kind":`, `"words",`, `"spec":"b"}`} {
			_, _ = io.WriteString(to, piece)
		}
		_ = to.Close()
	}()
	res, err := c.http.Post(c.base+"/jobs", httpapi.JSON, from)
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Errorf("a body in pieces: status %d", res.StatusCode)
	}
	if err := s.bodies.Reserve(maxBodies); err != nil {
		t.Errorf("memory of bodies is not given back: %v", err)
	}
}

// TestWorkerGone: the job of a program that is silent goes to another one.
func TestWorkerGone(t *testing.T) {
	s, c := serving(t, Options{Conn: cluster(t), WorkerTTL: 300 * time.Millisecond})
	var job SubmittedJob
	in := NewJob{Kind: "words", Spec: json.RawMessage(`"a b"`)}
	if status := c.post(t, "/jobs", in, &job); status != http.StatusOK {
		t.Fatalf("submit: %d", status)
	}
	take := func() (Worker, TakenJob) {
		t.Helper()
		var w Worker
		c.post(t, "/workers", NewWorker{Kinds: []string{"words"}}, &w)
		var got TakenJob
		for end := time.Now().Add(2 * time.Minute); got.ID == "" && time.Now().Before(end); {
			c.post(t, "/workers/"+w.ID+"/take", Wait{Seconds: 0.2}, &got)
		}
		if got.ID != job.ID || string(got.Spec) != `"a b"` {
			t.Fatalf("took %+v, want job %s", got, job.ID)
		}
		return w, got
	}
	first, _ := take()
	testkit.Until(t, "the end of the silent worker", func() bool {
		s.workers.mu.Lock()
		defer s.workers.mu.Unlock()
		return s.workers.all[first.ID] == nil
	})
	second, _ := take()
	var on JobGoesOn
	if c.post(t, "/workers/"+second.ID+"/jobs/"+job.ID, JobProgress{Progress: json.RawMessage(`1`)}, &on); !on.GoOn {
		t.Errorf("the job does not go on: %s", on.Reason)
	}
	c.post(t, "/workers/"+second.ID+"/jobs/"+job.ID+"/end", JobEnd{Output: json.RawMessage(`2`)}, nil)
	var result struct {
		Status string
		Output int
	}
	c.post(t, "/jobs/"+job.ID+"/result", Wait{Seconds: 5}, &result)
	if result.Status != "done" || result.Output != 2 {
		t.Errorf("the result is %+v", result)
	}
	if status := c.post(t, "/workers/"+first.ID+"/jobs/"+job.ID+"/end", JobEnd{}, nil); status != http.StatusNotFound {
		t.Errorf("the end from the worker that is gone: %d", status)
	}
}

// TestExplained: decisions have explanations. Another server continues them, with and without
// stored summaries. After a reset they start anew.
func TestExplained(t *testing.T) {
	explain.SummaryEvery = time.Nanosecond
	defer func() { explain.SummaryEvery = 5 * time.Second }()
	conn := cluster(t)
	_, c := serving(t, Options{Conn: conn})
	for _, name := range []string{"whole", "parts"} {
		made := NewSwarm{Spec: spec + "explain: true\n", Name: name}
		if status := c.post(t, "/swarms", made, nil); status != http.StatusOK {
			t.Fatalf("create: %d", status)
		}
	}
	rows := func(c *client, name string, from, n int) []byte {
		t.Helper()
		text, _ := rowsOf(t, from, n)
		text = bytes.Replace(text, []byte("00:05:20Z,d0,"), []byte("00:05:20Z,d0,99"), 1)
		status, data := c.do(t, "POST", "/swarms/"+name+"/rows", MediaCSV, text, MediaArrays)
		if status != http.StatusOK {
			t.Fatalf("rows of %s: %d %s", name, status, data)
		}
		return data
	}
	rows(c, "whole", 0, 300)
	whole, err := numpy.ReadArchive(rows(c, "whole", 300, 300), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, c := serving(t, Options{Conn: conn}) // a server that has started meanwhile
		if i == 1 {
			explain.SummaryEvery = time.Hour // nothing is stored: the log has it
		}
		rows(c, "parts", 100*i, 100)
	}
	_, last := serving(t, Options{Conn: conn})
	parts, err := numpy.ReadArchive(rows(last, "parts", 300, 300), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"expected", "low", "high"} {
		want, _, err := numpy.Values[float64](whole, name)
		got, _, err2 := numpy.Values[float64](parts, name)
		if err != nil || err2 != nil || len(got) != 300 || !slices.Equal(got, want) || math.IsNaN(got[0]) {
			t.Errorf("%s after restarts: %d elements and %d, %v and %v: %v, %v", name, len(got), len(want), got, want,
				err, err2)
		}
	}
	kinds, _, err := numpy.Values[uint8](whole, "kind")
	fault, _, err2 := numpy.Values[uint8](whole, "fault")
	side, _, err3 := numpy.Values[uint8](whole, "side")
	var about FedRows
	if err := errors.Join(err, err2, err3, whole.JSON("about", &about)); err != nil {
		t.Fatal(err)
	}
	if about.Kinds[kinds[20]] != "point" || fault[20] != 0 || side[20] != 1 {
		t.Errorf("the spike is of kind %q, feature %d, side %d, want point, 0, 1", about.Kinds[kinds[20]], fault[20],
			side[20])
	}
	if fault[10] != 255 || kinds[10] != 0 {
		t.Errorf("a usual row has feature %d at fault and kind %d", fault[10], kinds[10])
	}
	if status, data := c.do(t, "POST", "/swarms/whole/reset", "", nil, ""); status != http.StatusNoContent {
		t.Fatalf("reset: %d %s", status, data)
	}
	again, err := numpy.ReadArchive(rows(c, "whole", 600, 10), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if expected, _, err := numpy.Values[float64](again, "expected"); err != nil || !math.IsNaN(expected[0]) {
		t.Errorf("after a reset the first row is expected at %v, want nothing known: %v", expected, err)
	}
}
