package dialect

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Form is a form of timestamps.
type Form struct {
	layout string  // of package time; empty for a number
	zoned  bool    // a timestamp has its own zone
	unit   float64 // nanoseconds of a unix time's unit
	days   bool    // days of a spreadsheet since 1899-12-30
	week   bool    // a week date of ISO 8601
}

// named are the forms that have names.
var named = map[string]Form{
	"rfc3339": {layout: time.RFC3339, zoned: true},
	"unix":    {unit: 1e9}, "unix_s": {unit: 1e9}, "unix_ms": {unit: 1e6}, "unix_us": {unit: 1e3}, "unix_ns": {unit: 1},
	"excel": {days: true}, "iso_week": {week: true},
}

// directives are the directives of strptime, and what package time calls them.
var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'z': "-0700", 'j': "002",
	'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'T': "15:04:05", 'F': "2006-01-02", 'R': "15:04",
	'D': "01/02/06",
}

// ParseForm reads the form of a timestamp: rfc3339, unix_s (or unix), unix_ms, unix_us, unix_ns,
// excel (the days of spreadsheets, to the millisecond), iso_week (2026-W10, 2026-W10-1 or 2026W101,
// and a time behind the day), a layout of Go such as "02.01.2006 15:04:05", or one of strptime such
// as "%d.%m.%Y %H:%M:%S". A form has a day, and either 24 hours or AM and PM. Fractions of a second
// are read behind the seconds of every form.
func ParseForm(text string) (Form, error) {
	if f, ok := named[strings.ToLower(text)]; ok {
		return f, nil
	}
	layout := text
	if strings.Contains(text, "%") {
		var err error
		if layout, err = fromStrptime(text); err != nil {
			return Form{}, err
		}
	}
	f := Form{layout: layout, zoned: strings.Contains(layout, "Z07") || strings.Contains(layout, "-07")}
	// A literal of UTC is a zone too.
	for _, utc := range []string{"UTC", "GMT", "Z"} {
		f.zoned = f.zoned || strings.HasSuffix(layout, utc)
	}
	if strings.Contains(layout, "MST") {
		return Form{}, errors.New("abbreviations of zones are ambiguous: use -0700 or Z07:00, or name a zone in " +
			"csv.zone")
	}
	// A layout that is none, or has no year, reads something else than it wrote.
	for _, at := range []time.Time{
		time.Date(2017, 11, 22, 21, 38, 49, 0, time.UTC),
		time.Date(2038, 2, 3, 4, 5, 6, 0, time.UTC),
	} {
		back, err := time.Parse(layout, at.Format(layout))
		if err != nil || back.Year() != at.Year() || back.YearDay() != at.YearDay() || back.Hour() != 0 &&
			back.Hour() != at.Hour() {
			return Form{},
				errors.New(`it has no year, month and day, or hours without AM and PM: write "02.01.2006 15:04:05" ` +
					`(the second of January 2006, as Go does), "%d.%m.%Y %H:%M:%S", rfc3339, unix_s, unix_ms, ` +
					`unix_us, unix_ns, excel or iso_week`)
		}
	}
	return f, nil
}

func fromStrptime(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c != '%':
			// A digit or the name of a month would mean something to package time.
			if c >= '0' && c <= '9' {
				return "", fmt.Errorf("the digit %c stands between directives: leave it out", c)
			}
			if rest := text[i:]; strings.HasPrefix(rest, "Jan") || strings.HasPrefix(rest, "Mon") ||
				strings.HasPrefix(rest, "PM") || strings.HasPrefix(rest, "pm") || strings.HasPrefix(rest, "MST") {
				return "", fmt.Errorf("%.3q stands between directives: leave it out", rest)
			}
			if fraction := strings.HasPrefix(text[i:], ".%f") || strings.HasPrefix(text[i:], ",%f"); fraction &&
				strings.HasSuffix(b.String(), "05") {
				i += 2 // package time reads a fraction behind every second
				continue
			}
			b.WriteByte(c)
		case i+1 == len(text):
			return "", errors.New("it ends with %: write %% for a percent sign")
		default:
			i++
			d, ok := directives[text[i]]
			switch {
			case text[i] == '%':
				d = "%"
			case text[i] == 'f':
				return "", errors.New(`%f is read behind %S alone: write "%S.%f"`)
			case !ok:
				return "", fmt.Errorf("%%%c is unknown: use %%Y %%y %%m %%d %%e %%j %%b %%B %%a %%A %%H %%I %%p %%M "+
					"%%S %%f %%z %%T %%F %%R %%D", text[i])
			}
			b.WriteString(d)
		}
	}
	return b.String(), nil
}

// The errors of Parse.
var (
	errForm   = errors.New("it does not have the form")
	errYears  = errors.New("it is outside the years 1678 to 2261")
	errNoSuch = errors.New("there is no such time in its zone: the clocks skip it")
)

// NoTime reports whether err says that a text has the form and is no time all the same.
func NoTime(err error) bool { return errors.Is(err, errYears) || errors.Is(err, errNoSuch) }

