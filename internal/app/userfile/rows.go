package userfile

// This file reads files of observations for a swarm that lasts: CSV with a header, or JSON lines. A
// file is checked to its end before any row is used. Errors name the file, the line and the column.

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// A row is passed to add as a function from a column to its text. ok is false for a column that a
// JSON object does not have; in CSV every column of Columns exists.

// dialectOf returns the dialect of a CSV file, that of the specification; nil for JSON lines, which
// the extension .ndjson or .jsonl says.
func dialectOf(path string, spec *swarm.Spec) *dialect.CSV {
	if ext := filepath.Ext(path); ext == ".ndjson" || ext == ".jsonl" {
		return nil
	}
	return &spec.CSV
}

// eachRecord calls add with the number of the line and the columns of each record of a CSV file,
// which must have all columns that are named. It stops at the first error of add.
func eachRecord(path string, f io.Reader, d *dialect.CSV, columns []string,
	add func(int, func(string) (string, bool)) error,
) error {
	r := csv.NewReader(bufio.NewReader(rows.Text(f)))
	r.Comma, r.ReuseRecord = d.Comma(), true
	place := map[string]int{}
	header, err := r.Read()
	if err != nil {
		return jobs.Errorf(jobs.CodeInput, "%s: its header cannot be read: %v", path, err)
	}
	again := !d.HasHeader() // without a header the first record is a row, which the loop takes first
	names := header
	if again {
		names = d.Columns(len(header))
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // a byte order mark, as spreadsheets write it
	for i, name := range names {
		place[strings.TrimSpace(name)] = i
	}
	for _, name := range columns {
		if at, ok := place[name]; !ok || at >= len(header) {
			return jobs.Errorf(jobs.CodeInput, "%s:1: there is no column %q: the swarm takes %s", path, name,
				strings.Join(columns, ","))
		}
	}
	for {
		record, err := header, error(nil)
		if !again {
			record, err = r.Read()
		}
		again = false
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return jobs.Errorf(jobs.CodeInput, "%s: %v", path, err)
		}
		line, _ := r.FieldPos(0)
		if err := add(line, func(column string) (string, bool) {
			return strings.TrimSpace(record[place[column]]), true
		}); err != nil {
			return err
		}
	}
}

// eachObject calls add with the number of the line and the members of the JSON object on each line,
// as eachRecord does. The text of a member is its JSON. Empty lines are left out.
func eachObject(path string, f io.Reader, add func(int, func(string) (string, bool)) error) error {
	// A line is at most a message long: longer ones could not be sent.
	lines := bufio.NewScanner(rows.Text(f))
	lines.Buffer(nil, jobs.MaxMessage)
	for n := 1; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		row := map[string]json.RawMessage{}
		if err := json.Unmarshal(slices.Clone(lines.Bytes()), &row); err != nil {
			return jobs.Errorf(jobs.CodeInput, "%s:%d: not a JSON object: %v", path, n, err)
		}
		if err := add(n, func(column string) (string, bool) {
			v, ok := row[column]
			return string(v), ok
		}); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return jobs.Errorf(jobs.CodeInput, "%s: %v", path, err)
	}
	return nil
}
