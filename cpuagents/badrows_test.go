package cpuagents_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// badRow is a row with what becomes of it. Up to two entities have groups.
type badRow struct {
	what, json, csv string
	reason          string // part of the sentence of its reject; empty if it is accepted
	csvReason       string // the text in CSV, where it differs
	keyless         bool   // it counts as one without a key
}

// badRows are rows with every mistake that a source can have. size is the bytes of the largest key.
func badRows(size int) []badRow {
	long := strings.Repeat("k", size)
	row := func(what, at, value, id, reason string) badRow {
		quote := func(s string) string {
			if strings.Trim(s, "0123456789") == "" {
				return s
			}
			return `"` + s + `"`
		}
		return badRow{
			what: what, reason: reason, csv: at + "," + value + "," + id,
			json: fmt.Sprintf(`{"timestamp":%s,"value":%s,"id":%s}`, quote(at), quote(value), quote(id)),
		}
	}
	keyless := func(b badRow) badRow { b.keyless = true; return b }
	inCSV := func(b badRow, reason string) badRow { b.csvReason = reason; return b }
	return []badRow{
		row("first", "1700000005", "1", "a", ""),
		row("second", "1700000005", "1", "b", ""),
		row("late", "1700000004", "1", "a", ""),
		row("duplicate", "1700000005", "1", "a", ""),
		inCSV(
			row("wrong type of a feature", "1700000006", "warm", "a", `column "value" is a string, not a number`),
			"warm",
		),
		row("wrong type of a time", "soon", "1", "a", "is not a time"),
		keyless(badRow{
			what: "null key", json: `{"timestamp":1700000006,"value":1,"id":null}`, csv: "1700000006,1,",
			reason: `key column "id"`,
		}),
		{
			what: "no key", json: `{"timestamp":1700000006,"value":1}`, csv: "1700000006,1", keyless: true,
			reason: "id", csvReason: "it has 2 fields, the header has 3",
		},
		keyless(row("long key", "1700000006", "1", long, "bytes")),
		{
			what: "schema change", json: `{"timestamp":1700000006,"reading":1,"id":"a"}`,
			csv: "timestamp,reading,unit,id", reason: "value", csvReason: "it has 4 fields, the header has 3",
		},
		{what: "not a record", json: `{"timestamp":17`, csv: `1700000006,"1,a`, reason: "a"},
		row("one entity too many", "1700000006", "1", "c", "raise max_entities"),
		row("last", "1700000006", "1", "b", ""),
	}
}

// drops makes the groups of a swarm drop late rows and duplicates.
func drops(t *testing.T, spec json.RawMessage) json.RawMessage {
	t.Helper()
	parsed, err := swarm.FromJSON(spec)
	if err != nil {
		t.Fatalf("swarm.FromJSON: %v", err)
	}
	parsed.Observations.Late, parsed.Observations.Duplicate = swarm.Drop, swarm.Drop
	data, err := json.Marshal(parsed)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return data
}

// TestBadRowsOfRuns: every mistake in the rows of a source with an end has a sentence and a count,
// and the rows around it are decided.
func TestBadRowsOfRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes minutes")
	}
	c := newCluster(t)
	all := badRows(10_000_000)
	var ndjson, csv strings.Builder
	csv.WriteString("timestamp,value,id\n")
	for _, b := range all {
		ndjson.WriteString(b.json + "\n")
		csv.WriteString(b.csv + "\n")
	}
	for name, text := range map[string]string{"bad.ndjson": ndjson.String(), "bad.csv": csv.String()} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := ndjson.String()
		if strings.HasSuffix(r.URL.Path, ".csv") {
			text = csv.String()
		}
		_, _ = w.Write([]byte(text))
	}))
	defer web.Close()
	for kind, src := range map[string]source.Series{
		"csv":         {URI: "file:dir/bad.csv"},
		"ndjson":      {URI: "file:dir/bad.ndjson"},
		"http-csv":    {URI: web.URL + "/bad.csv"},
		"http-ndjson": {URI: web.URL + "/bad.ndjson", Format: "ndjson"},
	} {
		src.Name = kind
		r := c.handle(t, c.job(t, kind, []source.Series{src}, func(s *cpuagents.StreamSpec) {
			keyed(2, "id")(s)
			s.Spec, s.Columns.AnyOrder, s.Drops = drops(t, s.Spec), true, true
		}))
		checkBad(t, kind, all, r.Observations, r.Rejected, r.Decisions, r.Dropped, r.Keyless)
		rejects := strings.Split(strings.TrimSpace(c.read(t, kind+".rejects")), "\n")
		i := 0
		for _, b := range all {
			if b.reason == "" {
				continue
			}
			var got rows.Reject
			if b.csvReason != "" && strings.HasSuffix(kind, "csv") {
				b.reason = b.csvReason
			}
			if i >= len(rejects) || json.Unmarshal([]byte(rejects[i]), &got) != nil || got.Reason == "" ||
				!strings.Contains(got.Reason, b.reason) || len(got.Reason) > 400 {
				t.Errorf("%s: the reject of %s is %+v, want %q", kind, b.what, got, b.reason)
			}
			i++
		}
		if i != len(rejects) {
			t.Errorf("%s: there are %d rejects, want %d", kind, len(rejects), i)
		}
	}
}

