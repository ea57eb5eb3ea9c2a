package push

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// maxFrame bounds a message of rows in bytes, and so a row. It is half of what a NATS server
// accepts by default.
const maxFrame = 512 << 10

// maxWindow bounds the memory of the decoder of a zstd body, in bytes. It is what zstd uses without
// --ultra.
const maxWindow = 8 << 20

// tooLarge is the error of a body beyond a limit, which its text names. It becomes status 413: the
// same body is too large at any time.
type tooLarge struct{ what string }

func (e tooLarge) Error() string { return e.what }

// bodyParser turns a body into frames. A frame has one or more complete rows as NDJSON, of at most
// maxFrame bytes together. It checks only that each row is a row; the job that reads the rows
// checks their contents. One goroutine uses it, for one body. The memory of frames counts against
// hold until the caller releases it.
type bodyParser struct {
	frames [][]byte
	rows   int
	size   int64 // of the frames
	// line is the row that is being written, whose memory the next row reuses.
	line []byte

	// notFinite and histograms count samples of remote write that are no rows.
	notFinite, histograms int

	hold    *access.Hold // of the agent's memory of inputs
	maxRows int
	maxSize int64 // of what a body unpacks to, and of the frames
}

// add appends a copy of a row with its line end. It returns a tooLarge beyond the limits of the
// body, and an error of package access if the agent has no memory for a new frame.
func (f *bodyParser) add(line []byte) error {
	if f.rows++; f.rows > f.maxRows {
		return tooLarge{fmt.Sprintf("it has more than %d rows: push less at a time", f.maxRows)}
	}
	if len(line) > maxFrame {
		return fmt.Errorf("a row of %d bytes as JSON; %d are allowed", len(line), maxFrame)
	}
	if f.size += int64(len(line)); f.size > f.maxSize {
		return tooLarge{fmt.Sprintf("its rows are more than %d bytes as JSON: push less at a time", f.maxSize)}
	}
	last := len(f.frames) - 1
	if last < 0 || len(f.frames[last])+len(line) > maxFrame {
		if err := f.hold.Grow(2 * maxFrame); err != nil { // a frame grows by doubling
			return err
		}
		f.frames = append(f.frames, nil)
		last++
	}
	f.frames[last] = append(f.frames[last], line...)
	return nil
}

// read parses a body. If it fails, the error names the place and the reason, and there are no
// frames. A body is all or nothing: one bad row refuses all rows, so that a client can correct and
// repeat it.
func (f *bodyParser) read(body io.Reader, format rows.Format, coding string) (err error) {
	src, done, err := f.unpack(body, coding)
	if err != nil {
		return err
	}
	defer done()
	watched := &watched{r: src, left: f.maxSize, coding: coding}
	switch format {
	case "csv":
		err = f.csv(watched)
	case "arrow":
		err = f.arrow(watched)
	default:
		err = f.ndjson(watched)
	}
	if watched.err != nil { // the readers above it know it as a failing disk
		err = watched.err
	}
	if err == nil && f.rows == 0 {
		err = errors.New("it has no row")
	}
	if err != nil {
		f.frames = nil
	}
	return err
}

// unpack returns a reader of the unpacked body. Any coding but gzip and zstd is read as it is: the
// caller has checked it. The caller calls done at the end, also after an error.
func (f *bodyParser) unpack(body io.Reader, coding string) (src io.Reader, done func(), err error) {
	done = func() {}
	switch coding {
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, done, fmt.Errorf("its gzip stream is damaged: %w", err)
		}
		return z, done, nil
	case "zstd":
		z, err := zstd.NewReader(
			body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow),
		)
		if err != nil {
			return nil, done, fmt.Errorf("its zstd stream is damaged: %w", err)
		}
		return z, z.Close, nil
	}
	return body, done, nil
}

// watched bounds the unpacked size of a body, and keeps the reason why reading it failed.
type watched struct {
	r      io.Reader
	left   int64
	coding string
	err    error
}

