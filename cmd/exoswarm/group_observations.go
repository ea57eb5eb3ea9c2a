package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// groupColumns are those of a file of observations for groups.
func groupColumns(spec *swarm.Spec) []string {
	return append([]string{swarm.GroupColumn, spec.Timestamp}, spec.Features...)
}

// readGroupObservations reads a file of observations for groups whole: it is checked to its end
// before anything takes effect.
func readGroupObservations(path string, spec *swarm.Spec) (*batch.Observations, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, command.Usage("--input: %v", err)
	}
	defer f.Close()
	o := &batch.Observations{Width: len(spec.Features)}
	d := dialectOf(path, spec)
	clock, err := rows.NewClock(d)
	if err != nil {
		return nil, err
	}
	latest := map[uint32]int64{} // by group
	read := time.Now().UnixNano()
	add := func(line int, get func(column string) (string, bool)) error {
		bad := func(column, text, want string) error {
			return jobs.Errorf(jobs.CodeInput, "%s:%d: column %s: %q is not %s", path, line, column, text, want)
		}
		text, ok := get(swarm.GroupColumn)
		id, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil || id >= uint64(spec.Groups()) {
			return bad(swarm.GroupColumn, text, fmt.Sprintf("a group, 0 to %d", spec.Groups()-1))
		}
		group := uint32(id)
		text, _ = get(spec.Timestamp)
		// of a JSON object
		if unquoted := ""; strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &unquoted) == nil {
			text = unquoted
		}
		at, err := clock.Parse(text)
		if len(text) > swarmclient.MaxTimestamp || err != nil {
			want := "a time, such as 2006-01-02 15:04:05, RFC 3339, or unix seconds"
			if d != nil && len(d.Time) > 0 {
				want = "of the form of csv.time, " + strings.Join(d.Time, " or ")
			}
			return bad(spec.Timestamp, text, want)
		}
		text = clock.Text(at, text)
		if before, seen := latest[group]; seen && at < before && spec.Observations.Late == swarm.Reject {
			return bad(spec.Timestamp, text, "at or behind the time of the row before it of its group: sort the "+
				"file by time, or write observations: {late: apply} or drop into the spec")
		}
		latest[group] = at
		o.Group, o.Row, o.Read = append(o.Group, group), append(o.Row, uint64(len(o.Row)+1)), append(o.Read, read)
		o.Time, o.Timestamp = append(o.Time, at), append(o.Timestamp, text)
		for _, name := range spec.Features {
			text, ok := get(name)
			number, problem := d.Number(text)
			if problem != "" {
				return bad(name, text, "a number: it "+problem)
			}
			v, err := strconv.ParseFloat(number, 64)
			if !ok || err != nil || math.IsNaN(v) || math.Abs(v) > math.MaxFloat32 {
				return bad(name, text, "a number")
			}
			o.Features, o.Value = append(o.Features, float32(v)), append(o.Value, v)
		}
		return nil
	}
	if d == nil {
		err = eachObject(path, f, add)
	} else {
		err = eachRecord(path, f, d, groupColumns(spec), add)
	}
	return o, err
}

// observeGroups hands observations over, in as many entries as that takes, and prints their
// decisions.
func observeGroups(cmd *cobra.Command, s *swarmclient.Swarm, path string) error {
	o, err := readGroupObservations(path, s.Spec())
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "GROUP", "TIMESTAMP", "SCORE", "DECISION", "ROUND")
	if err != nil {
		return err
	}
	entries, err := s.ObserveGroups(cmd.Context(), o, func(d *batch.Decisions) error {
		for i, g := range d.Group {
			decision, counts := s.Candidate(int(d.Decision[i])),
				votes{s.Spec().Vote.Candidates, d.Counts[i*d.Candidates:][:d.Candidates]}
			item := map[string]any{
				"group": g, "timestamp": d.Timestamp[i], "score": d.Score[i], "decision": decision, "round": d.Round[i],
				"counts": counts, "leader": d.Leader[i],
			}
			if d.Dropped != nil && d.Dropped[i] != batch.Applied {
				decision = "dropped: " + batch.Reasons[d.Dropped[i]]
				item = map[string]any{"group": g, "timestamp": d.Timestamp[i], "dropped": batch.Reasons[d.Dropped[i]]}
			}
			if err := p.Item(item, g, d.Timestamp[i], d.Score[i], decision, d.Round[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	cmd.PrintErrf("%d observations in %d entries\n", o.Len(), entries)
	return nil
}

// votes are the counts of candidates. As JSON they stand in the order of the candidates, as in the
// output of a run.
type votes struct {
	candidates []string
	counts     []uint32
}

// MarshalJSON implements json.Marshaler.
func (v votes) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for c, n := range v.counts {
		if c > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(v.candidates[c])
		if err != nil {
			return nil, err
		}
		b = strconv.AppendUint(append(append(b, name...), ':'), uint64(n), 10)
	}
	return append(b, '}'), nil
}
