package push

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
)

// stored keeps what was pushed, as a queue that is never full.
type stored struct {
	mu   sync.Mutex
	keys map[string]bool
	rows []string
}

func (s *stored) Push(_ context.Context, name, key string, frames [][]byte) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	if key != "" && s.keys[name+"/"+key] {
		return true, nil
	}
	s.keys[name+"/"+key] = true
	for line := range strings.Lines(string(bytes.Join(frames, nil))) {
		s.rows = append(s.rows, strings.TrimSpace(line))
	}
	return false, nil
}

func (s *stored) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows)
}

// message returns a message of protobuf with fields of bytes: a number and the bytes in turn.
func message(fields ...any) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		b = protowire.AppendTag(b, protowire.Number(fields[i].(int)), protowire.BytesType)
		switch v := fields[i+1].(type) {
		case string:
			b = protowire.AppendString(b, v)
		case []byte:
			b = protowire.AppendBytes(b, v)
		}
	}
	return b
}

func sample(value float64, at int64) (b []byte) {
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1, protowire.Fixed64Type), math.Float64bits(value))
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(at))
}

var remoteWriteHeader = []string{
	"Content-Type", mediaProtobuf, "Content-Encoding", "snappy", "X-Prometheus-Remote-Write-Version", "0.1.0",
}

