package userfile

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// observationColumns returns the columns of a file of observations for a swarm.
func observationColumns(spec *swarm.Spec) []string {
	if spec.Topology().ByAgent {
		return append([]string{swarm.AgentColumn}, spec.Features...)
	}
	return append([]string{swarm.GroupColumn, spec.Timestamp}, spec.Features...)
}

// ReadGroups reads a file of observations of groups: the column group, with the number, the
// timestamp and the features of the specification. Rows of a group must be in the order of their
// times, unless the specification takes late ones. It reads and checks the whole file. Read of the
// result is the time of the call.
func ReadGroups(path string, spec *swarm.Spec) (*batch.Observations, error) {
	o := &batch.Observations{Width: len(spec.Features)}
	d := dialectOf(path, spec)
	clock, err := rows.NewClock(d)
	if err != nil {
		return nil, err
	}
	local := rows.NewLocalTimes(rows.ColumnSpec{
		CSV: d, Key: []string{swarm.GroupColumn}, MaxEntities: spec.Groups(),
		AnyOrder: spec.Observations.Late != swarm.Reject,
	})
	latest := map[uint32]int64{}  // time of the last row in ns, by group
	read := time.Now().UnixNano() // one time for all rows: the file is complete
	return o, eachRow(path, spec, observationColumns(spec), func(r row) error {
		group, err := r.id(swarm.GroupColumn, int64(spec.Groups()), "a group")
		if err != nil {
			return err
		}
		text, _ := r.get(spec.Timestamp)
		// The text of a member of a JSON object is a JSON string.
		if unquoted := ""; strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &unquoted) == nil {
			text = unquoted
		}
		first, second, err := clock.Read(text)
		if len(text) > swarmclient.MaxTimestamp || err != nil {
			want := "a time, such as 2006-01-02 15:04:05, RFC 3339, or unix seconds"
			if d != nil && len(d.Time) > 0 {
				want = "of the form of csv.time, " + strings.Join(d.Time, " or ")
			}
			return r.bad(spec.Timestamp, text, want)
		}
		values := make([]float64, len(spec.Features))
		for i, name := range spec.Features {
			values[i], err = r.number(
				name,
				64,
				"a number",
				func(v float64) bool { return rows.CheckFeature(name, v) == "" },
			)
			if err != nil {
				return err
			}
		}
		at, ok := local.Choose(strconv.FormatUint(uint64(group), 10), first, second, values)
		if !ok {
			return r.bad(spec.Timestamp, text, "one time: it comes twice in csv.zone "+d.Zone+", and the rows before "+
				"it do not tell which it is: write timestamps with their offset from UTC, or in UTC without csv.zone")
		}
		text = clock.Text(at, text)
		if before, seen := latest[group]; seen && at < before && spec.Observations.Late == swarm.Reject {
			return r.bad(spec.Timestamp, text, "at or behind the time of the row before it of its group: sort the "+
				"file by time, or write observations: {late: apply} or drop into the spec")
		}
		latest[group] = at
		o.Group, o.Row, o.Read = append(o.Group, group), append(o.Row, uint64(len(o.Row)+1)), append(o.Read, read)
		o.Time, o.Timestamp = append(o.Time, at), append(o.Timestamp, text)
		for _, v := range values {
			o.Features, o.Value = append(o.Features, float32(v)), append(o.Value, v)
		}
		return nil
	})
}
