package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/dialect"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// readObservations reads a file of observations of agents whole: it is checked to its end before
// anything takes effect.
func readObservations(path string, spec *swarm.Spec) (*batch.AgentObservations, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, command.Usage("--input: %v", err)
	}
	defer f.Close()
	o, d := &batch.AgentObservations{Width: len(spec.Features)}, dialectOf(path, spec)
	add := func(line int, get func(column string) (string, bool)) error {
		bad := func(column, text, want string) error {
			return jobs.Errorf(jobs.CodeInput, "%s:%d: column %s: %q is not %s", path, line, column, text, want)
		}
		text, ok := get(swarm.AgentColumn)
		id, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil || int64(id) >= spec.Agents {
			return bad(swarm.AgentColumn, text, fmt.Sprintf("an agent, 0 to %d", spec.Agents-1))
		}
		o.Agent = append(o.Agent, uint32(id))
		for _, name := range spec.Features {
			text, ok := get(name)
			number, problem := d.Number(text)
			if problem != "" {
				return bad(name, text, "a number: it "+problem)
			}
			v, err := strconv.ParseFloat(number, 32)
			if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return bad(name, text, "a number")
			}
			o.Features = append(o.Features, float32(v))
		}
		return nil
	}
	if d == nil {
		err = eachObject(path, f, add)
	} else {
		err = eachRecord(path, f, d, append([]string{swarm.AgentColumn}, spec.Features...), add)
	}
	return o, err
}

// dialectOf returns how a file of observations is written; nil for NDJSON.
func dialectOf(path string, spec *swarm.Spec) *dialect.CSV {
	if ext := filepath.Ext(path); ext == ".ndjson" || ext == ".jsonl" {
		return nil
	}
	return &spec.CSV
}

// eachRecord reads CSV of a dialect that has all columns.
func eachRecord(path string, f io.Reader, d *dialect.CSV, columns []string,
	add func(int, func(string) (string, bool)) error,
) error {
	r := csv.NewReader(bufio.NewReader(f))
	r.Comma, r.ReuseRecord = d.Comma(), true
	place := map[string]int{}
	header, err := r.Read()
	if err != nil {
		return jobs.Errorf(jobs.CodeInput, "%s: its header cannot be read: %v", path, err)
	}
	again := !d.HasHeader() // the first record is a row
	names := header
	if again {
		names = d.Columns(len(header))
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
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

// eachObject reads a JSON object a line.
func eachObject(path string, f io.Reader, add func(int, func(string) (string, bool)) error) error {
	lines := bufio.NewScanner(f)
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
