package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// ErrDecisions is an input that is not the decisions of a run in NDJSON.
var ErrDecisions = errors.New("no decisions of a run")

// Scan reads decisions as a run writes them in NDJSON, and returns what Write needs to know of
// them: the members with features and with the key, the counts of each series or entity in the
// order of their first rows, and the sums. anomaly is the decision that counts as an anomaly. It
// fails with ErrDecisions, with the number of the line, for other texts.
func Scan(decisions io.Reader, anomaly string) (h Header, series []cpuagents.SeriesSummary, err error) {
	h.Anomaly = anomaly
	in := bufio.NewReaderSize(decisions, 1<<20)
	places := map[string]int{}
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(text)) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return h, nil, fmt.Errorf("%w: line %d: %w", ErrDecisions, n, err)
		}
		if n == 1 {
			if h.Keys, h.Features, err = members(text); err != nil {
				return h, nil, fmt.Errorf("%w: line 1: %w", ErrDecisions, err)
			}
		}
		var l line
		if err := l.parse(text, h.Keys); err != nil {
			return h, nil, fmt.Errorf("%w: line %d: %w", ErrDecisions, n, err)
		}
		if l.Timestamp == "" || l.Decision == "" && l.Dropped == "" {
			return h, nil, fmt.Errorf("%w: line %d: it has no timestamp or no decision", ErrDecisions, n)
		}
		place, is := places[l.Series]
		if !is {
			place = len(series)
			places[l.Series] = place
			series = append(series, cpuagents.SeriesSummary{Name: l.Series})
		}
		s := &series[place]
		s.Observations++
		h.Result.Observations++
		switch l.Dropped {
		case "":
			s.Decisions++
			h.Result.Decisions++
		case "late":
			h.Result.Late++
		default:
			h.Result.Duplicates++
		}
		if l.Decision == anomaly && l.Dropped == "" {
			s.Anomalies++
			h.Result.Anomalies++
		}
	}
	if len(series) == 0 {
		return h, nil, fmt.Errorf("%w: the input is empty", ErrDecisions)
	}
	return h, series, nil
}

// members returns the names of the members of a line before the number of its row, which are the
// key, and the members between its timestamp and its score, which are the features. Keys are nil
// for decisions of series.
func members(text []byte) (keys, features []string, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("it is no object of JSON")
	}
	var names []string
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		name, _ := t.(string)
		names = append(names, name)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, nil, err
		}
	}
	row, stamp := slices.Index(names, "row"), slices.Index(names, "timestamp")
	end := slices.IndexFunc(names, func(n string) bool { return n == "score" || n == "dropped" })
	if row < 1 || stamp != row+1 || end <= stamp {
		return nil, nil, errors.New("its members are not the members of a decision: give the NDJSON of exoswarm run")
	}
	if row > 1 || names[0] != "series" {
		keys = names[:row]
	}
	return keys, names[stamp+1 : end], nil
}
