package userfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// Limits of a sample.
const (
	maxRecords  = 2000    // of text that are looked at
	maxContents = 8 << 20 // bytes of text that are looked at
	mostOf      = 20      // a column has a type if at most one value of 20 differs
)

type column struct {
	name string
	// time, number and key report what the column can be used for.
	time, number, key, text bool
	values                  []string // of the records, of text formats only
}

// sample is the beginning of a file.
type sample struct {
	name    string
	format  rows.Format
	csv     dialect.CSV
	columns []column
	notes   []string // about the forms of times
}

// read reads the beginning of a file. Its extension gives the format; a file without one is CSV.
func read(name string) (*sample, error) {
	format, _ := rows.FormatOf(name, "csv")
	file, err := os.Open(name)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInput, "sample: %v: check the path", err)
	}
	s := &sample{name: name, format: format}
	kind, _, err := format.Split()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	switch kind {
	case "parquet", "arrow":
		found, err := rows.Columns(name, file, format)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			s.columns = append(
				s.columns,
				column{name: c.Name, time: c.Time, number: c.Number, key: c.Key, text: c.Text},
			)
		}
	default:
		text, err := rows.Contents(name, file, format, 1<<40)
		if err != nil {
			return nil, err
		}
		defer text.Close()
		from := io.LimitReader(text, maxContents)
		if kind == "ndjson" {
			err = s.objects(from)
		} else {
			err = s.records(from)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(s.columns) == 0 {
		return nil, jobs.Errorf(jobs.CodeInput, "%s: no columns: give a file with a few rows", name)
	}
	return s, nil
}

// records reads a CSV file: its delimiter is the character that cuts the most records into the same
// number of fields.
func (s *sample) records(from io.Reader) error {
	var all [][]byte
	in := rows.NewRecords(s.name, from, nil)
	for len(all) < maxRecords {
		record, problem, err := in.Record()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if problem == "" && len(record) > 0 {
			all = append(all, slices.Clone(record))
		}
	}
	if len(all) == 0 {
		return jobs.Errorf(jobs.CodeInput, "%s: no rows: give a file with a few rows", s.name)
	}
	all[0] = bytes.TrimPrefix(all[0], []byte("\xef\xbb\xbf"))
	table, comma := split(all)
	if comma != ',' {
		s.csv.Delimiter = string(comma)
		if comma == '\t' {
			s.csv.Delimiter = "tab"
		}
	}
	names := table[0]
	if header(names) {
		table = table[1:]
	} else {
		s.csv.Header = new(bool)
		names = s.csv.Columns(len(names))
	}
	width := len(names)
	table = slices.DeleteFunc(table, func(r []string) bool { return len(r) != width })
	for i, name := range names {
		c := column{name: strings.TrimSpace(name)}
		for _, r := range table {
			c.values = append(c.values, strings.TrimSpace(r[i]))
		}
		s.columns = append(s.columns, c)
	}
	s.decimal()
	return s.types()
}

// split cuts records at the delimiter that fits them.
func split(records [][]byte) (best [][]string, comma rune) {
	most := -1
	for _, c := range []rune{',', ';', '\t', '|'} {
		table := make([][]string, 0, len(records))
		for _, r := range records {
			fields, err := rows.SplitRecord(r, c)
			if err == nil {
				table = append(table, fields)
			}
		}
		if len(table) == 0 {
			continue
		}
		same := 0
		for _, r := range table {
			if len(r) == len(table[0]) {
				same++
			}
		}
		// One field a record fits any text, so more fields count more.
		if fit := same * min(len(table[0])-1, 4); fit > most {
			best, comma, most = table, c, fit
		}
	}
	return best, comma
}

// header reports whether a record names columns: it has no numbers, no times and no empty fields.
func header(fields []string) bool {
	var clock rows.Clock
	return !slices.ContainsFunc(fields, func(f string) bool {
		f = strings.TrimSpace(f)
		_, err := clock.Parse(f)
		return f == "" || isNumber(f, false) || isNumber(f, true) || err == nil
	})
}

func (s *sample) decimal() {
	commas := false
	for _, c := range s.columns {
		point, comma := 0, 0
		for _, v := range c.values {
			if strings.Contains(v, ".") && isNumber(v, false) {
				point++
			}
			if strings.Contains(v, ",") && isNumber(v, true) {
				comma++
			}
		}
		if point > comma {
			return
		}
		commas = commas || comma > 0
	}
	if commas {
		s.csv.Decimal = ","
	}
}

func isNumber(text string, decimalComma bool) bool {
	if decimalComma {
		if strings.Contains(text, ".") {
			return false
		}
		text = strings.Replace(text, ",", ".", 1)
	}
	_, err := dialect.Float(text, 64)
	return err == nil
}