// TestRemoteWrite: each sample is a row with the labels of its series, a repeated request is stored
// once, and what is no row is counted.
func TestRemoteWrite(t *testing.T) {
	q := &stored{}
	registry := prometheus.NewRegistry()
	url := endpoint(t, q, func(o *Options) { o.Metrics = registry })
	body := s2.EncodeSnappy(nil, message(
		1, message(1, message(1, "__name__", 2, "up"), 1, message(1, "job", 2, `a "b"`), 1, message(1, "value", 2, "x"),
			2, sample(1.5, 1700000000123), 2, sample(math.NaN(), 1700000001000), 2, sample(math.Inf(1), 1),
			2, sample(-2, 1700000002000)),
		1, message(1, message(1, "__name__", 2, "h"), 4, "histogram"),
		1, message(1, message(1, "__name__", 2, "n"), 2, sample(1e300, 5)),
		3, "metadata",
	))
	for _, again := range []bool{false, true} {
		if a := post(t, http.DefaultClient, url+"p", bytes.NewReader(body), remoteWriteHeader...); a.status != 202 ||
			a.Rows != 3 || a.Again != again {
			t.Errorf("the answer is %v", a)
		}
	}
	want := []string{
		`{"timestamp":1700000000123,"value":1.5,"__name__":"up","job":"a \"b\"","exported_value":"x",` +
			`"series":"up{job=\"a \\\"b\\\"\",value=\"x\"}"}`,
		`{"timestamp":1700000002000,"value":-2,"__name__":"up","job":"a \"b\"","exported_value":"x",` +
			`"series":"up{job=\"a \\\"b\\\"\",value=\"x\"}"}`,
		`{"timestamp":5,"value":1e+300,"__name__":"n","series":"n"}`,
	}
	if got := q.lines(); !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "exoswarm_push_dropped_samples_total" {
			for _, m := range f.GetMetric() {
				counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if counted["not_finite"] != 4 || counted["histogram"] != 2 { // of both requests
		t.Errorf("dropped samples: %v", counted)
	}
	// Prometheus sends metadata alone, too.
	if a := post(t, http.DefaultClient, url+"p", bytes.NewReader(s2.EncodeSnappy(nil, message(3, "metadata"))),
		remoteWriteHeader...); a.status != 202 || a.Rows != 0 {
		t.Errorf("metadata: %v", a)
	}
}

// TestRemoteWriteRefuses: a request that cannot be read is refused with the place and the reason,
// and nothing of it is stored.
func TestRemoteWriteRefuses(t *testing.T) {
	q := &stored{}
	url := endpoint(t, q, func(o *Options) { o.MaxBody, o.MaxRows = 1<<20, 10 })
	up := message(1, "__name__", 2, "up")
	series := func(fields ...any) []byte { return s2.EncodeSnappy(nil, message(1, message(fields...))) }
	var many, labels []any
	for range 11 {
		many = append(many, 2, sample(1, 1))
	}
	for i := range maxLabels + 1 {
		labels = append(labels, 1, message(1, fmt.Sprint("l", i), 2, "v"))
	}
	set := func(name, value string) []string {
		h := slices.Clone(remoteWriteHeader)
		return append(h, name, value)
	}
	for name, one := range map[string]struct {
		body    []byte
		headers []string
		status  int
		want    string
	}{
		"no snappy":   {[]byte("\xff\xff\xff\xff\xff\xff"), nil, 400, "not a block of snappy"},
		"damaged":     {series(1, up, 2, sample(1, 1))[:8], nil, 400, "not a block of snappy"},
		"a bomb":      {append([]byte("\x80\x80\x80\x80\x04"), 0), nil, 413, "unpacks to more"},
		"no protobuf": {s2.EncodeSnappy(nil, []byte("{}{}{}{}")), nil, 400, "it is no WriteRequest"},
		"no series":   {s2.EncodeSnappy(nil, message(1, "{}{}")), nil, 400, "series 1: it is no TimeSeries"},
		"no sample":   {series(1, up, 2, "\x0a\xff"), nil, 400, "series 1: it is no Sample"},
		"no UTF-8":    {series(1, message(1, "a", 2, "\xff"), 2, sample(1, 1)), nil, 400, "not UTF-8"},
		"no name":     {series(1, message(2, "v"), 2, sample(1, 1)), nil, 400, "has no name"},
		"twice":       {series(1, up, 1, up, 2, sample(1, 1)), nil, 400, "is there twice"},
		"labels":      {series(append(labels, 2, sample(1, 1))...), nil, 400, "more than 256 labels"},
		"rows":        {series(append(many, 1, up)...), nil, 413, "more than 10 rows"},
		"long": {
			series(1, message(1, "a", 2, strings.Repeat("x", 600<<10)), 2, sample(1, 1)), nil, 400,
			"a row of",
		},
		"version 2": {
			nil, set("Content-Type", mediaProtobuf+";proto=io.prometheus.write.v2.Request"), 415,
			"remote write 1.0",
		},
		"header 2": {nil, set("X-Prometheus-Remote-Write-Version", "2.0.0"), 415, "use 1.0"},
		"gzip":     {nil, set("Content-Encoding", "gzip"), 415, "uses snappy"},
	} {
		if one.headers == nil {
			one.headers = remoteWriteHeader
		}
		a := post(t, http.DefaultClient, url+"p", bytes.NewReader(one.body), one.headers...)
		if a.status != one.status || !strings.Contains(a.Error, one.want) {
			t.Errorf("%s: %v, want %d %s", name, a, one.status, one.want)
		}
	}
	if got := q.lines(); len(got) > 0 {
		t.Errorf("stored: %v", got)
	}
}

// FuzzRemoteWrite: no body ends the process, and rows are lines.
func FuzzRemoteWrite(f *testing.F) {
	f.Add(message(1, message(1, message(1, "__name__", 2, "up"), 2, sample(1, 1))))
	f.Add([]byte("\x0a\x02\x12\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &bodyParser{maxRows: 100, maxSize: 1 << 20}
		err := p.remoteWrite(s2.EncodeSnappy(nil, body))
		if err == nil && p.rows != bytes.Count(bytes.Join(p.frames, nil), []byte("\n")) {
			t.Errorf("%d rows in %q", p.rows, p.frames)
		}
	})
}

// TestPrometheus: a real Prometheus writes the samples that it scrapes.
func TestPrometheus(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	path, err := osexec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	q := &stored{}
	url := endpoint(t, q, nil)
	dir := t.TempDir()
	config := filepath.Join(dir, "p.yml")
	own := fmt.Sprintf("127.0.0.1:%d", jobstest.Port(t))
	text := fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs: [{job_name: self, static_configs: [{"+
		"targets: ['%s']}]}]\n"+
		"remote_write: [{url: '%sprom', queue_config: {batch_send_deadline: 200ms}}]\n", own, url)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), path, "--config.file", config, "--storage.tsdb.path",
		filepath.Join(dir, "d"), "--web.listen-address", own)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	testkit.Until(t, "five samples of up", func() bool {
		n := 0
		for _, row := range q.lines() {
			if strings.Contains(row, `"series":"up{instance=\"`+own+`\",job=\"self\"}"`) {
				n++
			}
		}
		return n >= 5
	})
}
