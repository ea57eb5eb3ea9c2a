package rows

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// fold is a time at which the clocks of a zone go back by size.
type fold struct {
	zone *time.Location
	at   time.Time
	size time.Duration
}

// folds returns all folds of the years 2006 to 2026 in the zones of the machine, or in some zones
// if it has none. Zones with the same folds count once.
func folds(t *testing.T) (all []fold) {
	t.Helper()
	names := []string{
		"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Casey", "Asia/Chita",
		"Africa/Casablanca",
		"America/Caracas", "America/Sao_Paulo", "Asia/Tehran", "Pacific/Apia", "Europe/Dublin", "Antarctica/Troll",
	}
	_ = fs.WalkDir(os.DirFS("/usr/share/zoneinfo"), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && path[0] >= 'A' && path[0] <= 'Z' {
			names = append(names, path)
		}
		return nil
	})
	seen := map[string]bool{}
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			continue
		}
		var of []fold
		for at := time.Date(2006, 1, 1, 0, 0, 0, 0, zone); ; {
			_, next := at.ZoneBounds()
			if next.IsZero() || next.Year() > 2026 {
				break
			}
			_, before := at.Zone()
			if _, after := next.Zone(); after < before {
				of = append(of, fold{zone, next, time.Duration(before-after) * time.Second})
			}
			at = next
		}
		id := ""
		for _, f := range of {
			id += fmt.Sprint(f.at.Unix(), f.size, " ")
		}
		if !seen[id] {
			seen[id] = true
			all = append(all, of...)
		}
	}
	return all
}

// localRow is a row of an entity, its UTC time and its line of CSV.
type localRow struct {
	entity int
	at     time.Time
	line   string
}

// localRows returns rows of entities around a fold, in the order of their arrival. Rows of an
// entity are step apart, and vary by jitter to both sides.
func localRows(r *rand.Rand, f fold, entities, before, after int, step, jitter time.Duration) (all []localRow) {
	for e := range entities {
		begin := f.at.Add(-f.size - time.Duration(before)*step + time.Duration(r.Int64N(int64(step))))
		rows := before + after + int(2*f.size/step)
		var last time.Time
		for i := range rows {
			at := begin.Add(time.Duration(i) * step)
			if jitter > 0 {
				at = at.Add(time.Duration(r.Int64N(int64(2*jitter))) - jitter)
			}
			if at = at.Truncate(time.Millisecond); at.Before(last) {
				continue
			}
			last = at
			all = append(all, localRow{e, at, fmt.Sprintf("e%d,%s,%d\n", e,
				at.In(f.zone).Format("2006-01-02 15:04:05.000"), i%3)})
		}
	}
	// Entities arrive one after another, by up to a step.
	late := make([]time.Duration, entities)
	for e := range late {
		late[e] = time.Duration(r.Int64N(int64(step)))
	}
	slices.SortStableFunc(
		all,
		func(a, b localRow) int { return a.at.Add(late[a.entity]).Compare(b.at.Add(late[b.entity])) },
	)
	return all
}

// readLocal reads rows in documents, each by a new reader that continues with the stored state of
// the previous one. It returns the number of rejected rows.
func readLocal(t *testing.T, about string, spec ColumnSpec, rows []localRow, documents int) (rejected int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s, %d rows in %d documents", about, len(rows), documents)
		}
	}()
	state := ""
	for d := range documents {
		part := rows[len(rows)*d/documents : len(rows)*(d+1)/documents]
		var text strings.Builder
		text.WriteString("key,timestamp,value\n")
		for _, row := range part {
			text.WriteString(row.line)
		}
		spec.Local = NewLocalTimes(spec)
		spec.Local.Restore(state)
		in, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text.String())), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range part {
			row, reject, err := in.Next()
			switch {
			case err != nil:
				t.Fatal(err)
			case reject != nil && reject.Cause == CauseZone && strings.Contains(reject.Cure, "csv.zone"):
				rejected++
			case reject != nil:
				t.Fatalf("%s: row %q is rejected: %+v", spec.CSV.Zone, want.line, reject)
			case row.Time != want.at.UnixNano():
				t.Fatalf("%s: row %q has the time %v, want %v", spec.CSV.Zone, want.line,
					time.Unix(0, row.Time).UTC(), want.at.UTC())
			}
		}
		if _, _, err := in.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("behind the last row: %v", err)
		}
		state = spec.Local.State()
	}
	return rejected
}

