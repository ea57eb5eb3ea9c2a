package programs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// maxRejects bounds the rejected rows that an answer describes. Further ones are counted.
const maxRejects = 100

// maxText bounds a timestamp as it is written, in bytes.
const maxText = 256

// Reject is a row that was not used.
type Reject struct {
	// Row is the number of the row in the request, from 1, a header not counted.
	Row    uint64 `json:"row"`
	Reason string `json:"reason"`
}

// FedRows describes the arrays of an answer to rows. The arrays have an element for each row that
// was not rejected, in the order of the request:
//
//	row       u8    its number in the request, from 1
//	score     f4    how unusual it is, from 0 to 1
//	decision  u4    index of the candidate, or 4294967295 for none
//	counts    u4    the votes for each candidate, a row of Candidates elements
//	leader    u8    the id of the agent that leads
//	round     u8    of the entity, from 1
//	dropped   u1    0: used; 1: it came late; 2: it came twice
//
// With explain: true in the specification there are also, with a row of Features elements in the
// first three, which are NaN where too few rows came before:
//
//	expected  f8    the expected values
//	low       f8    and the edges of what is usual
//	high      f8
//	fault     u1    index of the feature that surprises most, or 255 for none
//	side      u1    0: neither; 1: above what was expected; 2: below
//	kind      u1    index of Kinds
//	before    u4    earlier incidents of the entity with the same feature and kind
type FedRows struct {
	Swarm      string   `json:"swarm"`
	Rows       int      `json:"rows"` // of the arrays
	Candidates []string `json:"candidates"`
	Features   []string `json:"features"`
	Rejected   int      `json:"rejected"`
	Rejects    []Reject `json:"rejects"` // the first ones
	// Kinds are the names of the kinds of surprises; absent without explanations.
	Kinds []string `json:"kinds,omitempty"`
}

func (d *FedRows) reject(row uint64, reason string) {
	d.Rejected++
	if len(d.Rejects) < maxRejects {
		d.Rejects = append(d.Rejects, Reject{row, reason})
	}
}

// rows feeds the rows of a request and answers with their decisions. The body is CSV or NDJSON with
// the columns of the specification, or arrays. The answer is arrays, or NDJSON for a request that
// accepts it: as exoswarm run writes it, but in the order of the rows.
func (s *Server) rows(ctx context.Context, w http.ResponseWriter, r *request) error {
	m := httpapi.Media(r.Request.Request)
	if m != MediaArrays && m != MediaNDJSON && m != MediaCSV {
		return mediaError(m, fmt.Sprintf("rows are %s, %s or %s", MediaArrays, MediaNDJSON, MediaCSV))
	}
	text := strings.Contains(r.Header.Get("Accept"), MediaNDJSON)
	f, done, err := s.feed(ctx, r.PathValue("name"))
	if err != nil {
		return err
	}
	defer done()
	about := &FedRows{
		Swarm: f.swarm.ID(), Candidates: f.spec.Vote.Candidates, Features: f.spec.Features, Rejects: []Reject{},
	}
	var from source
	if m == MediaArrays {
		from, err = arraysOf(f, r.body, about)
	} else {
		from, err = textOf(f, r.body, m, about)
	}
	if err != nil {
		return err
	}
	var to decisions = &arrays{}
	if text {
		to = newLines(f)
	}
	sent, err := f.run(ctx, from, to.take)
	if err == nil {
		err = f.storeSummaries(ctx)
	}
	if err != nil {
		if errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		return fmt.Errorf("rows from number %d on (those before took effect): %w", sent+1, err)
	}
	if text {
		w.Header().Set("Content-Type", MediaNDJSON)
	} else {
		w.Header().Set("Content-Type", MediaArrays)
	}
	w.Header().Set("X-Exoswarm-Rejected", strconv.Itoa(about.Rejected))
	return to.write(w, about)
}

// arraySource is rows as arrays. time has the nanoseconds of each row since 1970. x0, x1 and so on
// are the features in the order of the specification. With a key, the array key has indices into
// the document keys, whose elements are the values of each entity.
type arraySource struct {
	f        *feeder
	about    *FedRows
	times    []int64
	features [][]float64
	codes    []uint32
	groups   []int // by code: -1: not looked up yet
	keys     []string
	problems []string // by code
	at       int
	text     []byte
	row      rows.Row // the last one
}

