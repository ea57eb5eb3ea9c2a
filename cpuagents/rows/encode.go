package rows

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Encoder writes decisions in one format. The caller calls Spool for each decision, and keeps the
// bytes by series. Then it calls Begin, Piece for each run of spooled decisions, and End. One
// goroutine uses it, but Spool may be called concurrently with every method.
type Encoder interface {
	// Spool appends the spooled form of decision i of d to b. It may be called between Begin and
	// End too. It changes nothing but b.
	Spool(b []byte, d *batch.Decisions, i int) []byte
	// Begin starts the output.
	Begin(w io.Writer) error
	// Piece writes the spooled decisions in r, which are of one series, by its index. Decisions of
	// entities name their entity, so r may mix entities, and series does not count.
	Piece(series int, r io.Reader) error
	// End finishes the output. It does not close the writer.
	End() error
}

// NewEncoder returns the encoder of a format, and the packing of its output as NewPacker takes it.
// The encoder does not pack: the caller gives Begin the writer of a packer. The error is an unknown
// format.
func NewEncoder(f Format, l Layout) (e Encoder, pack string, err error) {
	rows, pack, err := f.Split()
	if err != nil {
		return nil, "", fmt.Errorf("output: %w", err)
	}
	switch rows {
	case "ndjson":
		return NewNDJSONEncoder(l), pack, nil
	case "csv":
		return newCSVEncoder(l), pack, nil
	}
	return newColumnEncoder(rows, l), pack, nil
}

// text is the common part of formats whose spooled decisions are the lines of the output, in
// another order. So Piece copies them.
type textEncoder struct {
	w      io.Writer
	header string
}

// Begin implements Encoder. It writes the header, which is empty for NDJSON.
func (t *textEncoder) Begin(w io.Writer) error {
	t.w = w
	_, err := io.WriteString(w, t.header)
	return err
}

// Piece implements Encoder. The lines name their series themselves.
func (t *textEncoder) Piece(_ int, r io.Reader) error {
	_, err := io.Copy(t.w, r)
	return err
}

// End implements Encoder. Lines have no footer.
func (t *textEncoder) End() error { return nil }

type ndjsonEncoder struct {
	textEncoder
	Layout
	prefix   [][]byte // by series: {"series":"NAME","row":
	keys     [][]byte // by key column: {"NAME": or ,"NAME":
	features [][]byte // by feature: ,"NAME":
	names    [][]byte // by candidate: "NAME"
}

// NewNDJSONEncoder returns the encoder of NDJSON. Its spooled decisions are lines of the output.
func NewNDJSONEncoder(l Layout) Encoder {
	e := &ndjsonEncoder{Layout: l}
	for i, name := range l.NameColumns() {
		mark := byte(',')
		if i == 0 {
			mark = '{'
		}
		e.keys = append(e.keys, append(AppendJSON([]byte{mark}, name), ':'))
	}
	for _, name := range l.Series {
		e.prefix = append(e.prefix, append(AppendJSON([]byte(`{"series":`), name), `,"row":`...))
	}
	for _, name := range l.FeatureColumns() {
		e.features = append(e.features, append(AppendJSON([]byte{','}, name), ':'))
	}
	for _, c := range l.Candidates {
		e.names = append(e.names, AppendJSON(nil, c))
	}
	return e
}