func localSpec(f fold) ColumnSpec {
	return ColumnSpec{
		Timestamp: "timestamp", Features: []string{"value"}, Key: []string{"key"}, AnyOrder: true,
		CSV: &dialect.CSV{Zone: f.zone.String()},
	}
}

// TestLocalTimesOfAllZones: in every zone of the database and at every end of daylight saving time,
// the time of each row is its UTC time, or the row is rejected. Rows at equal intervals with some
// rows before the fold are never rejected.
func TestLocalTimesOfAllZones(t *testing.T) {
	t.Parallel()
	all := folds(t)
	steps := []time.Duration{
		time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 7 * time.Minute, 15 * time.Minute,
		20 * time.Minute,
		30 * time.Minute, 40 * time.Minute, time.Hour, 90 * time.Minute, 2 * time.Hour, 5 * time.Hour, 12 * time.Hour,
		24 * time.Hour,
	}
	r := rand.New(rand.NewPCG(11, 3))
	samples := testkit.Of(8*len(all), 400)
	for i := range samples {
		f := all[r.IntN(len(all))]
		if samples > len(all) {
			f = all[i%len(all)]
		}
		step := steps[r.IntN(len(steps))]
		entities := 1 + r.IntN(50)
		if step < time.Minute {
			entities = 1 + entities%2
		}
		jitter := []time.Duration{0, 20 * time.Millisecond, 2 * time.Second, step / 20, step / 4}[r.IntN(5)]
		jitter = min(jitter, step/4)
		before := 3 + r.IntN(6)
		if r.IntN(3) == 0 { // the file may begin anywhere
			before = r.IntN(8) - 4
		}
		spec := localSpec(f)
		spec.AnyOrder = r.IntN(2) == 0
		rows := localRows(r, f, entities, before, 5, step, jitter)
		about := fmt.Sprintf(
			"%v at %v, sample %d: %d entities, step %v, jitter %v, %d rows before",
			f.zone,
			f.at,
			i,
			entities,
			step,
			jitter,
			before,
		)
		rejected := readLocal(t, about, spec, rows, 1)
		if jitter <= 20*time.Millisecond && before >= 3 && rejected > 0 {
			t.Fatalf("%s: %d of %d rows are rejected", about, rejected, len(rows))
		}
		if again := readLocal(t, about, spec, rows, 1+r.IntN(40)); again != rejected {
			t.Fatalf("%s: %d rows are rejected, and %d with the state stored between documents", about, rejected, again)
		}
	}
}