func arraysOf(f *feeder, body []byte, about *FedRows) (source, error) {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInput, "rows: %s", fmt.Sprintf(format, args...))
	}
	a, err := numpy.ReadArchive(body, maxUnpacked)
	if err != nil {
		return nil, bad("%v", err)
	}
	s := &arraySource{f: f, about: about}
	if s.times, _, err = numpy.Values[int64](a, "time"); err != nil {
		return nil, bad("%v: time is the nanoseconds since 1970 of each row", err)
	}
	n := len(s.times)
	for i, name := range f.columns.Features {
		x, width, err := numpy.Values[float64](a, fmt.Sprint("x", i))
		if err != nil {
			return nil, bad("%v: x%d is the feature %s", err, i, name)
		}
		if len(x) != n || width != 1 {
			return nil, bad("array x%d has %d elements, and time has %d", i, len(x), n)
		}
		s.features = append(s.features, x)
	}
	if extra := fmt.Sprint("x", len(s.features)); a.Has(extra) {
		return nil, bad("there is an array %s, and the specification has %d features: %s", extra, len(s.features),
			strings.Join(f.columns.Features, ", "))
	}
	if len(f.columns.Key) == 0 {
		if a.Has("key") {
			return nil, bad("there is an array key, and the specification has no key: add key: COLUMN to it")
		}
		s.codes, s.groups, s.problems = make([]uint32, n), []int{0}, []string{""}
		return s, nil
	}
	if s.codes, _, err = numpy.Values[uint32](a, "key"); err != nil {
		return nil, bad("%v: key is the entity of each row, as an index of keys.json", err)
	}
	if len(s.codes) != n {
		return nil, bad("array key has %d elements, and time has %d", len(s.codes), n)
	}
	var keys [][]string
	if err := a.JSON("keys", &keys); err != nil {
		return nil, bad("%v: it is a list with a list of the values of the key of each entity", err)
	}
	if n > 0 {
		if most := slices.Max(s.codes); int(most) >= len(keys) {
			return nil, bad("array key has the index %d, and keys.json has %d elements", most, len(keys))
		}
	}
	for i, values := range keys {
		if len(values) != len(f.columns.Key) {
			return nil, bad("keys.json: element %d has %d values, and the key is %s", i, len(values),
				strings.Join(f.columns.Key, ", "))
		}
		key := rows.JoinKey(values)
		s.keys, s.groups = append(s.keys, key), append(s.groups, -1)
		s.problems = append(s.problems, keyProblem(f.columns.Key, values, key))
	}
	return s, nil
}

// keyProblem returns why the values of a key cannot be used; empty if they can.
func keyProblem(columns, values []string, key string) string {
	for i, v := range values {
		switch {
		case v == "":
			return fmt.Sprintf("key column %q is empty", columns[i])
		case strings.Contains(v, "\x00"):
			return fmt.Sprintf("key column %q has a NUL character", columns[i])
		case !utf8.ValidString(v):
			return fmt.Sprintf("key column %q is not valid UTF-8", columns[i])
		}
	}
	if len(key) > rows.MaxKey {
		return fmt.Sprintf("the key has %d bytes: use at most %d", len(key), rows.MaxKey)
	}
	return ""
}

func (s *arraySource) next(b *feed.Batch) error {
	read := time.Now()
	for s.at < len(s.times) {
		i := s.at
		s.at++
		number := uint64(i + 1)
		problem := ""
		for k, x := range s.features {
			problem = cmp.Or(problem, rows.CheckFeature(s.f.columns.Features[k], x[i]))
		}
		code := s.codes[i]
		problem = cmp.Or(problem, s.problems[code])
		if problem == "" && s.groups[code] < 0 {
			g, ok, err := s.f.group(s.keys[code])
			if err != nil {
				return err
			}
			if ok {
				s.groups[code] = g
			} else {
				s.problems[code] = s.f.columns.TooMany(s.keys[code])
				problem = s.problems[code]
			}
		}
		if problem != "" {
			s.about.reject(number, problem)
			continue
		}
		s.text = time.Unix(0, s.times[i]).UTC().AppendFormat(s.text[:0], time.RFC3339Nano)
		s.row.Number, s.row.Time, s.row.Timestamp = number, s.times[i], string(s.text)
		s.row.Features, s.row.Values = s.row.Features[:0], s.row.Values[:0]
		for _, x := range s.features {
			s.row.Features, s.row.Values = append(s.row.Features, float32(x[i])), append(s.row.Values, x[i])
		}
		if b.Add(s.groups[code], &s.row, read) {
			return nil
		}
	}
	return errEnd
}

type textSource struct {
	f      *feeder
	about  *FedRows
	reader rows.Reader
}

func textOf(f *feeder, body []byte, media string, about *FedRows) (source, error) {
	r, err := rows.OpenText("the body", io.NopCloser(bytes.NewReader(body)), rows.FormatOfMedia(media), f.columns)
	if err != nil {
		return nil, err
	}
	return &textSource{f, about, r}, nil
}

