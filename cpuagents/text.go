package cpuagents

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// encoder writes decisions in one format: first into the spool, one by one as they come, and at the end the pieces of the
// spool into the output, series after series. What it writes depends on the decisions and their order alone.
type encoder interface {
	// spool appends decision i of d to b.
	spool(b []byte, d *batch.Decisions, i int) []byte
	// begin starts the output.
	begin(w io.Writer) error
	// piece writes what stands spooled in r, decisions of one series.
	piece(series int, r io.Reader) error
	// end finishes the output. It closes nothing.
	end() error
}

// newEncoder returns the encoder of a format and how its output is packed.
func newEncoder(f rows.Format, l layout) (e encoder, pack string, err error) {
	rows, pack, err := f.Split()
	if err != nil {
		return nil, "", fmt.Errorf("output: %w", err)
	}
	switch rows {
	case "ndjson":
		return newNDJSONEncoder(l), pack, nil
	case "csv":
		return newCSVEncoder(l), pack, nil
	}
	return newColumnEncoder(rows, l), pack, nil
}

// text is an output whose spool is the output itself, in another order.
type text struct {
	w      io.Writer
	header string
}

func (t *text) begin(w io.Writer) error {
	t.w = w
	_, err := io.WriteString(w, t.header)
	return err
}

func (t *text) piece(_ int, r io.Reader) error {
	_, err := io.Copy(t.w, r)
	return err
}

func (t *text) end() error { return nil }

// ndjsonEncoder writes a JSON object a line.
type ndjsonEncoder struct {
	text
	prefix   [][]byte // by series: {"series":"NAME","row":
	features [][]byte // by feature: ,"NAME":
	names    [][]byte // by candidate: "NAME"
}

func newNDJSONEncoder(l layout) *ndjsonEncoder {
	e := &ndjsonEncoder{}
	for _, src := range l.series {
		e.prefix = append(e.prefix, append(appendJSON([]byte(`{"series":`), src.Name), `,"row":`...))
	}
	for _, name := range l.featureColumns() {
		e.features = append(e.features, append(appendJSON([]byte{','}, name), ':'))
	}
	for _, c := range l.candidates {
		e.names = append(e.names, appendJSON(nil, c))
	}
	return e
}

// spool implements encoder.
func (e *ndjsonEncoder) spool(b []byte, d *batch.Decisions, i int) []byte {
	b = append(b, e.prefix[d.Group[i]]...)
	b = strconv.AppendUint(b, d.Row[i], 10)
	b = appendJSON(append(b, `,"timestamp":`...), d.Timestamp[i])
	for f, name := range e.features {
		b = append(b, name...)
		if v, ok := d.Feature(i, f); ok {
			b = appendNumber(b, v, 64)
		} else {
			b = append(b, "null"...)
		}
	}
	if why := droppedAs(d, i); why != "" {
		return append(append(append(b, `,"dropped":"`...), why...), '"', '}', '\n')
	}
	b = appendNumber(append(b, `,"score":`...), float64(d.Score[i]), 32)
	b = append(b, `,"decision":`...)
	if c := d.Decision[i]; c == batch.NoDecision {
		b = append(append(append(b, '"'), noDecision...), '"')
	} else {
		b = append(b, e.names[c]...)
	}
	b = strconv.AppendUint(append(b, `,"round":`...), d.Round[i], 10)
	b = append(b, `,"counts":{`...)
	for c, name := range e.names {
		if c > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(append(b, name...), ':'), uint64(d.Counts[i*d.Candidates+c]), 10)
	}
	b = strconv.AppendUint(append(b, `},"leader":`...), d.Leader[i], 10)
	return append(b, '}', '\n')
}

// noDecision is how outputs call batch.NoDecision.
const noDecision = "none"

// droppedColumn says why an observation was dropped.
const droppedColumn = "dropped"

// droppedAs is why observation i was; empty: it was not.
func droppedAs(d *batch.Decisions, i int) string {
	if d.Dropped == nil {
		return ""
	}
	return batch.Reasons[d.Dropped[i]]
}

// countName is the column of the votes for a candidate.
func countName(candidate string) string { return "counts." + candidate }

// csvEncoder writes RFC 4180 with a header and lines that end with LF.
type csvEncoder struct {
	text
	prefix [][]byte // by series
	names  [][]byte // by candidate
	layout
}

func newCSVEncoder(l layout) *csvEncoder {
	e := &csvEncoder{layout: l}
	header := []byte("series,row,timestamp")
	for _, name := range l.featureColumns() {
		header = appendCSV(append(header, ','), name)
	}
	header = append(header, ",score,decision,round"...)
	for _, c := range l.candidates {
		e.names = append(e.names, appendCSV(nil, c))
		header = appendCSV(append(header, ','), countName(c))
	}
	header = append(header, ",leader"...)
	if l.drops {
		header = append(append(header, ','), droppedColumn...)
	}
	e.header = string(header) + "\n"
	for _, src := range l.series {
		e.prefix = append(e.prefix, append(appendCSV(nil, src.Name), ','))
	}
	return e
}

// spool implements encoder.
func (e *csvEncoder) spool(b []byte, d *batch.Decisions, i int) []byte {
	b = append(b, e.prefix[d.Group[i]]...)
	b = strconv.AppendUint(b, d.Row[i], 10)
	b = appendCSV(append(b, ','), d.Timestamp[i])
	for f := range e.features {
		b = append(b, ',')
		if v, ok := d.Feature(i, f); ok {
			b = appendNumber(b, v, 64)
		}
	}
	why := droppedAs(d, i)
	if why != "" { // no score, decision, round, counts and leader
		for range 4 + len(e.names) {
			b = append(b, ',')
		}
		return e.line(b, why)
	}
	b = appendNumber(append(b, ','), float64(d.Score[i]), 32)
	b = append(b, ',')
	if c := d.Decision[i]; c == batch.NoDecision {
		b = append(b, noDecision...)
	} else {
		b = append(b, e.names[c]...)
	}
	b = strconv.AppendUint(append(b, ','), d.Round[i], 10)
	for c := range e.names {
		b = strconv.AppendUint(append(b, ','), uint64(d.Counts[i*d.Candidates+c]), 10)
	}
	return e.line(strconv.AppendUint(append(b, ','), d.Leader[i], 10), why)
}

// line ends a line.
func (e *csvEncoder) line(b []byte, dropped string) []byte {
	if e.drops {
		b = append(append(b, ','), dropped...)
	}
	return append(b, '\n')
}

// appendCSV writes s as a field of RFC 4180.
func appendCSV(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if s != "" && !strings.ContainsAny(s, ",\"\r\n") && strings.TrimSpace(s) == s {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

// appendNumber writes v in the shortest form that reads back as the same float of bits bits.
func appendNumber(b []byte, v float64, bits int) []byte {
	if a := max(v, -v); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
	return strconv.AppendFloat(b, v, 'f', -1, bits)
}

const hex = "0123456789abcdef"

// appendJSON writes s as a JSON string (RFC 8259).
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // a broken byte becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
