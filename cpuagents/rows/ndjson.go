package rows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// ndjsonReader reads one JSON object per line. It holds at most one line in memory. It ignores
// members without a column, whatever their values.
type ndjsonReader struct {
	spec    ColumnSpec
	src     io.Closer
	lines   Lines
	number  uint64
	slots   map[string]int // by member: its place in found
	columns []int          // places of the timestamp, of the features, of the key
	// found has the text of each wanted member of the present line, nil for a member that the line
	// does not have. It points into the line.
	found [][]byte
	clock Clock
	order Order
	key   keyBuilder
	// remedy is the cure of the present row, if its problem has one.
	remedy string
}

// newNDJSONReader returns the reader of src, which it owns. It reads nothing yet. A column that is
// the timestamp and a feature has one slot.
func newNDJSONReader(name string, src io.ReadCloser, spec ColumnSpec) *ndjsonReader {
	r := &ndjsonReader{
		spec: spec, src: src, lines: NewLines(name, src), slots: map[string]int{}, key: keyBuilder{columns: spec.Key},
	}
	for _, n := range spec.columns() {
		at, ok := r.slots[n]
		if !ok {
			at = len(r.slots)
			r.slots[n] = at
		}
		r.columns = append(r.columns, at)
	}
	r.found = make([][]byte, len(r.slots))
	return r
}

func (r *ndjsonReader) Close() error { return r.src.Close() }

func (r *ndjsonReader) Next() (Row, *Reject, error) {
	for {
		line, long, err := r.lines.Next()
		if err != nil {
			return Row{}, nil, err
		}
		if r.lines.Number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 && !long {
			continue // an empty line is no row
		}
		r.number++
		r.key.begin()
		r.remedy = ""
		problem := fmt.Sprintf("the line is longer than %d bytes", MaxRecord)
		if !long {
			var out Row
			if out, problem = r.parse(line); problem == "" {
				return out, nil, nil
			}
		}
		return Row{}, &Reject{
			Series: r.lines.name, Row: r.number, Line: r.lines.Number, Reason: problem,
			Cure: r.remedy, Cause: r.key.cause(),
		}, nil
	}
}

// CheckObject returns why a line is not a JSON object in UTF-8; empty if it is one. The line must
// not be empty.
func CheckObject(line []byte) (problem string) {
	switch {
	case !utf8.Valid(line):
		return "it is not valid UTF-8"
	case !json.Valid(line):
		return "it is not valid JSON"
	case line[0] != '{':
		return "it is not a JSON object"
	}
	return ""
}

// parse turns a line into a row, or returns what is wrong with it. The line is valid JSON before
// the members are cut out of it, so members and skipValue need no checks.
func (r *ndjsonReader) parse(line []byte) (Row, string) {
	if problem := CheckObject(line); problem != "" {
		return Row{}, problem
	}
	clear(r.found)
	if twice := r.members(line); twice != "" {
		return Row{}, fmt.Sprintf("member %q appears twice", twice)
	}
	first, n := r.spec.first(), len(r.spec.Features)
	out := Row{Number: r.number, Features: make([]float32, n), Values: make([]float64, n)}
	if first > 0 {
		if problem := r.stamp(&out, r.found[r.columns[0]]); problem != "" {
			return Row{}, problem
		}
	}
	for i, c := range r.columns[first+n:] {
		if problem := r.addKey(i, r.found[c]); problem != "" {
			return Row{}, problem
		}
	}
	out.Key = r.key.key()
	for i, c := range r.columns[first : first+n] {
		name, text := r.spec.Features[i], r.found[c]
		if r.spec.blank(i) && (text == nil || text[0] == 'n') {
			out.Values[i], out.Features[i] = math.NaN(), float32(math.NaN())
			continue
		}
		if text == nil {
			return Row{}, fmt.Sprintf("it has no member %q", name)
		}
		if text[0] != '-' && (text[0] < '0' || text[0] > '9') {
			return Row{}, fmt.Sprintf("column %q is %s, not a number", name, kindOf(text))
		}
		v, problem := parseFeature(name, string(text))
		if problem != "" {
			return Row{}, problem
		}
		out.Values[i] = v
		out.Features[i] = float32(v)
	}
	if problem := r.order.admit(r.spec, &out, &r.remedy); problem != "" {
		return Row{}, problem
	}
	return out, ""
}

