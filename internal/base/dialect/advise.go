package dialect

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Advice says which part of a dialect is wrong, and what to set.
type Advice struct{ found, set []string }

// String returns a sentence, or nothing where there is nothing to set.
func (a Advice) String() string {
	if len(a.set) == 0 {
		return ""
	}
	found := a.found[len(a.found)-1]
	if rest := a.found[:len(a.found)-1]; len(rest) > 0 {
		found = strings.Join(rest, ", ") + " and " + found
	}
	return found + ": set " + strings.Join(a.set, " and ")
}

func (a *Advice) add(found, set string) { a.found, a.set = append(a.found, found), append(a.set, set) }

// delimiters are the delimiters that are tried, the more likely first.
var delimiters = []rune{',', ';', '\t', '|'}

// common are the forms of timestamps that are looked for. Where two forms read a text differently,
// the error names both.
var common = []string{
	"02.01.2006 15:04:05", "02.01.2006 15:04", "02.01.2006", "02.01.06 15:04:05", "02.01.06 15:04",
	"02-01-2006 15:04:05", "02-01-2006 15:04", "02/01/2006 15:04:05", "02/01/2006 15:04", "01/02/2006 15:04",
	"02/01/2006", "01/02/2006", "01/02/2006 03:04:05 PM", "1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM",
	"02/01/2006 03:04:05 PM", "2006-01-02 03:04:05 PM", "2006-01-02 3:04:05 PM", "2006-01-02 03:04 PM",
	"2006-01-02 3:04 PM", "2006/01/02 3:04:05 PM", "02.01.2006 3:04:05 PM", "1/2/2006, 3:04:05 PM",
	"2/1/2006, 15:04:05", "2.1.2006, 15:04:05", "1/2/2006 15:04:05", "1/2/06 15:04:05", "1/2/06 15:04",
	"1/2/06 3:04 PM", "Jan 2, 2006 3:04:05 PM", "Jan 2, 2006, 3:04:05 PM", "02-Jan-2006 15:04:05",
	"02-Jan-06 15:04:05", "02-Jan-06 03.04.05 PM", "02/Jan/2006:15:04:05 -0700", "20060102150405",
	"2.1.2006 15:04", "2.1.2006 15:04:05", "2006/01/02 15:04", "2006-01-02T15:04", "20060102T150405Z0700",
	"20060102 150405", "02 Jan 2006 15:04:05", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-0700",
	"2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 -07:00", "2006-01-02 15:04:05 -07",
	"2006-01-02 15:04:05 Z0700", "2006-01-02 15:04:05 -0700 UTC", "2006-01-02T15:04:05 UTC",
	"2006-01-02 15:04:05 GMT", "2006-01-02 15.04.05", "Jan 2, 2006 15:04:05", time.ANSIC, time.RFC1123Z,
	"Mon, 02 Jan 2006 15:04:05 GMT", "Mon Jan _2 15:04:05 UTC 2006", "1/2/2006 15:04", "2/1/2006 15:04",
	"1/2/2006", "2/1/2006", "1/2/06", "2/1/06", "2/1/2006 3:04:05 PM", "2/1/2006 3:04 PM", "2/1/06 15:04",
	"2/1/06 15:04:05", "2/1/2006 15:04:05", "2.1.2006", "2.1.06", "2-Jan-06", "2-Jan-2006", "2-Jan-2006 15:04",
	"2006-002", "20060102", "200601021504", "iso_week", "excel",
}

// Common returns the forms of timestamps that are tried where the default forms do not fit, the
// more likely first. The caller owns the slice.
func Common() []string { return slices.Clone(common) }

