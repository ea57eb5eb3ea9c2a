package main

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// parquetOf writes a record as a Parquet file whose pages are packed, with dictionaries of up to 30
// MB, in row groups of a number of rows.
func parquetOf(t *testing.T, group int64, rec arrow.RecordBatch) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(rec.Schema(), &out,
		parquet.NewWriterProperties(parquet.WithDictionaryDefault(true), parquet.WithDictionaryPageSizeLimit(30<<20),
			parquet.WithMaxRowGroupLength(group), parquet.WithCompression(compress.Codecs.Zstd)),
		pqarrow.DefaultWriterProps())
	if err == nil {
		err = w.Write(rec)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// textTimes is a record whose timestamps are texts.
func textTimes(rows int, text func(i int) string) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator,
		arrow.NewSchema([]arrow.Field{
			{Name: "timestamp", Type: arrow.BinaryTypes.String},
			{Name: "value", Type: arrow.PrimitiveTypes.Float64},
		}, nil))
	for i := range rows {
		b.Field(0).(*array.StringBuilder).Append(text(i))
		b.Field(1).(*array.Float64Builder).Append(1)
	}
	return b.NewRecordBatch()
}

// nestedTimes is a record whose column value is a list of lists, nested to a depth.
func nestedTimes(deep int) arrow.RecordBatch {
	typ := arrow.PrimitiveTypes.Float64
	for range deep {
		typ = arrow.ListOf(typ)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator,
		arrow.NewSchema([]arrow.Field{
			{Name: "timestamp", Type: arrow.PrimitiveTypes.Int64},
			{Name: "value", Type: typ},
		}, nil))
	b.Field(0).(*array.Int64Builder).Append(1)
	b.Field(1).AppendEmptyValue()
	return b.NewRecordBatch()
}

// hostile is an HTTP server below net/http, which would not send what it sends.
func hostile(t *testing.T, answers map[string]func(w io.Writer) error) (base string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("net.Listen tcp: %v", err)
	}
	var ended sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); ended.Wait() })
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() {
				defer c.Close()
				request := make([]byte, 4096)
				n, _ := c.Read(request)
				words := strings.Fields(string(request[:n]))
				if len(words) < 2 {
					return
				}
				for err := error(nil); err == nil; { // until the client has had enough
					err = answers[strings.Trim(words[1], "/")](c)
				}
			})
		}
	})
	return "http://" + l.Addr().String() + "/"
}

// endless sends head once and then piece for ever.
func endless(head, piece string) func(w io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, head)
		for err == nil {
			_, err = io.WriteString(w, piece)
		}
		return err
	}
}

// zeros are gzip of a number of bytes of 0.
func zeros(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for range size >> 20 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatalf("z.Write: %v", err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatalf("z.Close: %v", err)
	}
	return out.Bytes()
}