// stamp sets the time of a row from its member, as it is in the line; nil if the line does not have
// it. It returns what is wrong with the member.
func (r *ndjsonReader) stamp(out *Row, text []byte) (problem string) {
	switch {
	case text == nil:
		return fmt.Sprintf("it has no member %q", r.spec.Timestamp)
	case text[0] == '"':
		out.Timestamp = unquote(text)
	case text[0] == '-' || text[0] >= '0' && text[0] <= '9':
		out.Timestamp = string(text)
	default:
		return fmt.Sprintf("its timestamp is %s, not a string or a number", kindOf(text))
	}
	return r.clock.stamp(out)
}

// addKey adds the value of key column i, as it is in the line; nil if the line does not have it. It
// returns what is wrong with the value.
func (r *ndjsonReader) addKey(i int, value []byte) (problem string) {
	name := r.spec.Key[i]
	switch {
	case value == nil:
		return r.key.fail("it has no member %q, which is a key column", name)
	case value[0] == '"':
		text := unquote(value)
		return r.key.add(i, text, len(text))
	case value[0] == 'n':
		return r.key.fail("key column %q is null", name)
	case value[0] == '{' || value[0] == '[':
		return r.key.fail("key column %q is %s, not %s", name, kindOf(value), wantKey)
	case bytes.ContainsAny(value, ".eE") && value[0] != 't' && value[0] != 'f':
		return r.key.fail("key column %q: the number %s is no integer", name, access.Quote(string(value)))
	case string(value) == "-0":
		value = value[1:]
	}
	return r.key.add(i, string(value), len(value))
}

func kindOf(value []byte) string {
	switch value[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// members stores the wanted members of a valid JSON object in found. It returns the name of a
// member that appears twice; empty if none does. Names are compared after their escapes are undone,
// so "a" and "\u0061" are one member.
func (r *ndjsonReader) members(b []byte) (twice string) {
	for i := skipSpace(b, 1); b[i] != '}'; {
		if b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		end := skipValue(b, i)
		key := b[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(unquote(b[i:end]))
		}
		i = skipSpace(b, end)
		i = skipSpace(b, i+1) // over the colon
		end = skipValue(b, i)
		if at, ok := r.slots[string(key)]; ok {
			if r.found[at] != nil {
				return string(key)
			}
			r.found[at] = b[i:end]
		}
		i = skipSpace(b, end)
	}
	return ""
}

// skipSpace returns the first position from i on that is not white space. The text must not end
// before it.
func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i. The text must be valid JSON.
func skipValue(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 { // a number or a word
				for i < len(b) && !bytes.ContainsRune([]byte(",}] \t\n\r"), rune(b[i])) {
					i++
				}
				return i
			}
		}
		i++
		if depth == 0 {
			return i
		}
	}
}

// unquote returns the text of a valid JSON string.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	_ = json.Unmarshal(b, &s) // it is valid
	return s
}

// lineBuffer is the read-ahead of a text in bytes. A job has up to 256 texts open.
const lineBuffer = 64 << 10

// Lines reads a text line by line. The text may be UTF-16, and its lines may end with CR. It holds
// its read-ahead and at most one line in memory. One goroutine uses it. A line longer than the
// read-ahead is copied; little more than MaxRecord bytes of it are kept.
type Lines struct {
	name   string
	buf    *bufio.Reader
	Number uint64 // of the last line that Next returned, from 1
	begun  bool
}

// NewLines returns the lines of r. Errors name the text by name.
func NewLines(name string, r io.Reader) Lines {
	return Lines{name: name, buf: bufio.NewReaderSize(Text(r), lineBuffer)}
}

// Next returns the next line with its line end, or io.EOF. The line is valid until the next call. A
// line of more than MaxRecord bytes is read to its end: long is true, and line holds only its
// beginning.
func (l *Lines) Next() (line []byte, long bool, err error) {
	line, err = l.buf.ReadSlice('\n')
	if !l.begun {
		if l.begun = true; endsWithCR(line) {
			l.buf = bufio.NewReaderSize(lineEnds{io.MultiReader(bytes.NewReader(bytes.Clone(line)), l.buf)}, lineBuffer)
			line, err = l.buf.ReadSlice('\n')
		}
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		// ReadSlice reuses its buffer, so the pieces of a long line are copied.
		whole := append([]byte{}, line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if line, err = l.buf.ReadSlice('\n'); len(whole) <= MaxRecord {
				whole = append(whole, line...)
			}
		}
		// The rest of a line that is too long is read and dropped.
		line, long = whole, len(whole) > MaxRecord
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line needs no line end
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = access.IOError("read", l.name, err)
		}
		return nil, false, err
	}
	l.Number++
	return line, long, nil
}
