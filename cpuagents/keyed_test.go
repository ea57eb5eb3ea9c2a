package cpuagents_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// keyedRow is a row of an entity with two key columns.
type keyedRow struct {
	site, id  string
	at, value int
}

// keyedRows returns rows of 30 entities in random order, the rows of each entity in the order of
// time.
func keyedRows(n int) (all []keyedRow) {
	r := rand.New(rand.NewPCG(7, 7))
	at := map[int]int{}
	for range n {
		e := r.IntN(30)
		at[e]++
		v := at[e] % 7
		if at[e]%97 == 96 {
			v = 500
		}
		all = append(all, keyedRow{fmt.Sprint("s", e%3), fmt.Sprint("d-", e), 1700000000 + at[e], v})
	}
	return all
}

// writeKeyed writes rows as CSV, and returns the name of the file.
func writeKeyed(t *testing.T, c *cluster, name string, all []keyedRow) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("site,id,timestamp,value\n")
	for _, r := range all {
		fmt.Fprintf(&b, "%s,%s,%d,%d\n", r.site, r.id, r.at, r.value)
	}
	if err := os.WriteFile(filepath.Join(c.dir, name), b.Bytes(), 0o644); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
}

// keyed sets the key of a job.
func keyed(most int, columns ...string) func(*cpuagents.StreamSpec) {
	return func(s *cpuagents.StreamSpec) {
		s.Columns.Key, s.Columns.MaxEntities = columns, most
		s.BatchRows = 100
		explained(s)
	}
}

// explained makes a job explain its decisions and write its incidents.
func explained(s *cpuagents.StreamSpec) {
	s.Explain, s.Anomalies = true, strings.TrimSuffix(s.Output, ".ndjson")+".incidents"
}

// handle executes a job.
func (c *cluster) handle(t *testing.T, job jobs.Job) *cpuagents.StreamResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := c.streamer.Handle(ctx, job, func(any) {})
	if err != nil {
		t.Fatalf("job %s: %v", job.ID, err)
	}
	return out.(*cpuagents.StreamResult)
}

// TestKeyedStream: rows of many entities in two files are decided as if each entity had a file of
// its own, and an attempt that is stopped again and again ends with the same bytes.
func TestKeyedStream(t *testing.T) {
	c := newCluster(t)
	all := keyedRows(6000)
	writeKeyed(t, c, "1.csv", all[:2500])
	writeKeyed(t, c, "2.csv", all[2500:])
	byEntity := map[string][]keyedRow{}
	var order []string // of the first rows
	for _, r := range all {
		name := r.site + ", " + r.id
		if byEntity[name] == nil {
			order = append(order, name)
		}
		byEntity[name] = append(byEntity[name], r)
	}
	var single []source.Series
	for i, name := range order {
		file := fmt.Sprintf("e%02d.csv", i)
		writeKeyed(t, c, file, byEntity[name])
		single = append(single, source.Series{Name: name, URI: "file:dir/" + file})
	}
	two := []source.Series{{Name: "1", URI: "file:dir/1.csv"}, {Name: "2", URI: "file:dir/2.csv"}}
	c.handle(t, c.job(t, "single", single, explained))
	r := c.handle(t, c.job(t, "keyed", two, keyed(40, "site", "id")))
	if r.Entities != 30 || r.Observations != 6000 || r.Decisions != 6000 || r.Anomalies == 0 || r.Rejected != 0 {
		t.Errorf("the result is %+v", r)
	}
	// The number of a row is that in its file.
	decisions := func(id string) (all []string) {
		for line := range strings.Lines(c.read(t, id+".ndjson")) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if id == "keyed" {
				m["series"] = fmt.Sprint(m["site"], ", ", m["id"])
				delete(m, "site")
				delete(m, "id")
			}
			delete(m, "row")
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	got := decisions("keyed")
	for i, r := range all { // the order of the rows
		if !strings.Contains(got[i], fmt.Sprintf(`"series":"%s, %s","timestamp":"%d"`, r.site, r.id, r.at)) {
			t.Fatalf("decision %d is %s, of row %+v", i, got[i], r)
		}
	}
	want := decisions("single")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("entities are decided otherwise than as files of their own")
	}
	var summary []cpuagents.SeriesSummary
	if err := json.Unmarshal([]byte(c.read(t, "keyed.summary")), &summary); err != nil || len(summary) != 30 {
		t.Fatalf("the summary is %+v: %v", summary, err)
	}
	for i, s := range summary {
		if s.Name != order[i] || s.Observations != uint64(len(byEntity[order[i]])) || s.Decisions != s.Observations {
			t.Errorf("entity %d is %+v, want %s", i, s, order[i])
		}
	}
	job := c.job(t, "broken", two, keyed(40, "site", "id"))
	for attempts := 1; ; attempts++ {
		ctx, stop := context.WithCancelCause(t.Context())
		_, err := c.streamer.Handle(ctx, job, func(p any) {
			if p := p.(cpuagents.StreamProgress); !p.Done && p.Decisions > uint64(1500*attempts) {
				stop(jobs.ErrDrain)
			}
		})
		stop(nil)
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrDrain) || attempts > 20 {
			t.Fatalf("attempt %d: %v", attempts, err)
		}
		// Between two attempts the stored dictionary has the entities in the order of their groups.
		record, err := c.conn.Swarms.Swarm(t.Context(), "broken")
		if err != nil {
			t.Fatalf("Swarm of a job that was drained: %v", err)
		}
		var d statelog.Dictionary
		_, err = d.Update(t.Context(), c.conn.Swarms.Log(record.Key(), statelog.KeyShard, swarms.In))
		if err != nil || len(d.Keys()) != len(order) {
			t.Errorf("the dictionary has %d keys, want %d: %v", len(d.Keys()), len(order), err)
		}
		for g, key := range d.Keys() {
			if rows.EntityName(key) != order[g] {
				t.Errorf("key %d of the dictionary is %q, want %s", g, key, order[g])
			}
		}
	}
	if c.read(t, "broken.ndjson") != c.read(t, "keyed.ndjson") || c.read(t, "broken.summary") != c.read(t,
		"keyed.summary") || c.read(t, "broken.incidents") != c.read(t, "keyed.incidents") {
		t.Error("an attempt that was stopped has other bytes")
	}
}

