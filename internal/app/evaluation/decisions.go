package evaluation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// maxLine bounds a line of decisions, in bytes.
const maxLine = 16 << 20

// line has the members of a decision that count. A dropped row has no decision.
type line struct {
	Timestamp *string  `json:"timestamp"`
	Score     *float64 `json:"score"`
	Decision  *string  `json:"decision"`
	Dropped   string   `json:"dropped"`
}

// read reads decisions, entity by entity in the order of their first rows.
func read(from io.Reader, o Options) ([]*Series, error) {
	in := bufio.NewScanner(from)
	in.Buffer(make([]byte, 0, 1<<20), maxLine)
	var all []*Series
	byName := map[string]*Series{}
	clocks := map[string]*rows.Clock{}
	for n := 1; in.Scan(); n++ {
		text := in.Bytes()
		if len(strings.TrimSpace(string(text))) == 0 {
			continue
		}
		bad := func(format string, args ...any) error {
			return jobs.Errorf(jobs.CodeInput, "decisions: line %d: %s", n, fmt.Sprintf(format, args...))
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, bad("%v: decisions are NDJSON, as run --output FILE.ndjson writes them", err)
		}
		if l.Dropped != "" {
			continue
		}
		if l.Timestamp == nil || l.Score == nil || l.Decision == nil {
			return nil, bad("no timestamp, score or decision: decisions are the output of a run")
		}
		name, err := entity(text, o.Keys)
		if err != nil {
			return nil, bad("%v", err)
		}
		s := byName[name]
		if s == nil {
			s = &Series{Name: name}
			byName[name], clocks[name] = s, &rows.Clock{}
			all = append(all, s)
		}
		at, err := clocks[name].Parse(*l.Timestamp)
		if err != nil {
			return nil, bad("timestamp: %v", err)
		}
		if !(*l.Score >= 0 && *l.Score <= 1) || math.IsNaN(*l.Score) {
			return nil, bad("score %v: scores are from 0 to 1", *l.Score)
		}
		s.Times = append(s.Times, at)
		s.Scores = append(s.Scores, float32(*l.Score))
		s.Alarms = append(s.Alarms, *l.Decision == o.Anomalous)
		s.Normal = append(s.Normal, *l.Decision == o.Normal)
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, jobs.Errorf(jobs.CodeInput, "decisions: a line of more than %d bytes", maxLine)
	} else if err != nil {
		return nil, jobs.Errorf(jobs.CodeInput, "decisions: %v", err)
	}
	if len(all) == 0 {
		return nil, jobs.Errorf(jobs.CodeInput, "decisions: there is none: give the output of a run")
	}
	return all, nil
}

// entity returns the name of the entity of a line.
func entity(text []byte, keys []string) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return "", err
	}
	values := make([]string, len(keys))
	for i, k := range keys {
		raw, ok := members[k]
		if !ok {
			return "", fmt.Errorf("no member %q, which names the entity: name the columns of the key with --key", k)
		}
		if json.Unmarshal(raw, &values[i]) != nil {
			values[i] = string(raw)
		}
	}
	if len(keys) == 1 && keys[0] == "series" {
		return values[0], nil
	}
	return rows.EntityName(rows.JoinKey(values)), nil
}