// checkBad checks the counts over badRows.
func checkBad(t *testing.T, kind string, all []badRow, observations, rejected, decisions uint64,
	dropped cpuagents.Dropped, keyless feed.Keyless,
) {
	t.Helper()
	want, without := uint64(0), uint64(0)
	for _, b := range all {
		if b.reason != "" {
			want++
		}
		if b.keyless {
			without++
		}
	}
	// A record that is longer than any record may be, or has a field too few, has no key that could be
	// looked at.
	if observations != 5 || decisions != 3 || rejected != want ||
		dropped != (cpuagents.Dropped{Late: 1, Duplicates: 1}) ||
		keyless.BeyondEntities != 1 || keyless.WithoutKey < 1 || keyless.WithoutKey > without {
		t.Errorf("%s: %d rows, %d rejected of %d, %d decisions, %+v, %+v", kind, observations, rejected, want,
			decisions, dropped, keyless)
	}
}

// TestBadRowsOfDetectors: every mistake in the rows of a source without an end has a sentence and a
// count, and the rows around it are decided.
func TestBadRowsOfDetectors(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes minutes")
	}
	c := newCluster(t)
	all := badRows(300_000) // a message has up to 1 MiB
	each := testkit.Long()
	kafka, produce := broker(t)
	js := c.conn.JS
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "plant", Subjects: []string{"plant.>"},
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.dir, "readings.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(),
		"CREATE TABLE readings (seq integer PRIMARY KEY, at, value, id)"); err != nil {
		t.Fatal(err)
	}
	for kind, one := range map[string]struct {
		src  source.Series
		put  func(b badRow)
		skip string // what the source cannot have
	}{
		"push": {
			src: source.Series{URI: "push:bad", Push: &source.PushSpec{BatchSeconds: 0.01}},
			put: func(b badRow) { c.pushLines(t, "bad", b.json+"\n") },
		},
		"subject": {
			src: source.Series{URI: "nats:plant/plant.x", NATS: &source.SubjectSpec{BatchSeconds: 0.01}},
			put: func(b badRow) {
				if _, err := js.Publish(t.Context(), "plant.x", []byte(b.json)); err != nil {
					t.Fatal(err)
				}
			},
		},
		"kafka": {
			src: source.Series{
				URI: "kafka://" + kafka.ListenAddrs()[0] + "/t", Kafka: &source.KafkaSpec{BatchSeconds: 0.01},
			},
			put: func(b badRow) { produce(b.json) },
		},
		"sql": {
			src: source.Series{URI: "sqlite:dir/readings.db", SQL: &source.SQLSpec{
				Query:  "SELECT seq, at AS timestamp, value, id FROM readings WHERE seq > $1 ORDER BY seq",
				Cursor: "seq", Start: 0, Every: 0.1,
			}},
			put: func(b badRow) {
				var row struct {
					At    any `json:"timestamp"`
					Value any `json:"value"`
					ID    any `json:"id"`
				}
				if err := json.Unmarshal([]byte(b.json), &row); err != nil {
					t.Fatal(err)
				}
				if _, err := db.ExecContext(t.Context(),
					"INSERT INTO readings (at, value, id) VALUES (?, ?, ?)", row.At,
					row.Value, row.ID); err != nil {
					t.Fatal(err)
				}
			},
			skip: "not a record",
		},
	} {
		one.src.Name = kind
		d := c.detect(t, detectorJob(t, "bad-"+kind, 2, []source.Series{one.src}, func(s *cpuagents.DetectorSpec) {
			s.Spec = drops(t, s.Spec)
		}))
		var put []badRow
		seen, read := uint64(0), uint64(0)
		for _, b := range all {
			if b.what == one.skip {
				continue
			}
			put = append(put, b)
			one.put(b)
			if b.reason == "" {
				read++
			} else {
				seen++
			}
			if !each && b.what != "last" {
				continue // the report of a detector comes once a second
			}
			testkit.Until(t, kind+": "+b.what, func() bool {
				p := d.progress.Load()
				return p != nil && p.Rejected >= seen && p.Rows >= read
			})
			if p := d.progress.Load(); b.reason != "" && (!strings.Contains(p.LastReject, b.reason) ||
				!strings.HasPrefix(p.LastReject, kind+": ") || len(p.LastReject) > 500) {
				t.Errorf("%s: the last reject after %s is %q, want %q", kind, b.what, p.LastReject, b.reason)
			}
		}
		if got := d.progress.Load().LastReject; !strings.Contains(got, "raise max_entities") {
			t.Errorf("%s: the last reject is %q", kind, got)
		}
		c.awaitDecisions(t, "bad-"+kind, 5)
		d.end(t, jobs.ErrFinish)
		p := d.result
		checkBad(t, kind, put, p.Rows, p.Rejected, p.Decisions, p.Dropped, p.Keyless)
	}
}
