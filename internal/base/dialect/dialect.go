// Package dialect describes how CSV files are written: the delimiter, the decimal separator, the
// header, and the form of timestamps and numbers.
package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a container may have none, and a zone must mean the same everywhere
)

// CSV is the dialect of a CSV file. The zero value is RFC 4180: commas, decimal points, a header,
// and the default forms of timestamps.
type CSV struct {
	// Delimiter separates the fields: one ASCII character, or tab; default a comma.
	Delimiter string `yaml:"delimiter" json:"delimiter,omitempty"`
	// Decimal is the decimal separator of numbers: a point, the default, or a comma.
	Decimal string `yaml:"decimal" json:"decimal,omitempty"`
	// Header reports whether the first record names the columns; default true. Without a header and
	// Names, columns are called by their numbers, from 1.
	Header *bool `yaml:"header" json:"header,omitempty"`
	// Names are the names of the columns of a file without a header, in their order.
	Names []string `yaml:"names" json:"names,omitempty"`
	// Time are the forms that a timestamp may have, up to 8; the default forms when empty. See
	// ParseForm.
	Time Forms `yaml:"time" json:"time,omitempty"`
	// Zone is the time zone of timestamps without one, such as Europe/Berlin; default UTC.
	Zone string `yaml:"zone" json:"zone,omitempty"`
}

// Forms are the names of forms of timestamps. YAML has one text, or a list.
type Forms []string

// UnmarshalYAML reads a text or a list of texts.
func (f *Forms) UnmarshalYAML(decode func(any) error) error {
	var one string
	if decode(&one) == nil {
		*f = Forms{one}
		return nil
	}
	return decode((*[]string)(f))
}

const (
	maxForms = 8
	maxNames = 65_536
)

// IsZero reports whether d is the plain dialect.
func (d *CSV) IsZero() bool {
	return d == nil || d.Delimiter == "" && d.Decimal == "" && d.Header == nil && len(d.Names) == 0 &&
		len(d.Time) == 0 && d.Zone == ""
}

// Comma returns the delimiter. The dialect is valid.
func (d *CSV) Comma() rune {
	switch {
	case d == nil || d.Delimiter == "":
		return ','
	case isTab(d.Delimiter):
		return '\t'
	}
	return rune(d.Delimiter[0])
}

func isTab(s string) bool { return s == "tab" || s == `\t` || s == "\t" }

// DecimalComma reports whether numbers have a decimal comma.
func (d *CSV) DecimalComma() bool { return d != nil && d.Decimal == "," }

// HasHeader reports whether the first record names the columns.
func (d *CSV) HasHeader() bool { return d == nil || d.Header == nil || *d.Header }

// Columns returns the names of the columns of a file without a header whose first record has width
// fields.
func (d *CSV) Columns(width int) []string {
	if len(d.Names) > 0 {
		return d.Names
	}
	names := make([]string, width)
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	return names
}

// Number returns a number in the form of strconv.ParseFloat, or why it is not written as the
// dialect says. Its text is not checked further.
func (d *CSV) Number(text string) (number, problem string) {
	if !d.DecimalComma() {
		return text, ""
	}
	if strings.Contains(text, ".") {
		return "", "has a point, and csv.decimal is a comma"
	}
	return strings.Replace(text, ",", ".", 1), ""
}

// Clock returns the forms and the zone of timestamps. No forms means the default ones.
func (d *CSV) Clock() (forms []Form, zone *time.Location, err error) {
	if d == nil {
		return nil, time.UTC, nil
	}
	if len(d.Time) > maxForms {
		return nil, nil, fmt.Errorf("csv.time names %d forms: use at most %d", len(d.Time), maxForms)
	}
	for _, name := range d.Time {
		f, err := ParseForm(name)
		if err != nil {
			return nil, nil, fmt.Errorf("csv.time %q: %w", name, err)
		}
		forms = append(forms, f)
	}
	if d.Zone == "Local" {
		return nil, nil,
			errors.New(`csv.zone "Local": agents run on several machines: name a zone such as Europe/Berlin`)
	}
	if zone, err = time.LoadLocation(d.Zone); err != nil {
		return nil, nil, fmt.Errorf("csv.zone %q: it is no time zone: use a name such as Europe/Berlin or UTC", d.Zone)
	}
	return forms, zone, nil
}

// Validate returns the first thing wrong and the key where it stands.
func (d *CSV) Validate() (key string, err error) {
	if d == nil {
		return "", nil
	}
	if s := d.Delimiter; s != "" && !isTab(s) {
		if len(s) != 1 || s[0] < ' ' || s[0] > '~' || strings.ContainsAny(s, `".+-_`) || isAlnum(s[0]) {
			return "delimiter", fmt.Errorf(`csv.delimiter %q: use one character such as ";", "|" or ",", or tab`, s)
		}
	}
	if d.Decimal != "" && d.Decimal != "." && d.Decimal != "," {
		return "decimal", fmt.Errorf(`csv.decimal %q: use "." or ","`, d.Decimal)
	}
	switch {
	case len(d.Names) > 0 && d.HasHeader():
		return "names", errors.New("csv.names: they are for files without a header: write header: false, or leave " +
			"names out")
	case len(d.Names) > maxNames:
		return "names", fmt.Errorf("csv.names: %d names: use at most %d", len(d.Names), maxNames)
	}
	for i, n := range d.Names {
		if n == "" || slices.Contains(d.Names[:i], n) {
			return "names", fmt.Errorf("csv.names: name %d, %q, is empty or given twice", i+1, n)
		}
	}
	if _, _, err := d.Clock(); err != nil {
		if strings.HasPrefix(err.Error(), "csv.zone") {
			return "zone", err
		}
		return "time", err
	}
	return "", nil
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Override takes over what another dialect sets.
func (d *CSV) Override(with CSV) {
	if with.Delimiter != "" {
		d.Delimiter = with.Delimiter
	}
	if with.Decimal != "" {
		d.Decimal = with.Decimal
	}
	if with.Header != nil {
		d.Header = with.Header
	}
	if len(with.Names) > 0 {
		d.Names = with.Names
	}
	if d.HasHeader() && with.Header != nil {
		d.Names = nil
	}
	if len(with.Time) > 0 {
		d.Time = with.Time
	}
	if with.Zone != "" {
		d.Zone = with.Zone
	}
}

// Set sets one key of the dialect from its text, as a flag has it. Names and forms that are set
// twice add up.
func (d *CSV) Set(setting string) error {
	key, value, ok := strings.Cut(setting, "=")
	switch {
	case !ok || value == "":
		return fmt.Errorf(`%q: write KEY=VALUE, as in delimiter=";"`, setting)
	case key == "delimiter":
		d.Delimiter = value
	case key == "decimal":
		d.Decimal = value
	case key == "header":
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("header=%q: use true or false", value)
		}
		d.Header = &b
	case key == "names":
		d.Names = append(d.Names, strings.Split(value, ",")...)
	case key == "time":
		d.Time = append(d.Time, value)
	case key == "zone":
		d.Zone = value
	default:
		return fmt.Errorf("%q: the keys are delimiter, decimal, header, names, time and zone", setting)
	}
	return nil
}