// Advise examines the first records of a file whose rows d does not read, and says what to set.
// columns are the timestamp and the features. It changes nothing: a dialect is never guessed.
// isTime reports whether the dialect reads a timestamp.
func (d *CSV) Advise(records []string, columns []string, isTime func(string) bool) (a Advice) {
	if len(records) == 0 || len(columns) == 0 {
		return a
	}
	comma := d.Comma()
	names := fields(records[0], comma)
	if !hasAll(names, columns) || len(names) < 2 {
		for _, other := range delimiters {
			if as := fields(records[0], other); other != comma && len(as) > len(names) &&
				(hasAll(as, columns) || len(names) == 1) {
				comma, names = other, as
			}
		}
	}
	if comma != d.Comma() {
		text := strconv.Quote(string(comma))
		if comma == '\t' {
			text = "tab"
			a.add("the file is separated by tabs", "csv.delimiter: "+text)
		} else {
			a.add("the file is separated by "+text, "csv.delimiter: "+text)
		}
	}
	rows := records
	if d.HasHeader() {
		if !hasAll(names, columns) {
			if looksLikeData(names, d, isTime) {
				a.add("its first line holds values", "csv.header: false with csv.names, or with columns called by "+
					"their numbers")
			}
			return a
		}
		rows = records[1:]
	} else {
		names = d.Columns(len(names))
	}
	var times, numbers []string
	for _, record := range rows {
		row := fields(record, comma)
		if len(row) != len(names) {
			continue
		}
		for i, want := range columns {
			at := slices.IndexFunc(names, func(n string) bool { return strings.TrimSpace(n) == want })
			if at < 0 {
				continue
			}
			if text := strings.TrimSpace(row[at]); i == 0 {
				times = append(times, text)
			} else {
				numbers = append(numbers, text)
			}
		}
	}
	d.adviseNumbers(&a, numbers)
	d.adviseTimes(&a, times, isTime)
	return a
}

func (d *CSV) adviseNumbers(a *Advice, numbers []string) {
	comma, point := false, false
	for _, text := range numbers {
		if isNumber(text) {
			point = point || strings.Contains(text, ".")
		} else {
			comma = comma || strings.Count(text, ",") == 1 && !strings.Contains(text, ".") &&
				isNumber(strings.Replace(text, ",", ".", 1))
		}
	}
	switch {
	case comma && !point && !d.DecimalComma():
		a.add("its numbers have decimal commas", `csv.decimal: ","`)
	case point && !comma && d.DecimalComma():
		a.add("its numbers have decimal points", `csv.decimal: "."`)
	}
}

func (d *CSV) adviseTimes(a *Advice, times []string, isTime func(string) bool) {
	if len(times) == 0 || !slices.ContainsFunc(times, func(t string) bool { return !isTime(t) }) {
		return
	}
	var fit []string
	var read []int64
	for _, name := range common {
		form, err := ParseForm(name)
		if err != nil || form.days && !slices.ContainsFunc(times, IsDays) {
			continue
		}
		first, _, _ := form.Parse(times[0], time.UTC)
		fails := func(t string) bool { _, _, err := form.Parse(t, time.UTC); return err != nil }
		if slices.Contains(read, first) || slices.ContainsFunc(times, fails) {
			continue
		}
		fit, read = append(fit, strconv.Quote(name)), append(read, first)
	}
	if zone := abbreviation(times[0]); len(fit) == 0 && zone != "" {
		rest := strings.TrimSpace(strings.TrimSuffix(times[0], zone))
		usual := []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04"}
		for _, name := range append(usual, common...) {
			form, err := ParseForm(name)
			if err != nil {
				continue
			}
			if _, _, err := form.Parse(rest, time.UTC); err == nil {
				a.add("its timestamps end with "+zone+", which several zones are called", fmt.Sprintf("csv.time: %q "+
					"and csv.zone to the zone that is meant, as in csv.zone: Europe/Berlin", name+" "+zone))
				return
			}
		}
	}
	if len(fit) > 0 {
		a.add("its timestamps are like "+quote(times[0]), "csv.time: "+strings.Join(fit[:min(2, len(fit))], " or "))
	}
}

// abbreviation returns the abbreviation of a zone at the end of a timestamp, such as CET.
func abbreviation(text string) string {
	word := text[strings.LastIndexByte(text, ' ')+1:]
	if n := len(word); n < 2 || n > 5 || n == len(text) || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" ||
		word == "AM" || word == "PM" {
		return ""
	}
	return word
}

func quote(s string) string { return strconv.QuoteToGraphic(s[:min(len(s), 40)]) }

// fields cuts a record; nil where its quotes are wrong.
func fields(record string, comma rune) []string {
	r := csv.NewReader(strings.NewReader(record))
	r.Comma, r.FieldsPerRecord = comma, -1
	row, err := r.Read()
	if err != nil {
		return nil
	}
	return row
}

func hasAll(names, columns []string) bool {
	for _, want := range columns {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.TrimSpace(n) == want }) {
			return false
		}
	}
	return true
}

// looksLikeData reports whether a header has numbers or times for names.
func looksLikeData(names []string, d *CSV, isTime func(string) bool) bool {
	for _, n := range names {
		n = strings.TrimSpace(n)
		if isNumber(n) || isNumber(strings.Replace(n, ",", ".", 1)) || n != "" && isTime(n) {
			return true
		}
	}
	return false
}

func isNumber(text string) bool {
	_, err := Float(text, 64)
	return err == nil && text != ""
}
