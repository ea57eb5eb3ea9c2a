package dialect

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestForms(t *testing.T) {
	at := time.Date(2026, 1, 31, 21, 5, 6, 0, time.UTC).UnixNano()
	for _, c := range []struct {
		form, text string
		want       int64
	}{
		{"rfc3339", "2026-01-31T22:05:06+01:00", at},
		{"unix", "1769893506", at},
		{"unix_s", "1769893506.5", at + 5e8},
		{"unix_ms", "1769893506000", at},
		{"unix_us", "1769893506000000", at},
		{"unix_ns", "1769893506000000001", at + 1},
		{"unix_ms", "5000", 5e9}, // the size of a number does not matter
		{"02.01.2006 15:04:05", "31.01.2026 21:05:06", at},
		{"02.01.2006 15:04:05", "31.01.2026 21:05:06.25", at + 25e7},
		{"%d.%m.%Y %H:%M:%S", "31.01.2026 21:05:06", at},
		{"%d.%m.%Y %H:%M:%S.%f", "31.01.2026 21:05:06.250", at + 25e7},
		{"%m/%d/%y %I:%M:%S %p", "01/31/26 09:05:06 PM", at},
		{"%Y-%m-%dT%H:%M:%S%z", "2026-01-31T22:05:06+0100", at},
		{"%d %b %Y %T", "31 Jan 2026 21:05:06", at},
		{"%Y%j %R", "2026031 21:05", at - 6e9},
		{"excel", "46053.87854166667", at},
		{"2006-01-02 15:04:05-07", "2026-01-31 22:05:06+01", at},
		{"2006-01-02 15:04:05 UTC", "2026-01-31 21:05:06.000 UTC", at},
	} {
		f, err := ParseForm(c.form)
		if err != nil {
			t.Errorf("%s: %v", c.form, err)
			continue
		}
		if got, _, err := f.Parse(c.text, time.UTC); err != nil || got != c.want {
			t.Errorf("%s %s: %d, %v; want %d", c.form, c.text, got, err, c.want)
		}
		for _, text := range []string{"", "x", "31.31.2026 00:00:00", "NaN", "1e300", "9223372036854775807"} {
			if got, _, err := f.Parse(text, time.UTC); err == nil && !strings.HasPrefix(c.form, "unix_ns") {
				t.Errorf("%s reads %q as %d", c.form, text, got)
			}
		}
	}
	for _, form := range []string{
		"", "x", "15:04", "02.01. 15:04", "02.01.2006 03:04", "2006-01-02 15:04:05 MST", "%Q",
		"%d.%m.%Y %", "%d.%m.2026", "%H:%M", "%d.%m.%Y %f", "dd.mm.yyyy",
	} {
		if f, err := ParseForm(form); err == nil {
			t.Errorf("%q is the form %+v", form, f)
		}
	}
}

// TestClocksGoBack: a timestamp of the hour that comes twice has two times, one that does not come
// is refused.
func TestClocksGoBack(t *testing.T) {
	d := CSV{Zone: "Europe/Berlin", Time: Forms{"02.01.2006 15:04"}}
	forms, zone, err := d.Clock()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 10, 24, 23, 45, 0, 0, time.UTC)
	for range 20 {
		text := at.In(zone).Format("02.01.2006 15:04")
		first, second, err := forms[0].Parse(text, zone)
		twice := text >= "25.10.2026 02:00" && text < "25.10.2026 03:00"
		if err != nil || at.UnixNano() != first && at.UnixNano() != second ||
			twice != (second == first+int64(time.Hour)) ||
			!twice && first != second {
			t.Fatalf("%s: %v or %v, %v; want %v", text, time.Unix(0, first).UTC(), time.Unix(0, second).UTC(), err, at)
		}
		at = at.Add(15 * time.Minute)
	}
	if got, _, err := forms[0].Parse("29.03.2026 02:30", zone); !NoTime(err) {
		t.Errorf("29 March, 02:30: %v, %v", time.Unix(0, got), err)
	}
	if got, _, err := forms[0].Parse("29.03.2026 03:30", zone); err != nil ||
		got != time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC).UnixNano() {
		t.Errorf("29 March, 03:30: %v, %v", time.Unix(0, got), err)
	}
}