// Read implements io.Reader. The first error is kept in err and returned by every later call.
func (w *watched) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.r.Read(p)
	if w.left -= int64(n); w.left < 0 {
		w.err = tooLarge{"it unpacks to more than is allowed: push less at a time"}
	} else if err != nil && !errors.Is(err, io.EOF) {
		w.err = fmt.Errorf("its %s stream is damaged: %w", w.coding, err)
	}
	if w.err != nil {
		return 0, w.err
	}
	return n, err
}

// ndjson reads one object per line. Empty lines are left out, and a byte order mark before the
// first line. Rows are stored as they came; numbers keep their digits.
func (f *bodyParser) ndjson(src io.Reader) error {
	lines := rows.NewLines("the body", src)
	for {
		line, long, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if lines.Number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		problem := ""
		if line = bytes.TrimSpace(line); long {
			problem = fmt.Sprintf("it is longer than %d bytes", rows.MaxRecord)
		} else if len(line) > 0 {
			problem = rows.CheckObject(line)
		}
		if problem == "" && len(line) > 0 {
			f.line = append(append(f.line[:0], line...), '\n')
			if err = f.add(f.line); err != nil {
				problem = err.Error()
			}
		}
		if err := placed("line", lines.Number, problem, err); err != nil {
			return err
		}
	}
}

// placed returns the error of a row with its place; nil if there is no problem. Limits of the whole
// body and of memory have no place, and are returned as they are.
func placed(what string, number uint64, problem string, err error) error {
	var large tooLarge
	switch {
	case access.IsMemory(err):
		return err
	case errors.As(err, &large):
		return large
	case problem != "":
		return fmt.Errorf("%s %d: %s", what, number, problem)
	}
	return nil
}

