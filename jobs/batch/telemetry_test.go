package batch

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// series is a recorded series.
type series struct {
	at    []time.Time
	text  []string
	value []float64
}

// recorded reads all series of a folder of CSV files with the columns timestamp and value.
func recorded(tb testing.TB, folder string) (all []series) {
	tb.Helper()
	var paths []string
	err := filepath.Walk(folder, func(path string, _ os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(path, ".csv") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no series in %s: %v", folder, err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		records, err := csv.NewReader(f).ReadAll()
		_ = f.Close()
		if err != nil {
			tb.Fatal(err)
		}
		var s series
		for _, r := range records[1:] {
			at, err := time.Parse("2006-01-02 15:04:05", strings.TrimSuffix(r[0], ".000000"))
			if err != nil {
				tb.Fatal(err)
			}
			v, err := strconv.ParseFloat(r[1], 64)
			if err != nil {
				tb.Fatal(err)
			}
			s.at, s.text, s.value = append(s.at, at), append(s.text, r[0]), append(s.value, v)
		}
		all = append(all, s)
	}
	return all
}

const telemetryFolder = "../../examples/telemetry/data"

// add appends row i of a series, which was read at a time.
func (o *Observations) add(group int, s *series, i int, read int64) {
	o.Group, o.Row = append(o.Group, uint32(group)), append(o.Row, uint64(i+1))
	o.Time, o.Read = append(o.Time, s.at[i].UnixNano()), append(o.Read, read)
	o.Timestamp, o.Value = append(o.Timestamp, s.text[i]), append(o.Value, s.value[i])
	o.Features, o.Width = append(o.Features, float32(s.value[i])), 1
}

// inRuns returns the first rows of series as the batcher of a run reads them: some rows of each
// series in turn, each with its own time of reading.
func inRuns(all []series, rows, run int) *Observations {
	o, r := &Observations{}, rand.New(rand.NewPCG(1, 2))
	read := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixNano()
	for first := 0; o.Len() < rows; first += run {
		before := o.Len()
		for g := range all {
			for i := first; i < min(first+run, len(all[g].value)) && o.Len() < rows; i++ {
				read += 300 + int64(r.ExpFloat64()*200)
				o.add(g, &all[g], i, read)
			}
		}
		if o.Len() == before {
			break
		}
	}
	return o
}

// inTurn returns the first rows of series in the order of a file that is sorted by time: one row of
// each series in turn, all read at one time.
func inTurn(all []series, rows int) *Observations {
	o := &Observations{}
	read := time.Date(2026, 3, 2, 0, 0, 0, 5, time.UTC).UnixNano()
	for i := 0; o.Len() < rows; i++ {
		before := o.Len()
		for g := range all {
			if i < len(all[g].value) && o.Len() < rows {
				o.add(g, &all[g], i, read)
				o.Row[o.Len()-1] = uint64(o.Len())
			}
		}
		if o.Len() == before {
			break
		}
	}
	return o
}

func telemetryRuns(tb testing.TB, rows, run int) *Observations {
	return inRuns(recorded(tb, telemetryFolder), rows, run)
}

func telemetryInterleaved(tb testing.TB, rows int) *Observations {
	return inTurn(recorded(tb, telemetryFolder), rows)
}

// fleet returns generated rows of a fleet of sensors that report at any time: random groups of
// many, times in milliseconds, and two decimal places. With full, values have all their bits.
func fleet(groups, rows int, full bool) *Observations {
	o, r := &Observations{Width: 1}, rand.New(rand.NewPCG(3, 4))
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	level := make([]float64, groups)
	for i := range level {
		level[i] = 100 * r.NormFloat64()
	}
	read := at.UnixNano()
	for i := range rows {
		g := r.IntN(groups)
		at = at.Add(time.Duration(r.IntN(5)) * time.Millisecond)
		level[g] += r.NormFloat64()
		v := level[g]
		if !full {
			v = math.Round(v*100) / 100
		}
		read += 300 + int64(r.ExpFloat64()*200)
		o.Group, o.Row, o.Read = append(o.Group, uint32(g)), append(o.Row, uint64(i+1)), append(o.Read, read)
		o.Time = append(o.Time, at.UnixNano())
		o.Timestamp = append(o.Timestamp, at.Format("2006-01-02T15:04:05.000Z"))
		o.Value, o.Features = append(o.Value, v), append(o.Features, float32(v))
	}
	return o
}

// currents returns generated observations of single agents of many, which are sorted or not.
func currents(agents uint32, rows int, sorted bool) *AgentObservations {
	o, r := &AgentObservations{Width: 1}, rand.New(rand.NewPCG(5, 6))
	for range rows {
		o.Agent = append(o.Agent, r.Uint32N(agents))
		o.Features = append(o.Features, float32(math.Round(r.NormFloat64()*1000)/1000))
	}
	if sorted {
		slices.Sort(o.Agent)
	}
	return o
}