func (e *ndjsonEncoder) Spool(b []byte, d *batch.Decisions, i int) []byte {
	if len(e.Keys) == 0 {
		b = append(b, e.prefix[d.Group[i]]...)
	} else {
		key, _ := e.Entities.Key(int(d.Group[i]))
		for _, name := range e.keys {
			var value string
			value, key = CutKey(key)
			b = AppendJSON(append(b, name...), value)
		}
		b = append(b, `,"row":`...)
	}
	b = strconv.AppendUint(b, d.Row[i], 10)
	b = AppendJSON(append(b, `,"timestamp":`...), d.Timestamp[i])
	for f, name := range e.features {
		b = append(b, name...)
		if v, ok := d.Feature(i, f); ok {
			b = AppendNumber(b, v, 64)
		} else {
			b = append(b, "null"...)
		}
	}
	if why := DropReason(d, i); why != "" {
		return append(append(append(b, `,"dropped":"`...), why...), '"', '}', '\n')
	}
	b = AppendNumber(append(b, `,"score":`...), float64(d.Score[i]), 32)
	b = append(b, `,"decision":`...)
	if c := d.Decision[i]; c == batch.NoDecision {
		b = append(append(append(b, '"'), NoDecision...), '"')
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
	if d.Round[i] <= e.Learning {
		b = append(b, `,"learning":true`...)
	}
	if e.Explain {
		b = e.explain(b, d, i)
	}
	return append(b, '}', '\n')
}

// explain appends the members of an explanation. Rows that are as usual have no cause.
func (e *ndjsonEncoder) explain(b []byte, d *batch.Decisions, i int) []byte {
	for k, column := range explainedColumns[:3] {
		b = append(append(append(b, ',', '"'), column...), '"', ':')
		for f, name := range e.features {
			b = append(b, name...)
			if f == 0 {
				b[len(b)-len(name)] = '{' // in place of the comma
			}
			if v := Band(d, i, f)[k]; math.IsNaN(v) {
				b = append(b, "null"...)
			} else {
				b = AppendNumber(b, v, 32)
			}
		}
		b = append(b, '}')
	}
	why := d.Explained
	if why.Fault[i] < 0 {
		return b
	}
	b = append(b, `,"feature":`...)
	b = append(b, e.features[why.Fault[i]][1:len(e.features[why.Fault[i]])-1]...)
	b = append(append(b, `,"direction":"`...), batch.Sides[why.Side[i]]...)
	b = append(append(b, `","kind":"`...), why.Kind[i].String()...)
	return strconv.AppendUint(append(b, `","before":`...), uint64(why.Before[i]), 10)
}

// NoDecision is the text of batch.NoDecision in outputs.
const NoDecision = "none"

// DroppedColumn is the name of the column with the reason why an observation was dropped.
const DroppedColumn = "dropped"

// DropReason returns why observation i was dropped; empty if it was not.
func DropReason(d *batch.Decisions, i int) string {
	if d.Dropped == nil {
		return ""
	}
	return batch.Reasons[d.Dropped[i]]
}

// CountColumn returns the name of the column with the votes for a candidate.
func CountColumn(candidate string) string { return "counts." + candidate }

// csvEncoder writes RFC 4180 with a header and lines that end with LF.
type csvEncoder struct {
	textEncoder
	prefix [][]byte // by series
	names  [][]byte // by candidate
	faults []string // names of features
	Layout
}

// newCSVEncoder returns the encoder of CSV. Only an output with drops has the column of reasons.
func newCSVEncoder(l Layout) *csvEncoder {
	e := &csvEncoder{Layout: l, faults: l.FeatureColumns()}
	var header []byte
	for _, name := range l.NameColumns() {
		header = append(appendCSV(header, name), ',')
	}
	header = append(header, "row,timestamp"...)
	for _, name := range l.FeatureColumns() {
		header = appendCSV(append(header, ','), name)
	}
	header = append(header, ",score,decision,round"...)
	for _, c := range l.Candidates {
		e.names = append(e.names, appendCSV(nil, c))
		header = appendCSV(append(header, ','), CountColumn(c))
	}
	header = append(header, ",leader"...)
	if l.Drops {
		header = append(append(header, ','), DroppedColumn...)
	}
	if l.Explain {
		for _, name := range append(l.BandColumns(), explainedColumns[3:]...) {
			header = appendCSV(append(header, ','), name)
		}
	}
	e.header = string(header) + "\n"
	for _, name := range l.Series {
		e.prefix = append(e.prefix, append(appendCSV(nil, name), ','))
	}
	return e
}

// Spool implements Encoder. A missing feature is an empty field.
func (e *csvEncoder) Spool(b []byte, d *batch.Decisions, i int) []byte {
	if len(e.Keys) == 0 {
		b = append(b, e.prefix[d.Group[i]]...)
	} else {
		key, _ := e.Entities.Key(int(d.Group[i]))
		for range e.Keys {
			var value string
			value, key = CutKey(key)
			b = append(appendCSV(b, value), ',')
		}
	}
	b = strconv.AppendUint(b, d.Row[i], 10)
	b = appendCSV(append(b, ','), d.Timestamp[i])
	for f := range e.Features {
		b = append(b, ',')
		if v, ok := d.Feature(i, f); ok {
			b = AppendNumber(b, v, 64)
		}
	}
	why := DropReason(d, i)
	if why != "" { // no score, decision, round, counts and leader
		for range 4 + len(e.names) {
			b = append(b, ',')
		}
		return e.line(b, d, i, why)
	}
	b = AppendNumber(append(b, ','), float64(d.Score[i]), 32)
	b = append(b, ',')
	if c := d.Decision[i]; c == batch.NoDecision {
		b = append(b, NoDecision...)
	} else {
		b = append(b, e.names[c]...)
	}
	b = strconv.AppendUint(append(b, ','), d.Round[i], 10)
	for c := range e.names {
		b = strconv.AppendUint(append(b, ','), uint64(d.Counts[i*d.Candidates+c]), 10)
	}
	return e.line(strconv.AppendUint(append(b, ','), d.Leader[i], 10), d, i, why)
}

// line ends a line: the reason of a drop, if the layout has drops, and the explanation.
func (e *csvEncoder) line(b []byte, d *batch.Decisions, i int, dropped string) []byte {
	if e.Drops {
		b = append(append(b, ','), dropped...)
	}
	if !e.Explain {
		return append(b, '\n')
	}
	for f := range e.Features {
		for _, v := range Band(d, i, f) {
			if b = append(b, ','); !math.IsNaN(v) {
				b = AppendNumber(b, v, 32)
			}
		}
	}
	why := d.Explained
	if why.Fault[i] < 0 {
		return append(b, ",,,,\n"...)
	}
	b = appendCSV(append(b, ','), e.faults[why.Fault[i]])
	b = append(append(b, ','), batch.Sides[why.Side[i]]...)
	b = append(append(b, ','), why.Kind[i].String()...)
	return append(strconv.AppendUint(append(b, ','), uint64(why.Before[i]), 10), '\n')
}

// appendCSV appends s as a field of RFC 4180. A field is quoted if it is empty, has a character
// with a meaning, or has a space at its start or end, which some readers remove. Bytes that are not
// UTF-8 become U+FFFD.
func appendCSV(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if s != "" && !strings.ContainsAny(s, ",\"\r\n") && strings.TrimSpace(s) == s {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

// AppendNumber appends v in the shortest form that parses to the same float. The parameter bits is
// the size of that float: 32 or 64. Small and large numbers have an exponent, at the limits that
// JavaScript uses. v must be finite, as JSON has no other numbers.
func AppendNumber(b []byte, v float64, bits int) []byte {
	if a := max(v, -v); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
	return strconv.AppendFloat(b, v, 'f', -1, bits)
}

const hex = "0123456789abcdef"

// AppendJSON appends s as a JSON string (RFC 8259). A byte that is not UTF-8 becomes U+FFFD.
func AppendJSON(b []byte, s string) []byte {
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