// csv reads records of RFC 4180 with commas. The first record names the members of every row, in
// their order. Empty records are left out.
func (f *bodyParser) csv(src io.Reader) error {
	r := rows.NewRecords("the body", src, f.hold)
	var keys [][]byte
	for {
		record, problem, err := r.Record()
		if errors.Is(err, io.EOF) {
			if keys == nil {
				return errors.New("it is empty: it must begin with a header")
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case problem != "":
		case keys == nil:
			keys, problem = csvKeys(bytes.TrimPrefix(record, []byte("\xef\xbb\xbf")))
		case len(record) == 0:
		default:
			if problem = f.csvRow(keys, record); problem == "" {
				if err = f.add(f.line); err != nil {
					problem = err.Error()
				}
			}
		}
		if err := placed("line", r.Line(), problem, err); err != nil {
			return err
		}
	}
}

// csvKeys returns the names of the members for the columns of a header, each as JSON with its
// colon. The problem is empty, or says what is wrong with the header: a name that is empty or
// twice. Space around a name is removed, as around a field.
func csvKeys(header []byte) (keys [][]byte, problem string) {
	names, err := rows.SplitRecord(header, ',')
	if err != nil || !utf8.Valid(header) {
		return nil, "the header is not valid CSV in UTF-8"
	}
	seen := map[string]bool{}
	for _, n := range names {
		n = strings.TrimSpace(n)
		if n == "" || seen[n] {
			return nil, fmt.Sprintf("the header names a column %s twice, or not at all", access.Quote(n))
		}
		seen[n] = true
		keys = append(keys, append(rows.AppendJSON(nil, n), ':'))
	}
	return keys, ""
}

// csvRow writes a record into line as an object of NDJSON, with the keys that csvKeys has returned.
// The problem is empty, or says what is wrong with the record.
func (f *bodyParser) csvRow(keys [][]byte, record []byte) (problem string) {
	if !utf8.Valid(record) {
		return "it is not valid UTF-8"
	}
	fields, err := rows.SplitRecord(record, ',')
	if err != nil {
		return err.Error()
	}
	if len(fields) != len(keys) {
		return fmt.Sprintf("it has %d fields, the header has %d", len(fields), len(keys))
	}
	f.line = append(f.line[:0], '{')
	for i, text := range fields {
		if i > 0 {
			f.line = append(f.line, ',')
		}
		f.line = appendField(append(f.line, keys[i]...), strings.TrimSpace(text))
	}
	f.line = append(f.line, '}', '\n')
	return ""
}

// appendField appends a field of CSV as JSON. An empty field is null. A field that parses as a
// finite number is a number, and keeps its digits if it is a number of JSON. Any other field is a
// text.
func appendField(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	// Forms such as 007, +1 and 1e5 are numbers for people, but the first two are not JSON.
	if c := text[0]; (c == '-' || c >= '0' && c <= '9') && json.Valid([]byte(text)) {
		return append(b, text...)
	}
	if v, err := dialect.Float(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		return rows.AppendNumber(b, v, 64)
	}
	return rows.AppendJSON(b, text)
}

// arrow reads an IPC stream or file. Its messages are verified like the messages of a source,
// before the library decodes them. Columns have numbers, times, texts or booleans.
func (f *bodyParser) arrow(src io.Reader) (err error) {
	messages := rows.NewArrowMessages("the body", src, f.hold)
	defer func() { // the library panics on some damage that no check before it finds
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	r, err := ipc.NewReaderFromMessageReader(messages)
	if err != nil {
		return fmt.Errorf("no Arrow schema: %w", err)
	}
	var keys [][]byte
	seen := map[string]bool{}
	for _, c := range r.Schema().Fields() {
		if c.Name == "" || seen[c.Name] {
			return fmt.Errorf("the schema names a column %s twice, or not at all", access.Quote(c.Name))
		}
		if !rows.IsArrowNumber(c.Type) && !rows.IsArrowTime(c.Type) && c.Type.ID() != arrow.BOOL {
			return fmt.Errorf("column %s is %s: push numbers, times, texts and booleans", access.Quote(c.Name), c.Type)
		}
		seen[c.Name] = true
		keys = append(keys, append(rows.AppendJSON(nil, c.Name), ':'))
	}
	if len(keys) == 0 {
		return errors.New("the schema has no column")
	}
	// Each batch is valid until the next one, and add copies its rows.
	for n := uint64(1); r.Next(); n++ {
		if err := f.record(keys, r.RecordBatch()); err != nil {
			return placed("record batch", n, err.Error(), err)
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return messages.Rest()
}

// record adds the rows of a record batch. The verified lengths of a batch still allow columns of
// different lengths, which are refused here.
func (f *bodyParser) record(keys [][]byte, rec arrow.RecordBatch) error {
	for i := range keys {
		if c := rec.Column(i); int64(c.Len()) != rec.NumRows() {
			return fmt.Errorf("column %s has %d rows of %d", access.Quote(rec.ColumnName(i)), c.Len(), rec.NumRows())
		}
	}
	for row := range int(rec.NumRows()) {
		f.line = append(f.line[:0], '{')
		for i := range keys {
			if i > 0 {
				f.line = append(f.line, ',')
			}
			f.line = appendCell(append(f.line, keys[i]...), rec.Column(i), row)
		}
		f.line = append(f.line, '}', '\n')
		if err := f.add(f.line); err != nil {
			return err
		}
	}
	return nil
}

// appendCell appends a value of a column as JSON. An infinite number is a text, which no feature
// is. Integers keep all their digits. Times are RFC 3339 in UTC.
func appendCell(b []byte, a arrow.Array, i int) []byte {
	if !a.IsValid(i) {
		return append(b, "null"...)
	}
	switch a := a.(type) {
	case *array.Boolean:
		return strconv.AppendBool(b, a.Value(i))
	case *array.String:
		return rows.AppendJSON(b, a.Value(i))
	case *array.LargeString:
		return rows.AppendJSON(b, a.Value(i))
	case *array.Timestamp, *array.Date32, *array.Date64:
		return rows.AppendJSON(b, rows.ArrowTime(a, i))
	case *array.Int64:
		return strconv.AppendInt(b, a.Value(i), 10)
	case *array.Uint64:
		return strconv.AppendUint(b, a.Value(i), 10)
	}
	v := rows.ArrowNumber(a, i)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return rows.AppendJSON(b, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return rows.AppendNumber(b, v, 64)
}