// TestKeyedFormats: the key columns are in every format of the output, and the output of each can
// be read again as rows with a key.
func TestKeyedFormats(t *testing.T) {
	c := newCluster(t)
	all := keyedRows(500)
	writeKeyed(t, c, "1.csv", all)
	src := []source.Series{{Name: "1", URI: "file:dir/1.csv"}}
	for _, f := range []rows.Format{"ndjson", "csv", "csv.gz", "arrow", "parquet", "ndjson.zst"} {
		id := "of-" + strings.ReplaceAll(string(f), ".", "-")
		c.handle(t, c.job(t, id, src, func(s *cpuagents.StreamSpec) {
			keyed(0, "site", "id")(s)
			s.Output, s.OutputFormat = "file:dir/"+id, f
		}))
		file, err := os.Open(filepath.Join(c.dir, id))
		if err != nil {
			t.Fatal(err)
		}
		r, err := rows.Open("again", file, f, rows.ColumnSpec{
			Timestamp: "timestamp", Features: []string{"value", "score"}, Key: []string{"site", "id"},
		}, 1<<30, nil)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		for i, want := range all {
			row, rejected, err := r.Next()
			if err != nil || rejected != nil {
				t.Fatalf("%s: row %d: %+v, %v", f, i, rejected, err)
			}
			if row.Key != rows.JoinKey([]string{want.site, want.id}) || row.Values[0] != float64(want.value) {
				t.Fatalf("%s: row %d is %+v, want %+v", f, i, row, want)
			}
		}
		if _, _, err := r.Next(); err == nil {
			t.Errorf("%s has more than %d rows", f, len(all))
		}
		_ = r.Close()
	}
}