// TestCommon: each common form is a form.
func TestCommon(t *testing.T) {
	for _, name := range Common() {
		if _, err := ParseForm(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestLiteralUTC: a form that ends with UTC is in UTC, whatever the zone.
func TestLiteralUTC(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2006-01-02 15:04:05 UTC", "2006-01-02T15:04:05Z", "Mon, 02 Jan 2006 15:04:05 GMT"} {
		f, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 3, 2, 5, 0, 0, 0, time.UTC)
		if n, _, err := f.Parse(at.Format(name), zone); err != nil || n != at.UnixNano() {
			t.Errorf("%s: %v, %v", name, time.Unix(0, n).UTC(), err)
		}
	}
}

func TestValidate(t *testing.T) {
	no := false
	for key, bad := range map[string][]CSV{
		"delimiter": {
			{Delimiter: ";;"},
			{Delimiter: `"`},
			{Delimiter: "a"},
			{Delimiter: "\n"},
			{Delimiter: "é"},
			{Delimiter: "."},
		},
		"decimal": {{Decimal: ";"}},
		"names": {
			{Names: []string{"a"}},
			{Header: &no, Names: []string{"a", "a"}},
			{Header: &no, Names: []string{""}},
		},
		"time": {{Time: Forms{"x"}}, {Time: make(Forms, 9)}},
		"zone": {{Zone: "Mars/X"}, {Zone: "Local"}},
	} {
		for _, d := range bad {
			if at, err := d.Validate(); err == nil || at != key || !strings.Contains(err.Error(), "csv."+key) {
				t.Errorf("%+v: %s, %v", d, at, err)
			}
		}
	}
	for _, d := range []CSV{
		{},
		{Delimiter: ";", Decimal: ","},
		{Delimiter: "tab"},
		{Header: &no, Names: []string{"at", "v"}},
		{Decimal: ","},
	} {
		if at, err := d.Validate(); err != nil {
			t.Errorf("%+v: %s, %v", d, at, err)
		}
	}
}

func TestAdvise(t *testing.T) {
	isTime := func(s string) bool { _, err := time.Parse("2006-01-02 15:04:05", s); return err == nil }
	columns := []string{"timestamp", "value"}
	for _, c := range []struct {
		of      CSV
		records []string
		want    string
	}{
		{
			CSV{},
			[]string{"timestamp;value", "2026-01-01 00:00:00;1.5"},
			`the file is separated by ";": set csv.delimiter: ";"`,
		},
		{
			CSV{},
			[]string{"timestamp\tvalue", "2026-01-01 00:00:00\t1"},
			`the file is separated by tabs: set csv.delimiter: tab`,
		},
		{
			CSV{},
			[]string{"timestamp;value", "31.01.2026 10:00;1,5"},
			`the file is separated by ";", its numbers have decimal commas and its timestamps are like "31.01.2026 ` +
				`10:00": set csv.delimiter: ";" and csv.decimal: "," and csv.time: "02.01.2006 15:04"`,
		},
		{
			CSV{},
			[]string{"timestamp,value", `2026-01-01 00:00:00,"1,5"`},
			`its numbers have decimal commas: set csv.decimal: ","`,
		},
		{
			CSV{Decimal: ","},
			[]string{"timestamp,value", `2026-01-01 00:00:00,1.5`},
			`its numbers have decimal points: set csv.decimal: "."`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "03/02/2026 10:00,1"},
			`its timestamps are like "03/02/2026 10:00": set csv.time: "02/01/2006 15:04" or "01/02/2006 15:04"`,
		},
		{CSV{}, []string{"timestamp,value", "03/02/2026 10:00,1", "31/02/2026 10:00,1", "21/02/2026 10:00,1"}, ``},
		{
			CSV{},
			[]string{"2026-01-01 00:00:00,5", "2026-01-01 00:01:00,6"},
			`its first line holds values: set csv.header: false with csv.names, or with columns called by their ` +
				`numbers`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "2026-03-02 05:00:00 AM,1", "2026-03-02 01:00:00 PM,1"},
			`its timestamps are like "2026-03-02 05:00:00 AM": set csv.time: "2006-01-02 03:04:05 PM"`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "46083.00347,1", "46084,1"},
			`its timestamps are like "46083.00347": set csv.time: "excel"`,
		},
		{
			CSV{},
			[]string{"timestamp,value", `"Mar 2, 2026, 5:00:00 AM",1`},
			`its timestamps are like "Mar 2, 2026, 5:00:00 AM": set csv.time: "Jan 2, 2006, 3:04:05 PM"`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "2026-W10-1,1", "2026-W10-2T07:00:00Z,1"},
			`its timestamps are like "2026-W10-1": set csv.time: "iso_week"`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "2026-03-02 07:00:00 CET,1"},
			`its timestamps end with CET, which several zones are called: set csv.time: "2006-01-02 15:04:05 CET" ` +
				`and csv.zone to the zone that is meant, as in csv.zone: Europe/Berlin`,
		},
		{
			CSV{},
			[]string{"timestamp,value", "3/2/2026 7:00,1"},
			`its timestamps are like "3/2/2026 7:00": set csv.time: "1/2/2006 15:04" or "2/1/2006 15:04"`,
		},
		{CSV{}, []string{"timestamp,value", "2026-01-01 00:00:00,x"}, ``},
		{CSV{}, []string{"a,b", "c,d"}, ``},
		{CSV{}, nil, ``},
	} {
		if got := c.of.Advise(c.records, columns, isTime).String(); got != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.records, got, c.want)
		}
	}
}