func (s *textSource) next(b *feed.Batch) error {
	read := time.Now()
	for {
		row, rejected, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(errEnd, s.reader.Close())
		}
		if err != nil {
			return err
		}
		if rejected == nil && len(row.Timestamp) > maxText {
			rejected = &rows.Reject{Row: row.Number, Reason: fmt.Sprintf("its timestamp has %d bytes: use at most %d",
				len(row.Timestamp), maxText)}
		}
		group := 0
		if rejected == nil {
			var ok bool
			if group, ok, err = s.f.group(row.Key); err != nil {
				return err
			}
			if !ok {
				rejected = &rows.Reject{Row: row.Number, Reason: s.f.columns.TooMany(row.Key)}
			}
		}
		if rejected != nil {
			s.about.reject(rejected.Row, rejected.Reason)
			continue
		}
		if b.Add(group, &row, read) {
			return nil
		}
	}
}

// decisions collects the decisions of a request.
type decisions interface {
	take(d *batch.Decisions) error
	write(w io.Writer, about *FedRows) error
}

type lines struct {
	encoder rows.Encoder
	text    []byte
	most    uint32 // candidates
}

func newLines(f *feeder) *lines {
	layout := f.layout()
	return &lines{encoder: rows.NewNDJSONEncoder(layout), most: uint32(len(layout.Candidates))}
}

func (l *lines) take(d *batch.Decisions) error {
	for i := range d.Len() {
		if c := d.Decision[i]; c != batch.NoDecision && c >= l.most {
			return jobs.Errorf(jobs.CodeInternal, "candidate %d of %d", c, l.most)
		}
		l.text = l.encoder.Spool(l.text, d, i)
	}
	return nil
}

func (l *lines) write(w io.Writer, _ *FedRows) error {
	_, _ = w.Write(l.text) // the client is gone
	return nil
}

// arrays are decisions as arrays.
type arrays struct {
	all batch.Decisions
	why *batch.Explained // nil without explanations
}

func (a *arrays) take(d *batch.Decisions) error {
	a.all.Row = append(a.all.Row, d.Row...)
	a.all.Score = append(a.all.Score, d.Score...)
	a.all.Decision = append(a.all.Decision, d.Decision...)
	a.all.Counts = append(a.all.Counts, d.Counts...)
	a.all.Leader = append(a.all.Leader, d.Leader...)
	a.all.Round = append(a.all.Round, d.Round...)
	dropped := d.Dropped
	if dropped == nil {
		dropped = make([]uint8, d.Len())
	}
	a.all.Dropped = append(a.all.Dropped, dropped...)
	if why := d.Explained; why != nil {
		if a.why == nil {
			a.why = &batch.Explained{Features: why.Features}
		}
		a.why.Expected = append(a.why.Expected, why.Expected...)
		a.why.Low = append(a.why.Low, why.Low...)
		a.why.High = append(a.why.High, why.High...)
		a.why.Fault = append(a.why.Fault, why.Fault...)
		a.why.Side = append(a.why.Side, why.Side...)
		a.why.Kind = append(a.why.Kind, why.Kind...)
		a.why.Before = append(a.why.Before, why.Before...)
	}
	return nil
}

func (a *arrays) write(w io.Writer, about *FedRows) error {
	about.Rows = len(a.all.Row)
	if a.why != nil {
		for kind := range batch.Surprises {
			about.Kinds = append(about.Kinds, kind.String())
		}
	}
	z := numpy.NewArchive(w)
	z.JSON("about", about)
	z.Array("row", a.all.Row, 0)
	z.Array("score", a.all.Score, 0)
	z.Array("decision", a.all.Decision, 0)
	z.Array("counts", a.all.Counts, len(about.Candidates))
	z.Array("leader", a.all.Leader, 0)
	z.Array("round", a.all.Round, 0)
	z.Array("dropped", a.all.Dropped, 0)
	if why := a.why; why != nil {
		z.Array("expected", why.Expected, why.Features)
		z.Array("low", why.Low, why.Features)
		z.Array("high", why.High, why.Features)
		fault, side, kind := make([]uint8, about.Rows), make([]uint8, about.Rows), make([]uint8, about.Rows)
		for i := range fault {
			fault[i], kind[i] = uint8(why.Fault[i]), uint8(why.Kind[i])
			switch why.Side[i] {
			case 1:
				side[i] = 1
			case -1:
				side[i] = 2
			}
		}
		z.Array("fault", fault, 0)
		z.Array("side", side, 0)
		z.Array("kind", kind, 0)
		z.Array("before", why.Before, 0)
	}
	_ = z.Close() // the client is gone
	return nil
}