// objects reads NDJSON. Columns are in the order in which they appear.
func (s *sample) objects(from io.Reader) error {
	lines := rows.NewLines(s.name, from)
	at := map[string]int{}
	for n := 0; n < maxRecords; n++ {
		line, long, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n == 0 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if long || strings.TrimSpace(string(line)) == "" {
			continue
		}
		if err := s.object(line, at); err != nil && n == 0 {
			return jobs.Errorf(
				jobs.CodeInput,
				"%s:%d: %v: one JSON object a line is expected",
				s.name,
				lines.Number,
				err,
			)
		}
	}
	return s.types()
}

// object adds the members of an object. Nested members are left out: they are no columns.
func (s *sample) object(line []byte, at map[string]int) error {
	d := json.NewDecoder(strings.NewReader(string(line)))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("no JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return err
		}
		key := name.(string)
		i, known := at[key]
		if !known {
			i = len(s.columns)
			at[key] = i
			s.columns = append(s.columns, column{name: key})
		}
		c := &s.columns[i]
		switch v := v.(type) {
		case string:
			c.values, c.text = append(c.values, v), true
		case json.Number:
			c.values = append(c.values, v.String())
		case bool:
			c.values, c.text = append(c.values, fmt.Sprint(v)), true
		case nil:
			c.values = append(c.values, "")
		}
	}
	return nil
}

// types finds what the columns of a text can be used for.
func (s *sample) types() error {
	for i := range s.columns {
		c := &s.columns[i]
		numbers, filled := 0, 0
		for _, v := range c.values {
			if v == "" {
				continue
			}
			filled++
			if isNumber(v, s.csv.DecimalComma()) {
				numbers++
			}
		}
		c.number = filled > 0 && few(filled-numbers, filled) && (s.format != "ndjson" || !c.text)
		c.key = filled > 0
		c.text = filled > 0 && !c.number
		c.time = s.timeColumn(c)
	}
	return nil
}

// few reports whether so few of all values that they may be mistakes.
func few(n, all int) bool { return n*mostOf <= all }

// timeColumn reports whether a column of text holds times, and sets the form where it is not a
// default one.
func (s *sample) timeColumn(c *column) bool {
	fits := func(d *dialect.CSV) bool {
		clock, err := rows.NewClock(d)
		if err != nil {
			return false
		}
		wrong, filled := 0, 0
		for _, v := range c.values {
			if v == "" {
				continue
			}
			filled++
			if _, err := clock.Parse(v); err != nil {
				wrong++
			}
		}
		return filled > 0 && few(wrong, filled)
	}
	if c.number { // a unix time, if it is called so
		if !timeName(c.name) {
			return false
		}
		kind, _, _ := s.format.Split()
		if kind == "csv" && len(s.csv.Time) == 0 &&
			slices.ContainsFunc(c.values, dialect.IsDays) && fits(&dialect.CSV{Time: dialect.Forms{"excel"}}) {
			s.csv.Time = dialect.Forms{"excel"}
		}
		if i := slices.IndexFunc(c.values, func(v string) bool { return v != "" }); kind == "csv" && i >= 0 {
			if form := dialect.Compact(c.values[i]); form != "" && fits(&dialect.CSV{Time: dialect.Forms{form}}) {
				s.csv.Time = dialect.Forms{form}
				return true
			}
		}
		return fits(nil)
	}
	if fits(nil) {
		return true
	}
	if kind, _, _ := s.format.Split(); kind != "csv" || len(s.csv.Time) > 0 {
		return false
	}
	for _, form := range dialect.Common() {
		if form == "excel" {
			continue // its texts are numbers
		}
		d := &dialect.CSV{Time: dialect.Forms{form}}
		switch {
		case !fits(d):
		case len(s.csv.Time) == 0:
			s.csv.Time = d.Time
		case c.differ(s.csv.Time[0], form):
			s.notes = append(s.notes, fmt.Sprintf("the times of %q also have the form %q, in which %q is another day: "+
				"name the right one with csv.time", c.name, form, c.values[0]))
			return true
		}
	}
	return len(s.csv.Time) > 0
}

// differ reports whether two forms read values of a column differently.
func (c *column) differ(one, other string) bool {
	a, aerr := dialect.ParseForm(one)
	b, berr := dialect.ParseForm(other)
	return aerr == nil && berr == nil && slices.ContainsFunc(c.values, func(v string) bool {
		x, _, xerr := a.Parse(v, nil)
		y, _, yerr := b.Parse(v, nil)
		return xerr == nil && yerr == nil && x != y
	})
}
