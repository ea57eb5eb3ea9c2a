package rows

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// TestOrderCures: a row that goes back has the cure of its cause.
func TestOrderCures(t *testing.T) {
	local := func(zone string, from time.Time, step time.Duration, n int) (all []string) {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			all = append(all, from.Add(time.Duration(i)*step).In(in).Format("2006-01-02 15:04:05"))
		}
		return all
	}
	berlin := local("Europe/Berlin", time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC), 15*time.Minute, 20)
	newYork := local("America/New_York", time.Date(2026, 11, 1, 4, 0, 0, 0, time.UTC), time.Minute, 200)
	falling := make([]string, 0, 30)
	for i := range 30 {
		falling = append(falling, fmt.Sprintf("2026-03-01 10:%02d:00", 59-i))
	}
	late := append(local("UTC", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Minute, 30), "2026-03-01 00:10:00")
	var mixed []string
	for i := range 10 {
		mixed = append(
			mixed,
			fmt.Sprintf("2026-03-01 10:%02d:00", 2*i),
			fmt.Sprintf("2026-03-01T10:%02d:00+01:00", 2*i+1),
		)
	}
	for name, c := range map[string]struct {
		times []string
		csv   dialect.CSV
		bad   uint64
		want  string
	}{
		"Berlin": {
			berlin, dialect.CSV{}, 3, "the clocks of Europe/Berlin go back then: name the zone of the timestamps " +
				"with csv.zone, as in --csv zone=Europe/Berlin",
		},
		"New York":           {newYork, dialect.CSV{}, 59, "--csv zone=America/New_York"},
		"Berlin, in a zone":  {berlin, dialect.CSV{Zone: "Europe/Berlin"}, 0, ""},
		"Berlin, wrong zone": {berlin, dialect.CSV{Zone: "Asia/Tokyo"}, 3, "sort the file by time"},
		"falling": {
			falling, dialect.CSV{}, 29, "its source is in falling order, newest first: sort it by time",
		},
		"one late row":  {late, dialect.CSV{}, 1, "sort the file by time"},
		"mixed offsets": {mixed, dialect.CSV{}, 10, "timestamps with an offset from UTC and without one are mixed"},
	} {
		spec := withDialect(c.csv)
		in, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader("timestamp,value\n"+
			strings.Join(c.times, ",1\n")+",1\n")), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		var tally Tally
		for {
			_, reject, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if reject != nil {
				tally.Reject(reject)
			}
		}
		most := tally.Most()
		if tally.Rejected != c.bad || !strings.Contains(most.Cure, c.want) || (c.want == "") != (most.Cure == "") {
			t.Errorf("%s: %d rows are rejected, %+v; want %d with %q", name, tally.Rejected, most, c.bad, c.want)
		}
	}
}

// TestTally: reasons that differ in the values of rows are one, and columns tell them apart.
func TestTally(t *testing.T) {
	var tally Tally
	for i := range 100 {
		tally.Reject(&Reject{Reason: fmt.Sprintf(`column "a": "x%d\"" is not a number`, i)})
		if i%2 == 0 {
			tally.Reject(&Reject{Reason: `column "b": "x" is not a number`})
		}
		tally.Reject(&Reject{Reason: strings.Repeat("x", i)}) // more reasons than are told apart
	}
	tally.Rows += 750
	if most := tally.Most(); most.Rows != 100 || most.Reason != `column "a": "x0\"" is not a number` {
		t.Errorf("the most frequent reason is %+v", most)
	}
	if len(tally.reasons) != maxReasons || tally.Rejected != 250 || !tally.Above(0.2) || tally.Above(0.25) {
		t.Errorf("%d reasons, %d rejected of %d", len(tally.reasons), tally.Rejected, tally.Rows)
	}
	if new(Tally).Above(0) || TooManyRejects("a", &tally, 1, Reason{}) != nil {
		t.Error("no rows are too many rejects")
	}
}