// Parse returns the unix nanoseconds of a timestamp. A timestamp without a zone is in zone. Where
// the clocks go back an hour is repeated: first and second are the two times that the timestamp may
// mean. They are equal for every other timestamp.
func (f Form) Parse(text string, zone *time.Location) (first, second int64, err error) {
	var t time.Time
	switch {
	case f.days:
		days, err := Float(text, 64)
		if err != nil || !(math.Abs(days) < 1e6) {
			return 0, 0, errForm
		}
		t = time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(math.Floor(days))).
			Add(time.Duration(math.Round((days-math.Floor(days))*86400e3)) * time.Millisecond)
	case f.week:
		var zoned bool
		if t, zoned, err = parseWeek(text); err != nil {
			return 0, 0, err
		}
		f.zoned = zoned
	case f.layout == "":
		n, err := f.number(text)
		return n, n, err
	default:
		if t, err = time.Parse(f.layout, text); err != nil {
			return 0, 0, errForm
		}
	}
	if y := t.Year(); y < 1678 || y > 2261 {
		return 0, 0, errYears
	}
	if f.zoned || zone == nil || zone == time.UTC {
		return t.UnixNano(), t.UnixNano(), nil
	}
	return inZone(t, zone)
}

// weekTimes are the forms of the time behind a week date, with and without a zone.
var weekTimes = []string{"15:04:05Z07:00", "15:04:05Z0700", "15:04Z07:00", "15:04:05", "15:04", "150405"}

// parseWeek reads a week date of ISO 8601. A week without a day is its Monday.
func parseWeek(text string) (t time.Time, zoned bool, err error) {
	date, clock, timed := strings.Cut(strings.Replace(text, "T", " ", 1), " ")
	year, week, ok := strings.Cut(date, "W")
	extended := strings.HasSuffix(year, "-")
	year = strings.TrimSuffix(year, "-")
	day := "1"
	if ok && len(week) > 2 {
		var separated bool
		if day, separated = strings.CutPrefix(week[2:], "-"); separated != extended || len(day) != 1 {
			return t, false, errForm
		}
		week = week[:2]
	}
	if !ok || len(year) != 4 || len(week) != 2 || strings.Trim(year+week+day, "0123456789") != "" ||
		day < "1" || day > "7" {
		return t, false, errForm
	}
	y, _ := strconv.Atoi(year)
	w, _ := strconv.Atoi(week)
	// The fourth of January is in week 1.
	fourth := time.Date(y, 1, 4, 0, 0, 0, 0, time.UTC)
	t = fourth.AddDate(0, 0, 7*(w-1)+int(day[0]-'1')-(int(fourth.Weekday())+6)%7)
	if iy, iw := t.ISOWeek(); iy != y || iw != w {
		return t, false, errForm
	}
	if !timed {
		return t, false, nil
	}
	for _, layout := range weekTimes {
		if at, err := time.Parse("2006-01-02 "+layout, t.Format("2006-01-02 ")+clock); err == nil {
			return at, strings.Contains(layout, "Z07"), nil
		}
	}
	return t, false, errForm
}

// Compact returns the form of a text of digits that is a date of 1990 to 2100 without separators,
// and "" for others. As a unix time it would be in the seventies.
func Compact(text string) (form string) {
	form = map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(text)]
	if t, err := time.Parse(form, text); form == "" || err != nil || t.Year() < 1990 || t.Year() > 2100 {
		return ""
	}
	return form
}

// IsDays reports whether a text is a number as spreadsheets write a day and its time: days since
// 1899-12-30, of the years 1970 to 2118, with a fraction.
func IsDays(text string) bool {
	if !strings.Contains(text, ".") {
		return false
	}
	v, err := Float(text, 64)
	return err == nil && v > 25_569 && v < 80_000 && v != math.Floor(v)
}

// number is Parse of a form that is a number.
func (f Form) number(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if unit := int64(f.unit); n > math.MaxInt64/unit || n < math.MinInt64/unit {
			return 0, errYears
		}
		return n * int64(f.unit), nil
	}
	v, err := Float(text, 64)
	switch {
	case err != nil || math.IsNaN(v):
		return 0, errForm
	case math.Abs(v)*f.unit >= math.MaxInt64:
		return 0, errYears
	}
	return int64(v * f.unit), nil
}

// Repeated returns for how long clocks of a zone repeat the times around the one that they show as
// wall does in UTC. It is 0 for a time that they show once, or not at all.
func Repeated(wall time.Time, zone *time.Location) time.Duration {
	first, last, err := inZone(wall, zone)
	if err != nil {
		return 0
	}
	return time.Duration(last - first)
}

// inZone returns the first and the last time at which clocks of a zone show what wall shows in UTC.
func inZone(wall time.Time, zone *time.Location) (first, last int64, err error) {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(),
		zone)
	found := false
	start, end := at.ZoneBounds()
	beside := []time.Time{at}
	if !start.IsZero() {
		beside = append(beside, start.Add(-1))
	}
	if !end.IsZero() {
		beside = append(beside, end)
	}
	for _, b := range beside {
		_, offset := b.Zone()
		there := wall.Add(-time.Duration(offset) * time.Second)
		if _, has := there.In(zone).Zone(); has != offset {
			continue
		}
		n := there.UnixNano()
		if !found || n < first {
			first = n
		}
		if !found || n > last {
			last = n
		}
		found = true
	}
	if !found {
		return 0, 0, errNoSuch
	}
	return first, last, nil
}
