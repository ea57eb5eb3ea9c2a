// Package times keeps measured durations: histograms, series of them with the conditions of their
// measurement, and files of series.
//
// A file is text. Its first line is "exoswarm times 1". Lines of a header follow, each "name:
// value", then an empty line, then a series a line:
//
//	append bytes=65536 streams=4 cpu=81250.5 : 1024000*3 1040384*17
//
// A series has a name, keys with numbers in the order of their names, and buckets: a duration in
// nanoseconds and how often it was measured.
package times

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

const (
	firstLine  = "exoswarm times 1"
	maxLine    = 1 << 20
	maxSeries  = 100_000
	maxBucket  = 1 << 53 // nanoseconds: 104 days
	maxCounted = 1 << 40
)

// Series is durations that were measured under the same conditions.
type Series struct {
	Name  string
	Keys  map[string]float64 // conditions and results beside the durations, such as bytes=65536
	Times Histogram
}

// File is series with a description of their measurement.
type File struct {
	Header map[string]string // such as machine, command and date
	Series []Series
}

// Write writes the file in the form that Read reads.
func (f *File) Write(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, firstLine)
	for _, name := range slices.Sorted(maps.Keys(f.Header)) {
		if !word(name) || strings.ContainsAny(f.Header[name], "\r\n") {
			return fmt.Errorf("%w: header %q has the value %q: use one word and one line", ErrInvalid, name,
				f.Header[name])
		}
		fmt.Fprintf(&b, "%s: %s\n", name, strings.TrimSpace(f.Header[name]))
	}
	fmt.Fprintln(&b)
	for _, s := range f.Series {
		if err := s.check(); err != nil {
			return err
		}
		fmt.Fprintln(&b, s.line())
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Series) check() error {
	if !word(s.Name) {
		return fmt.Errorf("%w: a series has the name %q: use letters, digits, points and dashes", ErrInvalid, s.Name)
	}
	for key, v := range s.Keys {
		if !word(key) || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: series %s has the key %q with value %v", ErrInvalid, s.Name, key, v)
		}
	}
	return nil
}

func (s *Series) line() string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		fmt.Fprintf(&b, " %s=%s", key, strconv.FormatFloat(s.Keys[key], 'g', 8, 64))
	}
	b.WriteString(" :")
	for _, e := range s.Times.buckets {
		fmt.Fprintf(&b, " %d*%d", e.NS, e.N)
	}
	return b.String()
}

// Read reads a file. Each error is an ErrInvalid or of r, and names the line.
func Read(name string, r io.Reader) (*File, error) {
	f := &File{Header: map[string]string{}}
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxLine)
	body := false
	at := 0
	for scan.Scan() {
		at++
		line := scan.Text()
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %w: %s", name, at, ErrInvalid, fmt.Sprintf(format, args...))
		}
		switch {
		case at == 1:
			if line != firstLine {
				return nil, fail("the first line is %.40q, want %q", line, firstLine)
			}
		case line == "":
			body = true
		case !body:
			key, value, found := strings.Cut(line, ": ")
			if _, twice := f.Header[key]; !found || twice || !word(key) || strings.Contains(value, "\r") {
				return nil, fail("%.60q is no line of a header: write a new name, a colon and a value", line)
			}
			f.Header[key] = strings.TrimSpace(value)
		default:
			s, err := parse(line)
			if err != nil {
				return nil, fail("%v", err)
			}
			if len(f.Series) == maxSeries {
				return nil, fail("more than %d series", maxSeries)
			}
			f.Series = append(f.Series, s)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, at+1, err)
	}
	if at == 0 {
		return nil, fmt.Errorf("%s: %w: it is empty", name, ErrInvalid)
	}
	return f, nil
}

func parse(line string) (s Series, err error) {
	head, tail, found := strings.Cut(line, " :")
	words := strings.Fields(head)
	if !found || len(words) == 0 || !word(words[0]) {
		return s, fmt.Errorf("%.60q is no series: write a name, keys, a colon and buckets", line)
	}
	s = Series{Name: words[0], Keys: map[string]float64{}}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		v, err := dialect.Float(value, 64)
		if _, twice := s.Keys[key]; err != nil || twice || !word(key) || math.IsNaN(v) || math.IsInf(v, 0) {
			return s, fmt.Errorf("key %.40q of series %s: write a new name, = and a number", w, s.Name)
		}
		s.Keys[key] = v
	}
	last := int64(-1)
	for _, w := range strings.Fields(tail) {
		a, b, _ := strings.Cut(w, "*")
		ns, err1 := strconv.ParseInt(a, 10, 64)
		n, err2 := strconv.ParseInt(b, 10, 64)
		if err := cmp.Or(err1, err2); err != nil || ns <= last || ns > maxBucket || n < 1 || n > maxCounted ||
			floor(ns) != ns {
			return s, fmt.Errorf("bucket %.40q of series %s: write nanoseconds of a bucket, rising, * and a count", w,
				s.Name)
		}
		s.Times.buckets, last = append(s.Times.buckets, Bucket{NS: ns, N: n}), ns
		s.Times.n += n
	}
	return s, nil
}

func word(name string) bool {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
	}
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !ok(r) })
}