// TestKeyedRejects: rows without a key, of entities beyond the limit and behind the last row of
// their entity are rejected with a sentence, and counted.
func TestKeyedRejects(t *testing.T) {
	c := newCluster(t)
	text := "timestamp,value,id\n9,1,a\n5,1,b\n8,1,a\n6,1,b\n7,1,c\n7,1,\n7,1," + strings.Repeat("k", 2000) +
		"\n10,1,a\n8,1,c\n"
	if err := os.WriteFile(filepath.Join(c.dir, "r.csv"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	src := []source.Series{{Name: "r", URI: "file:dir/r.csv"}}
	r := c.handle(t, c.job(t, "rejects", src, keyed(2, "id")))
	if r.Entities != 2 || r.Observations != 4 || r.Decisions != 4 || r.Rejected != 5 ||
		r.Keyless != (feed.Keyless{WithoutKey: 2, BeyondEntities: 2}) {
		t.Errorf("the result is %+v", r)
	}
	for i, want := range []string{
		`"row":3,"reason":"its timestamp \"8\" goes back behind the row before it of \"a\"",` +
			`"cure":"sort the rows of an entity by time"}`,
		`"row":5,"reason":"there are 2 entities already, and \"c\" is another one: raise max_entities",` +
			`"cause":"entities"}`,
		`"row":6,"line":7,"reason":"key column \"id\" is empty","cause":"key"}`,
		`"row":7,"line":8,"reason":"key column \"id\": its value of 2000 bytes`,
		`"row":9,"reason":"there are 2 entities already`,
	} {
		lines := strings.Split(c.read(t, "rejects.rejects"), "\n")
		if !strings.Contains(lines[i], want) {
			t.Errorf("reject %d is %s, want %s", i, lines[i], want)
		}
	}
	for what, change := range map[string]func(*cpuagents.StreamSpec){
		"a key that is a feature": keyed(2, "value"), "an empty key": keyed(2, ""), "no key": keyed(2),
		"too many entities": keyed(1<<30, "id"), "nine columns": keyed(2, strings.Split("123456789", "")...),
	} {
		var e *jobs.Error
		if _, err := c.streamer.Handle(t.Context(), c.job(t, "wrong", src, change),
			func(any) {}); !errors.As(err, &e) || e.Code != jobs.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	strict := func(s *cpuagents.StreamSpec) { keyed(2, "id")(s); s.Strict = true }
	if _, err := c.streamer.Handle(t.Context(), c.job(t, "strict", src, strict), func(any) {}); err == nil ||
		!strings.Contains(err.Error(), "goes back behind the row before it") {
		t.Errorf("strict: %v", err)
	}
}

// TestKeyedPolls: of documents that overlap, each row of each entity is read once, also where one
// entity is behind another.
func TestKeyedPolls(t *testing.T) {
	c := newCluster(t)
	polls := 0
	src := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		polls++
		for i := range 10 * polls { // all rows so far, the rows of b 15 seconds later
			fmt.Fprintf(w, `{"timestamp":%d,"value":1,"id":"a"}`+"\n", i)
			if i >= 15 {
				fmt.Fprintf(w, `{"timestamp":%d,"value":1,"id":"b"}`+"\n", i-15)
			}
		}
	}))
	defer src.Close()
	r := c.handle(t, c.job(t, "polls", []source.Series{{
		Name: "h", URI: src.URL + "/x.ndjson", Format: "ndjson",
		HTTP: &source.HTTPSpec{Every: 0.1, Polls: 4, Rate: 1000},
	}}, keyed(5, "id")))
	if r.Entities != 2 || r.Decisions != 40+25 || r.Rejected != 0 {
		t.Errorf("the result is %+v", r)
	}
}

// TestKeyedTable: a table of a database has the key columns.
func TestKeyedTable(t *testing.T) {
	c := newCluster(t)
	all := keyedRows(300)
	writeKeyed(t, c, "1.csv", all)
	c.handle(t, c.job(t, "table", []source.Series{{Name: "1", URI: "file:dir/1.csv"}}, func(s *cpuagents.StreamSpec) {
		keyed(0, "site", "id")(s)
		s.Sinks = []sink.Spec{{URI: "sqlite:dir/d.db?table=decisions"}, {URI: "file:dir/parts", Format: "csv"}}
	}))
	db, err := sql.Open("sqlite", filepath.Join(c.dir, "d.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got, err := db.QueryContext(t.Context(), `SELECT site, id, row, value FROM decisions ORDER BY row`)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	n := 0
	for ; got.Next(); n++ {
		var site, id string
		var row, value int
		if err := got.Scan(&site, &id, &row, &value); err != nil {
			t.Fatal(err)
		}
		if want := all[n]; site != want.site || id != want.id || row != n+1 || value != want.value {
			t.Fatalf("row %d is %s %s %d %d, want %+v", n, site, id, row, value, want)
		}
	}
	if err := got.Err(); err != nil || n != len(all) {
		t.Errorf("the table has %d rows: %v", n, err)
	}
	part, err := filepath.Glob(filepath.Join(c.dir, "parts", "*.csv"))
	if err != nil || len(part) == 0 {
		t.Fatalf("parts: %v, %v", part, err)
	}
	data, err := os.ReadFile(part[0])
	if err != nil || !strings.HasPrefix(string(data), "site,id,row,timestamp,value,score,") {
		t.Errorf("a part begins with %.60s: %v", data, err)
	}
}
