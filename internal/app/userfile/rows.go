package userfile

// This file reads files of observations for a swarm that lasts: CSV with a header, or JSON lines. A
// file is checked to its end before any row is used. Errors name the file, the line and the column.

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// row is a row of a file. get returns the text of a column; ok is false for a column that the CSV
// file or the JSON object does not have.
type row struct {
	path string
	line int
	csv  *dialect.CSV // nil for JSON lines
	get  func(column string) (text string, ok bool)
}

// bad returns the error of a column, which says what it should have.
func (r row) bad(column, text, want string) error {
	return jobs.Errorf(jobs.CodeInput, "%s:%d: column %s: %q is not %s", r.path, r.line, column, text, want)
}

// id returns the number in a column, from 0 to n-1, of a thing such as "an agent".
func (r row) id(column string, n int64, what string) (uint32, error) {
	text, ok := r.get(column)
	id, err := strconv.ParseUint(text, 10, 32)
	if !ok || err != nil || int64(id) >= n {
		return 0, r.bad(column, text, fmt.Sprintf("%s, 0 to %d", what, n-1))
	}
	return uint32(id), nil
}

// number returns the number in a column, which good accepts. want says which numbers these are.
func (r row) number(column string, bits int, want string, good func(v float64) bool) (float64, error) {
	text, ok := r.get(column)
	written, problem := r.csv.Number(text)
	if problem != "" {
		return 0, r.bad(column, text, "a number: it "+problem)
	}
	v, err := dialect.Float(written, bits)
	if !ok || err != nil || !good(v) {
		return 0, r.bad(column, text, want)
	}
	return v, nil
}

// eachRow calls add with the rows of a file of CSV, which has the columns, or of JSON lines. It
// stops at the first error of add.
func eachRow(path string, spec *swarm.Spec, columns []string, add func(r row) error) error {
	f, err := os.Open(path)
	if err != nil {
		return command.Usage("--input: %v", err)
	}
	defer f.Close()
	d := dialectOf(path, spec)
	read := func(line int, get func(string) (string, bool)) error { return add(row{path, line, d, get}) }
	if d == nil {
		return eachObject(path, f, read)
	}
	return eachRecord(path, f, d, columns, read)
}

// dialectOf returns the dialect of the specification for a CSV file; nil for JSON lines, which have
// the extension .ndjson or .jsonl.
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
			at, ok := place[column]
			if !ok || at >= len(record) {
				return "", false
			}
			return strings.TrimSpace(record[at]), true
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
