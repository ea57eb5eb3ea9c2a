package cpuagents

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Clock reads timestamps. The zero value is ready; one goroutine uses it. Files stick to one form, so the last form that fitted is tried first.
type Clock struct{ form int }

var forms = []string{
	"2006-01-02 15:04:05", // with or without a fraction, as Go accepts one everywhere
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04",
	"2006-01-02",
	"2006/01/02 15:04:05",
	"01/02/2006 15:04:05",
}

// Parse returns unix nanoseconds. A form without a zone is taken as UTC. A bare number is a unix time in seconds, or by its
// size in milliseconds, microseconds or nanoseconds.
func (c *Clock) Parse(text string) (int64, error) {
	for i := range forms {
		at := (c.form + i) % len(forms)
		t, err := time.Parse(forms[at], text)
		if err != nil {
			continue
		}
		c.form = at
		if y := t.Year(); y < 1678 || y > 2261 {
			return 0, fmt.Errorf("its timestamp %s is outside the years 1678 to 2261", shorten(text))
		}
		return t.UnixNano(), nil
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
		// 1e11 seconds are the year 5138, 1e11 milliseconds are 1973: between two units there is no doubt.
		for _, scale := range []float64{1e9, 1e6, 1e3, 1} {
			if math.Abs(v) < 1e11*1e9/scale && math.Abs(v)*scale < math.MaxInt64 {
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					return n * int64(scale), nil
				}
				return int64(v * scale), nil
			}
		}
	}
	return 0, fmt.Errorf("its timestamp %s is not a time: use 2006-01-02 15:04:05, RFC 3339, or unix seconds", shorten(text))
}

// stamp reads the time of a row from its timestamp, or says what is wrong with it.
func (c *Clock) stamp(r *row) (problem string) {
	if len(r.timestamp) > maxTimestamp {
		return fmt.Sprintf("its timestamp is longer than %d bytes", maxTimestamp)
	}
	var err error
	if r.time, err = c.Parse(r.timestamp); err != nil {
		return err.Error()
	}
	return ""
}
