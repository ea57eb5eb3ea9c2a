package rows

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// Clock parses timestamps. The zero value parses the default forms. One goroutine uses it. It tries
// the form of the last timestamp first, since most files have one form. A copy of a clock continues
// from the same state.
type Clock struct {
	// form is the index of the form that has matched last.
	form  int
	names []string       // of forms
	forms []dialect.Form // instead of the default ones
	zone  *time.Location // nil: the default forms in UTC
	// dialect reports that a form can be named, and number that a number was read.
	dialect, number bool
}

// NewClock returns a clock for the timestamps of a dialect, which may be nil. A mistake in its
// forms or its zone is an error of class jobs.CodeInvalid.
func NewClock(d *dialect.CSV) (Clock, error) {
	if d.IsZero() || len(d.Time) == 0 && d.Zone == "" {
		return Clock{}, nil
	}
	forms, zone, err := d.Clock()
	if err != nil {
		return Clock{}, jobs.Errorf(jobs.CodeInvalid, "%v", err)
	}
	if len(forms) > 0 {
		return Clock{names: d.Time, forms: forms, zone: zone}, nil
	}
	for _, layout := range defaultForms {
		f, err := dialect.ParseForm(layout)
		if err != nil {
			return Clock{}, fmt.Errorf("default form %s: %w", layout, err)
		}
		forms = append(forms, f)
	}
	return Clock{forms: forms, zone: zone}, nil
}

// defaultForms are the forms of timestamps that a source may have without a dialect. Where two of
// them match a text, the earlier one counts.
var defaultForms = []string{
	"2006-01-02 15:04:05", // with or without a fraction, as Go accepts one everywhere
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05Z07",  // COPY of PostgreSQL
	"2006-01-02 15:04:05 UTC", // BigQuery, Trino
	"2006-01-02 15:04",
	"2006-01-02",
	"2006/01/02 15:04:05",
	"01/02/2006 15:04:05",
}

// Parse returns unix nanoseconds. A form without a zone is taken as UTC, or as in the zone of the
// dialect. A bare number is a unix time in seconds, or by its size in milliseconds, microseconds or
// nanoseconds. A time outside the years 1678 to 2261 does not fit into nanoseconds and is an error.
// Of the two times of an hour that comes twice it returns the first.
func (c *Clock) Parse(text string) (int64, error) {
	first, _, err := c.Read(text)
	return first, err
}

// Read is Parse that returns both times of a timestamp in an hour that comes twice, as at the end
// of daylight saving time. LocalTimes chooses between them. They are equal for every other
// timestamp.
func (c *Clock) Read(text string) (first, second int64, err error) {
	// Only a dialect with forms or a zone sets it.
	if c.zone != nil {
		return c.parse(text)
	}
	// Every form has a separator, so a text of digits is a number. Most of the cost of a form that
	// does not fit is its error.
	if strings.Trim(text, "0123456789") == "" {
		return c.unix(text)
	}
	for i := range defaultForms {
		at := (c.form + i) % len(defaultForms)
		t, err := time.Parse(defaultForms[at], text)
		if err != nil {
			continue
		}
		c.form = at
		if y := t.Year(); y < 1678 || y > 2261 {
			return 0, 0, fmt.Errorf("its timestamp %s is outside the years 1678 to 2261", access.Quote(text))
		}
		return t.UnixNano(), t.UnixNano(), nil
	}
	return c.unix(text)
}

// unix is Read of a number. A source whose first number is a day of a spreadsheet, or a date
// without separators, is refused: as a unix time it would be in the seventies.
func (c *Clock) unix(text string) (first, second int64, err error) {
	n, ok := unixTime(text)
	if form := dialect.Compact(text); form != "" && c.dialect && !c.number {
		return 0, 0, fmt.Errorf("its timestamp %s is a date without separators: set csv.time: %q, or csv.time: "+
			"unix_s, unix_ms or unix_us for a time since 1970", access.Quote(text), form)
	}
	switch {
	case !ok:
		return 0, 0, fmt.Errorf(
			"its timestamp %s is not a time: use 2006-01-02 15:04:05, RFC 3339, or unix seconds", access.Quote(text),
		)
	case c.dialect && !c.number && dialect.IsDays(text):
		return 0, 0, fmt.Errorf(
			"its timestamp %s is a number of days, as spreadsheets write times: set csv.time: excel, or "+
				"csv.time: unix_s for seconds since 1970",
			access.Quote(text),
		)
	}
	c.number = true
	return n, n, nil
}

// early is the start of 1990. A number before it is seldom meant as seconds since 1970.
var early = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// Early reports whether the timestamp of a row is a number that was taken for a time before 1990.
func Early(r *Row) bool {
	if r.Time >= early {
		return false
	}
	_, err := dialect.Float(r.Timestamp, 64)
	return err == nil
}

// parse is Read for a clock with the forms or the zone of a dialect. A text that cannot be a time
// in the zone, such as an hour that daylight saving time skips, is a separate error.
func (c *Clock) parse(text string) (first, second int64, err error) {
	for i := range c.forms {
		at := (c.form + i) % len(c.forms)
		first, second, err := c.forms[at].Parse(text, c.zone)
		switch {
		case err == nil:
			c.form = at
			return first, second, nil
		case dialect.NoTime(err):
			return 0, 0, fmt.Errorf("its timestamp %s is not a time: %w", access.Quote(text), err)
		}
	}
	if c.names != nil {
		return 0, 0, fmt.Errorf(
			"its timestamp %s does not have the form of csv.time, %s",
			access.Quote(text),
			strings.Join(c.names, " or "),
		)
	}
	return c.unix(text)
}

// unixTime parses a bare number as a unix time. The unit follows from its size. It returns
// nanoseconds, and keeps all digits of a whole number.
func unixTime(text string) (int64, bool) {
	if v, err := dialect.Float(text, 64); err == nil && !math.IsNaN(v) {
		// 1e11 seconds are the year 5138, and 1e11 milliseconds are 1973, so the unit is clear.
		for _, scale := range []float64{1e9, 1e6, 1e3, 1} {
			if math.Abs(v) < 1e11*1e9/scale && math.Abs(v)*scale < math.MaxInt64 {
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					// A float64 would lose digits of nanoseconds.
					return n * int64(scale), true
				}
				return int64(v * scale), true
			}
		}
	}
	return 0, false
}

// times is Read that returns what is wrong with a timestamp.
func (c *Clock) times(text string) (first, second int64, problem string) {
	if len(text) > maxTimestamp {
		return 0, 0, fmt.Sprintf("its timestamp is longer than %d bytes", maxTimestamp)
	}
	first, second, err := c.Read(text)
	if err != nil {
		return 0, 0, err.Error()
	}
	return first, second, ""
}

// stamp sets the time of a row from its timestamp, in a format without a dialect, or returns what
// is wrong with the timestamp.
func (c *Clock) stamp(r *Row) (problem string) {
	r.Time, _, problem = c.times(r.Timestamp)
	return problem
}

// Text returns the text of a timestamp for outputs. It is the text as written if the clock parses
// the default forms in UTC. Readers of the output would misread other forms, so they become RFC
// 3339 in UTC. The parameter at is in unix nanoseconds.
func (c *Clock) Text(at int64, written string) string {
	if c.zone == nil {
		return written
	}
	return time.Unix(0, at).UTC().Format(time.RFC3339Nano)
}