// TestNumbersOfPeople: numbers that only a programming language knows are rejected, in features and
// in timestamps.
func TestNumbersOfPeople(t *testing.T) {
	values, rejects := readAll(t, "timestamp,value\n1,1_000\n2,0x1p4\n3,0x1F\n4,1000\n1_5,1\n6,007\n0x7,1\n", valueSpec)
	if fmt.Sprint(values) != "[1000 7]" || len(rejects) != 5 {
		t.Errorf("values %v, rejects %q", values, rejects)
	}
	spec := withDialect(dialect.CSV{Time: dialect.Forms{"unix_s"}, Decimal: ",", Delimiter: ";"})
	values, rejects = readAll(t, "timestamp;value\n1_0;1\n2;1_0,5\n3;1,5\n", spec)
	if fmt.Sprint(values) != "[1.5]" || len(rejects) != 2 {
		t.Errorf("values %v, rejects %q", values, rejects)
	}
	in, err := OpenText("a", io.NopCloser(strings.NewReader(`{"timestamp":"1_0","value":1}`+"\n"+
		`{"timestamp":"10","value":1}`)), "ndjson", valueSpec)
	if err != nil {
		t.Fatal(err)
	}
	if _, reject, err := in.Next(); err != nil || reject == nil {
		t.Errorf("a timestamp of NDJSON with an underscore: %+v, %v", reject, err)
	}
}

// TestTimesOfDatabases: the default texts of databases are times, and days of spreadsheets are
// refused with their form, and read with it.
func TestTimesOfDatabases(t *testing.T) {
	at := time.Date(2026, 3, 2, 7, 0, 4, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-02 07:00:04+00": at, "2026-03-02 12:30:04+05:30": at, "2026-03-02 02:00:04-05": at,
		"2026-03-02 07:00:04.25+00": at.Add(time.Second / 4), "2026-03-02 07:00:04 UTC": at,
		"2026-03-02 07:00:04.5 UTC": at.Add(time.Second / 2),
	} {
		var clock Clock
		if n, err := clock.Parse(text); err != nil || n != want.UnixNano() {
			t.Errorf("%s is %v, %v", text, time.Unix(0, n).UTC(), err)
		}
		zoned, err := NewClock(&dialect.CSV{Zone: "Asia/Tokyo"})
		if n, perr := zoned.Parse(text); err != nil || perr != nil || n != want.UnixNano() {
			t.Errorf("%s with a zone is %v, %v", text, time.Unix(0, n).UTC(), perr)
		}
	}
	sheet := "timestamp,value\n46083.00347,1\n46083.00694,2\n46084,3\n"
	values, rejects := readAll(t, sheet, valueSpec)
	if len(rejects) == 0 || !strings.Contains(rejects[0], "set csv.time: excel") {
		t.Errorf("days: %v, %q", values, rejects)
	}
	if values, rejects := readAll(t, sheet, withDialect(dialect.CSV{Time: dialect.Forms{"excel"}})); len(values) != 3 {
		t.Errorf("days with their form: %v, %q", values, rejects)
	}
	values, rejects = readAll(t, "timestamp,value\n20260302,1\n", valueSpec)
	if len(rejects) == 0 || !strings.Contains(rejects[0], `set csv.time: "20060102", or csv.time: unix_s`) {
		t.Errorf("a date without separators: %v, %q", values, rejects)
	}
	// Seconds that go through the days of spreadsheets stay seconds.
	if values, rejects := readAll(t, "timestamp,value\n1,1\n46083.5,2\n", valueSpec); len(values) != 2 {
		t.Errorf("seconds: %v, %q", values, rejects)
	}
	for text, want := range map[string]bool{
		"1": true, "46083.5": true, "-1e3": true, "1700000000": false, "1970-01-01": false,
	} {
		row := Row{Timestamp: text}
		var clock Clock
		row.Time, _ = clock.Parse(text)
		if Early(&row) != want {
			t.Errorf("Early of %s is %v", text, !want)
		}
	}
}