// TestLocalDuplicates: in the repeated hour, hourly rows with one wall time are an hour apart, and
// a row that is repeated stays at its time.
func TestLocalDuplicates(t *testing.T) {
	for name, c := range map[string]struct{ rows, want string }{
		"hourly":                  {"0:00,1 1:00,2 2:00,3 2:00,4 3:00,5", "22 23 24 25 26"},
		"hourly, always equal":    {"0:00,7 1:00,7 2:00,7 2:00,7 3:00,7", "22 23 24 25 26"},
		"a repeated row":          {"0:00,1 1:00,2 2:00,3 2:00,3 2:00,4 3:00,5", "22 23 24 24 25 26"},
		"a repeated row before":   {"0:00,1 1:00,2 1:00,2 2:00,3 2:00,4 3:00,5", "22 23 23 24 25 26"},
		"a repeated row behind":   {"0:00,1 1:00,2 2:00,3 2:00,4 2:00,4 3:00,5", "22 23 24 25 25 26"},
		"all repeated, all equal": {"0:00,7 0:00,7 1:00,7 1:00,7 2:00,7 2:00,7", "22 22 23 23 24 24"},
		"half hours": {
			"1:00,1 1:30,1 2:00,1 2:00,1 2:30,1 2:00,1 2:30,1 3:00,1",
			"23 23.5 24 24 24.5 25 25.5 26",
		},
		"one row before":        {"1:00,1 2:00,2 2:00,3 3:00,4", "23 ? ? 26"},
		"begins in the hour":    {"2:00,1 2:30,2 2:00,3 2:30,4 3:00,5", "? ? 25 25.5 26"},
		"an outage before":      {"0:00,1 0:10,1 0:20,1 2:30,1 2:40,1 2:00,1", "22 22.167 22.333 ? ? 25"},
		"a short outage before": {"1:00,1 1:01,1 1:02,1 1:03,1 2:05,1 3:00,1", "23 23.017 23.033 23.05 ? 26"},
		"a very short outage": {
			"1:55,1 1:56,1 1:57,1 1:58,1 2:02,1 2:01,1",
			"23.917 23.933 23.95 23.967 24.033 25.017",
		},
		"every two hours":          {"21:00,1 23:00,2 1:00,3 2:00,4 4:00,5", "19 21 23 25 27"},
		"every two hours, earlier": {"20:00,1 22:00,2 0:00,3 2:00,4 3:00,5", "18 20 22 24 26"},
	} {
		spec := ColumnSpec{
			Timestamp: "timestamp", Features: []string{"value"}, CSV: &dialect.CSV{Zone: "Europe/Berlin"},
		}
		text := "timestamp,value\n"
		for _, row := range strings.Fields(c.rows) {
			day := "2026-10-25 "
			if len(row) > len("20:00,") && row[0] == '2' && row[1] != ':' {
				day = "2026-10-24 "
			}
			at, value, _ := strings.Cut(row, ",")
			text += fmt.Sprintf("%s%05s:00,%s\n", day, at, value)
		}
		text = strings.ReplaceAll(text, "25  ", "25 0") // %05s pads with spaces
		in, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text)), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			row, reject, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			switch {
			case err != nil:
				t.Fatal(err)
			case reject != nil && reject.Cause == CauseZone:
				got = append(got, "?")
			case reject != nil:
				got = append(got, reject.Reason)
			default:
				since := time.Unix(0, row.Time).Sub(time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)).Hours()
				got = append(got, strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", since), "0"), "."))
			}
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s: hours %s, want %s\n%s", name, all, c.want, text)
		}
	}
}

// TestLocalTimesBounds: entities beyond the number of the specification take no memory, and
// entities of earlier years make way.
func TestLocalTimesBounds(t *testing.T) {
	spec := ColumnSpec{
		Timestamp: "t", Features: []string{"v"}, Key: []string{"k"}, MaxEntities: 100,
		CSV: &dialect.CSV{Zone: "Europe/Berlin"},
	}
	l := NewLocalTimes(spec)
	for year := 2020; year < 2026; year++ {
		at := time.Date(year, 10, 24, 0, 0, 0, 0, time.UTC).UnixNano()
		for i := range 1000 {
			l.Choose(fmt.Sprint(year, "-", i), at, at, []float64{1})
		}
		if len(l.known) != 100 {
			t.Fatalf("%d: %d entities are known, want 100", year, len(l.known))
		}
	}
	if again := NewLocalTimes(spec); l.State() == "" {
		t.Error("100 entities have no stored state")
	} else if again.Restore(l.State()); again.State() != l.State() || again.size != l.size {
		t.Error("the restored state differs")
	}
	summer := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := range 100 {
		l.Choose(fmt.Sprint("2025-", i), summer, summer, []float64{1})
	}
	if len(l.known) != 0 || l.State() != "" || l.size != 0 {
		t.Errorf("%d entities are known in summer, %d bytes", len(l.known), l.size)
	}
	for _, damaged := range []string{"x", "!", "AAAA", strings.Repeat("A", 400), strings.Repeat("/", 4000)} {
		l.Restore(damaged)
	}
}
