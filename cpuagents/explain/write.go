package explain

import (
	"cmp"
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// NameOf returns the name of an entity for people, from the values of its name columns.
func NameOf(values []string, keyed bool) string {
	if !keyed {
		return values[0]
	}
	return rows.EntityName(rows.JoinKey(values))
}

// Relate sorts incidents by their starts, and names for each the other entities with an incident
// that began within RelatedWithin, the nearest first. Incidents that belong to a move are part of
// its record. The result does not depend on the order of all, which it uses.
func Relate(all []Incident, keyed bool) []Incident {
	all = foldEarly(all, keyed)
	slices.SortStableFunc(all, func(a, b Incident) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), slices.Compare(a.Names, b.Names), cmp.Compare(a.Row, b.Row))
	})
	for i := range all {
		in := &all[i]
		if in.Entities > 1 {
			continue
		}
		in.Related = nil
		add := func(other *Incident) {
			name := NameOf(other.Names, keyed)
			if len(in.Related) < maxRelated && name != NameOf(in.Names, keyed) && !slices.Contains(in.Related, name) {
				in.Related = append(in.Related, name)
			}
		}
		for before, after := i-1, i+1; len(in.Related) < maxRelated; {
			isBefore := before >= 0 && in.begin-all[before].begin <= int64(RelatedWithin)
			isAfter := after < len(all) && all[after].begin-in.begin <= int64(RelatedWithin)
			switch {
			case !isBefore && !isAfter:
			case !isAfter || isBefore && in.begin-all[before].begin <= all[after].begin-in.begin:
				add(&all[before])
				before--
				continue
			default:
				add(&all[after])
				after++
				continue
			}
			break
		}
	}
	return all
}

// Writer writes records of incidents. One goroutine uses it.
type Writer struct {
	w     io.Writer
	names []string
	csv   *csv.Writer // nil for NDJSON
	line  []byte
}

// NewWriter returns a writer of the incidents of decisions with a layout, as CSV with a header or
// as NDJSON.
func NewWriter(w io.Writer, l rows.Layout, asCSV bool) *Writer {
	out := &Writer{w: w, names: l.NameColumns()}
	for i, name := range out.names {
		if slices.Contains(incidentColumns, strings.ToLower(name)) {
			out.names[i] = "keys." + name
		}
	}
	if asCSV {
		out.csv = csv.NewWriter(w)
		_ = out.csv.Write(append(slices.Clone(out.names), incidentColumns...)) // Close has the error
	}
	return out
}

// incidentColumns are the members of a record behind the names of its entity.
var incidentColumns = []string{
	"begin", "end", "peak", "row", "rows", "score", "features", "kinds", "value", "expected", "before", "related",
	"open", "entities", "absent",
}

// Write writes a record. In CSV, lists have a semicolon between their elements.
func (w *Writer) Write(in *Incident) error {
	kinds := make([]string, len(in.Kinds))
	for i, k := range in.Kinds {
		kinds[i] = k.String()
	}
	if w.csv != nil {
		return w.csv.Write(append(slices.Clone(in.Names), in.Begin, in.End, in.Peak,
			strconv.FormatUint(in.Row, 10), strconv.FormatUint(in.Rows, 10),
			string(rows.AppendNumber(nil, float64(in.Score), 32)), strings.Join(in.Features, ";"),
			strings.Join(kinds, ";"), string(appendKnown(nil, in.Value, 64, "")),
			string(appendKnown(nil, in.Expected, 32, "")), strconv.FormatUint(uint64(in.Before), 10),
			strings.Join(in.Related, ";"), strconv.FormatBool(in.Open), strconv.Itoa(in.Entities),
			strings.Join(in.Absent, ";")))
	}
	b := append(w.line[:0], '{')
	for i, name := range w.names {
		b = append(rows.AppendJSON(b, name), ':')
		b = append(rows.AppendJSON(b, in.Names[i]), ',')
	}
	b = rows.AppendJSON(append(b, `"begin":`...), in.Begin)
	b = rows.AppendJSON(append(b, `,"end":`...), in.End)
	b = rows.AppendJSON(append(b, `,"peak":`...), in.Peak)
	b = strconv.AppendUint(append(b, `,"row":`...), in.Row, 10)
	b = strconv.AppendUint(append(b, `,"rows":`...), in.Rows, 10)
	b = rows.AppendNumber(append(b, `,"score":`...), float64(in.Score), 32)
	b = appendTexts(append(b, `,"features":`...), in.Features)
	b = appendTexts(append(b, `,"kinds":`...), kinds)
	b = appendKnown(append(b, `,"value":`...), in.Value, 64, "null")
	b = appendKnown(append(b, `,"expected":`...), in.Expected, 32, "null")
	b = strconv.AppendUint(append(b, `,"before":`...), uint64(in.Before), 10)
	b = appendTexts(append(b, `,"related":`...), in.Related)
	b = strconv.AppendBool(append(b, `,"open":`...), in.Open)
	b = strconv.AppendInt(append(b, `,"entities":`...), int64(in.Entities), 10)
	b = appendTexts(append(b, `,"absent":`...), in.Absent)
	w.line = append(b, '}', '\n')
	_, err := w.w.Write(w.line)
	return err
}

func appendKnown(b []byte, v float64, bits int, unknown string) []byte {
	if math.IsNaN(v) {
		return append(b, unknown...)
	}
	return rows.AppendNumber(b, v, bits)
}

func appendTexts(b []byte, all []string) []byte {
	b = append(b, '[')
	for i, text := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = rows.AppendJSON(b, text)
	}
	return append(b, ']')
}

// Flush writes what is buffered.
func (w *Writer) Flush() error {
	if w.csv == nil {
		return nil
	}
	w.csv.Flush()
	return w.csv.Error()
}

// Close ends the file. It does not close the writer below.
func (w *Writer) Close() error { return w.Flush() }