// TestWeek: week dates equal the dates of package time.
func TestWeek(t *testing.T) {
	f, err := ParseForm("iso_week")
	if err != nil {
		t.Fatal(err)
	}
	for day := time.Date(2019, 12, 20, 0, 0, 0, 0, time.UTC); day.Year() < 2034; day = day.AddDate(0, 0, 1) {
		y, w := day.ISOWeek()
		wd := (int(day.Weekday())+6)%7 + 1
		for _, text := range []string{
			fmt.Sprintf("%d-W%02d-%d", y, w, wd), fmt.Sprintf("%dW%02d%d", y, w, wd),
			fmt.Sprintf("%d-W%02d-%d 02:00:00+02:00", y, w, wd), fmt.Sprintf("%d-W%02d-%dT00:00", y, w, wd),
		} {
			if n, _, err := f.Parse(text, time.UTC); err != nil || n != day.UnixNano() {
				t.Fatalf("%s: %v, %v, want %v", text, time.Unix(0, n).UTC(), err, day)
			}
		}
	}
	for _, text := range []string{
		"2026-W54", "2025-W53-1", "2026-W00", "2026-W10-8", "2026-W10-0", "2026-W101", "2026W10-1", "W10", "2026-W1",
		"2026-W10-1T", "2026-W10-1T25:00", "",
	} {
		if n, _, err := f.Parse(text, time.UTC); err == nil {
			t.Errorf("%q is read as %v", text, time.Unix(0, n).UTC())
		}
	}
}

// TestCompact: dates without separators are no unix times.
func TestCompact(t *testing.T) {
	for text, want := range map[string]string{
		"20260302": "20060102", "202603020700": "200601021504", "20260302070000": "20060102150405",
		"1772434800": "", "20261302": "", "17724348": "", "1772434800000": "", "": "", "21510302": "",
	} {
		if got := Compact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzForm(f *testing.F) {
	for _, s := range []string{"%d.%m.%Y", "02.01.2006", "rfc3339", "unix_ms", "%", "%d%%%Y%m"} {
		f.Add(s, "31.01.2026")
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("iso_week", "2026-W53-7T23:59:59.5+02:00")
	f.Fuzz(func(t *testing.T, form, text string) {
		got, err := ParseForm(form)
		if err != nil {
			return
		}
		at := time.Date(2031, 5, 6, 0, 0, 0, 0, time.UTC)
		if got.layout != "" { // a form that is taken reads what it writes
			n, _, err := got.Parse(at.Format(got.layout), time.UTC)
			if back := time.Unix(0, n).UTC(); err == nil && (back.Year() != 2031 || back.YearDay() != at.YearDay()) {
				t.Fatalf("%q reads %v as %v", form, at, back)
			}
		}
		_, _, _ = got.Parse(text, zone)
		(&CSV{}).Advise([]string{form, text}, []string{"a", "b"}, func(string) bool { return false })
	})
}