// TestSourceBounds is TestInputBounds for dictionaries and row groups of Parquet, and for what is
// not a file: rows of a database, bodies, messages, pushes.
func TestSourceBounds(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	port := fixedPorts(t, 1)[0]
	c := startBounded(t, "--egress", "127.0.0.0/8", "--push-listen", fmt.Sprint("127.0.0.1:", port))
	file := func(name string, data []byte) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.dir, name), data, 0o644); err != nil {
			t.Fatalf("os.WriteFile: %v", err)
		}
		return "file:d/" + name
	}
	db, err := sql.Open("sqlite", filepath.Join(c.dir, "x.db"))
	if err != nil {
		t.Fatalf("sql.Open sqlite: %v", err)
	}
	for _, s := range []string{
		"CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER, value)", "INSERT INTO t VALUES (1, 1700000000, 1)",
		"INSERT INTO t SELECT value, 1700000000 + value, printf('%.*c', 15000000, 'x') FROM generate_series(2, 20)",
	} {
		if _, err := db.ExecContext(t.Context(), strings.Replace(s, "generate_series(2, 20)", "(WITH RECURSIVE "+
			"n(value) AS (SELECT 2 UNION ALL SELECT value+1 FROM n WHERE value < 20) SELECT value FROM n)",
			1)); err != nil {
			t.Fatal(s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatalf("db.Close: %v", err)
	}
	nc, err := nats.Connect(c.url)
	if err != nil {
		t.Fatalf("nats.Connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BIG", Subjects: []string{"big.*"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	bomb := zeros(t, 400<<20)
	for range 30 {
		for subject, data := range map[string][]byte{
			"big.bomb":  bomb,
			"big.lines": bytes.Repeat([]byte("x"), 1000<<10),
		} {
			if _, err := js.Publish(t.Context(), subject, data); err != nil {
				t.Fatalf("js.Publish: %v", err)
			}
		}
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	web := hostile(t, map[string]func(io.Writer) error{
		"bomb": func(w io.Writer) error {
			_, _ = fmt.Fprintf(w, ok+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)
			return io.EOF
		},
		"endless": endless(ok+"\r\n", strings.Repeat("x", 1<<16)),
		"rows":    endless(ok+"\r\ntimestamp,value\n", strings.Repeat("1700000000,1\n", 1<<12)),
		"headers": endless(ok, "X-More: "+strings.Repeat("y", 1<<14)+"\r\n"),
		"header":  endless(ok+"X-Long: ", strings.Repeat("y", 1<<16)),
		"chunks":  endless(ok+"Transfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("e", 2000)+"\r\nx\r\n"),
		"size":    endless(ok+"Transfer-Encoding: chunked\r\n\r\n", "0"),
	})
	fetched := func(path string) source.Series {
		return source.Series{URI: web + path, HTTP: &source.HTTPSpec{Timeout: 20, Tries: 1}}
	}
	asked := func(query string) source.Series {
		return source.Series{
			URI: "sqlite:d/x.db",
			SQL: &source.SQLSpec{Query: query, Cursor: "id", Start: 0, PageRows: 100_000, Tries: 1, Timeout: 5},
		}
	}
	const series = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id+1 FROM n) "
	for name, in := range map[string]struct {
		source source.Series
		copies int
		want   string // of the error; empty: the job is done
	}{
		"dictionary of long texts": {source.Series{URI: file("long.parquet",
			parquetOf(t, 1<<20, textTimes(28, func(i int) string {
				return fmt.Sprint(i) + strings.Repeat(" ", 1<<20)
			})))}, 64, `no valid row`},
		"dictionary of small texts": {
			source.Series{URI: file("small.parquet",
				parquetOf(t, 1<<22, textTimes(3_000_000,
					func(i int) string { return string([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) })))},
			16,
			`more than 300 MiB of temporary files|no valid row`,
		},
		"many dictionaries": {
			source.Series{URI: file("many.parquet",
				parquetOf(t, 7, textTimes(56, func(i int) string {
					return fmt.Sprint(i) + strings.Repeat(" ", 4<<20)
				})))},
			12, `no valid row|takes .* of memory`,
		},
		"a million rows of a byte": {source.Series{URI: file("rows.parquet",
			parquetOf(t, 1<<20, textTimes(1<<20, func(int) string { return "x" })))}, 1, `no valid row`},
		"nested columns": {
			source.Series{URI: file("nested.parquet", parquetOf(t, 1<<20, nestedTimes(60)))},
			8, `no column "value"|nested`,
		},
		"rows of 15 MB": {
			asked("SELECT id, at AS timestamp, value FROM t WHERE id > $1 ORDER BY id"), 8,
			"",
		},
		"a value of 1 GB": {asked("SELECT id, at AS timestamp, zeroblob(1000000000) AS value FROM t WHERE " +
			"id > $1"), 16, `too big`},
		"a text that grows": {
			asked(series + "SELECT max(id) AS id, 1 AS timestamp, " +
				"group_concat('0123456789') AS value FROM n WHERE id > $1"), 4,
			`query sqlite:d/x.db: context deadline|too big|out of memory`,
		},
		"a sort of everything": {asked(series + "SELECT id, hex(randomblob(1000)) AS timestamp, 1 AS value " +
			"FROM n WHERE id > $1 ORDER BY timestamp"), 2, `out of memory|query sqlite:d/x.db|no space`},
		"rows without end": {asked(series + "SELECT id, 1700000000 + id AS timestamp, " +
			"hex(zeroblob(100000)) AS value FROM n WHERE id > $1"), 2, `a page is longer than|query sqlite`},
		"a body of 400 MB":         {fetched("bomb"), 8, `--max-unpacked`},
		"a body without end":       {fetched("endless"), 8, `its answer is longer than 67108864 bytes`},
		"rows of a body":           {fetched("rows"), 8, `its answer is longer than 67108864 bytes`},
		"headers without end":      {fetched("headers"), 8, `get http.*header`},
		"a header without end":     {fetched("header"), 8, `get http.*header`},
		"chunks with extensions":   {fetched("chunks"), 8, `get http.*chunk`},
		"a chunk size without end": {fetched("size"), 8, `get http.*too long`},
		"messages of 400 MB": {source.Series{
			URI: "nats:BIG/big.bomb", Format: "csv.gz",
			NATS: &source.SubjectSpec{Messages: 30},
		}, 4, `--max-unpacked`},
		"messages of 1 MB": {source.Series{
			URI: "nats:BIG/big.lines", Format: "ndjson",
			NATS: &source.SubjectSpec{Messages: 30},
		}, 4, `no valid row`},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(strings.ToLower(name), " ", "-")
			var list []source.Series
			for i := range in.copies {
				s := in.source
				s.Name = fmt.Sprint("s", i)
				list = append(list, s)
			}
			said, err := c.stream(t, id, list)
			t.Logf("%v %.300s", err, said)
			if (err != nil) != (in.want != "") || !regexp.MustCompile(in.want).Match(said) {
				t.Errorf("%v: %.600s; want %q", err, said, in.want)
			}
		})
	}
	c.cpu.resetPeak(t)
	var all sync.WaitGroup
	for name, body := range map[string]func() (io.Reader, string){
		"bomb":    func() (io.Reader, string) { return bytes.NewReader(bomb), "gzip" },
		"window":  func() (io.Reader, string) { return bytes.NewReader(windowed(17, "{}\n")), "zstd" },
		"endless": func() (io.Reader, string) { return struct{ io.Reader }{newline{}}, "" },
		"rows": func() (io.Reader, string) {
			return strings.NewReader(strings.Repeat(`{"timestamp":1,"value":1}`+"\n", 2_000_000)), ""
		},
		"a row": func() (io.Reader, string) { return strings.NewReader(`{"x":"` + strings.Repeat("y", 60<<20)), "" },
	} {
		for range 8 {
			all.Go(func() {
				r, coding := body()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
					fmt.Sprintf("http://127.0.0.1:%d/v1/push/p", port), r)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/x-ndjson")
				if coding != "" {
					req.Header.Set("Content-Encoding", coding)
				}
				a, err := http.DefaultClient.Do(req)
				if err != nil { // it is closed before all of the body was sent
					return
				}
				defer a.Body.Close()
				text, _ := io.ReadAll(io.LimitReader(a.Body, 1000))
				if a.StatusCode < 400 || !bytes.Contains(text, []byte("error")) {
					t.Errorf("%s: %d %s", name, a.StatusCode, text)
				}
			})
		}
	}
	all.Wait()
	peak := c.cpu.peak(t)
	t.Logf("pushes: at most %d MB", peak>>20)
	if peak > boundedLimit {
		t.Errorf("pushes: the agent has taken %d MB", peak>>20)
	}
}

// newline reads as empty lines without end.
type newline struct{}

func (newline) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}
