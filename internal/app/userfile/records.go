package userfile

import (
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// records finds the ends of records in a stream that comes in pieces. The zero value is for lines.
type records struct {
	csv    bool // a field in quotes may hold line ends
	comma  byte
	header bool // the first record is a header

	state    recordState
	read     int   // bytes scanned and not dropped
	ends     []int // of the records among them, in order; one in endEvery bytes and the last are kept
	firstEnd int   // of the first record of the stream, while nothing was dropped
}

// FirstRecord returns the end of the first record of a text of CSV or NDJSON in bytes; 0 if it has
// no end.
func FirstRecord(text []byte, format rows.Format, csv dialect.CSV) int {
	r := records{csv: format == "csv", comma: byte(csv.Comma())}
	for r.read < len(text) && r.firstEnd == 0 {
		r.scan(text[r.read : r.read+1])
	}
	return r.firstEnd
}

type recordState byte

const (
	fieldBegins recordState = iota
	inField
	inQuotes
	quoteInQuotes
)

// endEvery is how many bytes apart the ends of records are kept.
const endEvery = 4 << 10

func (r *records) scan(data []byte) {
	for _, c := range data {
		r.read++
		if r.csv {
			switch {
			case r.state == inQuotes:
				if c == '"' {
					r.state = quoteInQuotes
				}
				continue
			case c == '"' && r.state == quoteInQuotes:
				r.state = inQuotes
				continue
			case c == '"' && r.state == fieldBegins:
				r.state = inQuotes
				continue
			case c == r.comma || c == '\n':
				r.state = fieldBegins
			default:
				r.state = inField
			}
		}
		if c == '\n' {
			r.end()
		}
	}
}

// end notes that a record ends here.
func (r *records) end() {
	if r.firstEnd == 0 {
		r.firstEnd = r.read
	}
	if n := len(r.ends); n > 1 && r.read-r.ends[n-2] < endEvery {
		r.ends[n-1] = r.read
		return
	}
	r.ends = append(r.ends, r.read)
}

// before returns the last kept end of a record at or before byte n, or 0.
func (r *records) before(n int) (at int) {
	for _, e := range r.ends {
		if e <= n {
			at = e
		}
	}
	return at
}

// drop removes the first n bytes, which the caller has handed out.
func (r *records) drop(n int) {
	r.read -= n
	keep := r.ends[:0]
	for _, e := range r.ends {
		if e > n {
			keep = append(keep, e-n)
		}
	}
	r.ends = keep
}
