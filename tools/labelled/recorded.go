package labelled

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// The recording that tools/telemetry/record made of real processes, and its incidents.
var (
	//go:embed testdata/recorded.csv.gz
	recordedRows []byte
	//go:embed testdata/recorded.json
	recordedIncidents []byte
)

// Recorded returns the series that were recorded of real processes, one a column, at a step of a
// second or more: values are the means of the rows of a step. A window begins with the step in
// which an incident begins.
func Recorded(step time.Duration) ([]Series, error) {
	if step < time.Second {
		return nil, fmt.Errorf("%w: %v, want a second at least", ErrStep, step)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(recordedRows))
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	rows, err := csv.NewReader(unzipped).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	var labels []struct{ Series, What, Begin, End string }
	if err := json.Unmarshal(recordedIncidents, &labels); err != nil {
		return nil, fmt.Errorf("read the incidents of the recording: %w", err)
	}
	var all []Series
	for column, name := range rows[0][1:] {
		s := Series{Stream: quality.Stream{Name: name}, Family: "recorded", Incident: "recorded"}
		count := 0.0
		for _, row := range rows[1:] {
			at, err := parseTime(row[0])
			if err != nil {
				return nil, err
			}
			v, err := dialect.Float(row[column+1], 64)
			if err != nil {
				return nil, fmt.Errorf("read the recording: %w", err)
			}
			at -= at % int64(step)
			if n := len(s.Times); n > 0 && s.Times[n-1] == at {
				count++
				s.Values[n-1] += (v - s.Values[n-1]) / count
				continue
			}
			s.Times, s.Values, count = append(s.Times, at), append(s.Values, v), 1
		}
		for i, v := range s.Values {
			s.Values[i] = math.Round(v*10000) / 10000
		}
		for _, l := range labels {
			if l.Series != name {
				continue
			}
			w, err := window(s.Times, l.Begin, l.End)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.What, err)
			}
			s.Windows = append(s.Windows, w)
		}
		all = append(all, s)
	}
	return all, nil
}

func parseTime(text string) (int64, error) {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		return 0, fmt.Errorf("read the recording: %w", err)
	}
	return t.UnixNano(), nil
}

// window returns the rows between two timestamps. The first row is the last one that is not after
// begin.
func window(times []int64, begin, end string) (quality.Window, error) {
	from, err := parseTime(begin)
	if err != nil {
		return quality.Window{}, err
	}
	to, err := parseTime(end)
	if err != nil {
		return quality.Window{}, err
	}
	var w quality.Window
	for row, t := range times {
		if t <= from {
			w.First = row
		}
		if t <= to {
			w.Last = row
		}
	}
	return w, nil
}
