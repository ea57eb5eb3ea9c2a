package travel

import (
	"math"
	"time"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// View is the state of a shard at one moment or two. The HTTP API has the same JSON.
type View struct {
	Swarm string `json:"swarm"` // id
	Name  string `json:"name"`
	Shard int    `json:"shard"`
	// First and Last are the entries that the log of the shard has.
	First uint64 `json:"first_entry"`
	Last  uint64 `json:"last_entry"`
	// FirstGroup and EndGroup are the groups of the shard; the latter is behind the last one.
	FirstGroup int `json:"first_group"`
	EndGroup   int `json:"end_group"`
	PerGroup   int `json:"agents_per_group"`
	// Progress is set if the time was over: the same question again continues. The fields below are
	// absent then.
	Progress *Progress `json:"progress,omitempty"`
	// Moments are the moments of the question, in its order.
	Moments []Moment `json:"moments,omitempty"`
	// Same reports whether two moments have the same bits.
	Same  *bool  `json:"same,omitempty"`
	Group *Group `json:"group,omitempty"`
}

// Progress is how far a replay is.
type Progress struct {
	Moment int    `json:"moment"` // of the question: 1 or 2
	Entry  uint64 `json:"entry"`  // the last entry that is applied
	Of     uint64 `json:"of"`     // the entry that was asked for
}

// Outcome is what the agents of a swarm have decided together.
type Outcome struct {
	Round    uint64 `json:"round"`
	Decision string `json:"decision"` // the name of a candidate, or none
	// Leader is the id of an agent; nil: the round has no leader, and Term is 0.
	Leader *uint32 `json:"leader,omitempty"`
	Term   uint64  `json:"term"` // the round in which the leader was elected
}

// Moment is the state of a shard after an entry.
type Moment struct {
	Entry Entry `json:"entry"` // without rows
	// Round is the last round of votes of the swarm; 0: there was none.
	Round uint64 `json:"round,omitempty"`
	// Outcome is the decision of the last round that was concluded; nil: there was none.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Start is the initial state of the replay. Replayed are the entries after it.
	Start    Start     `json:"start"`
	Replayed uint64    `json:"replayed"`
	Seconds  float64   `json:"seconds"` // of the replay
	Summary  []Summary `json:"summary"`
}

// Start is the initial state of a replay.
type Start struct {
	Kind  string `json:"kind"` // StartLog, StartSnapshot or StartMoment
	Name  string `json:"name,omitempty"`
	Entry uint64 `json:"entry"` // the last entry that it has; 0: none
}

// Summary is a variable over all agents, or all groups, of a shard.
type Summary struct {
	Name  string `json:"name"`
	Per   string `json:"per"`   // agent or group
	Width int    `json:"width"` // numbers of an agent or a group
	// Mean, Min and Max are over all finite values; 0 if there are none.
	Mean    float64 `json:"mean"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Values  int64   `json:"values"`            // finite ones
	Unusual int64   `json:"unusual,omitempty"` // the others
}

// Group is a group with some of its agents, at one moment or two.
type Group struct {
	Group      int        `json:"group"`       // its number in the swarm
	FirstAgent int64      `json:"first_agent"` // the id of the first agent here
	Agents     int        `json:"agents"`      // how many are here
	Variables  []Variable `json:"variables"`   // the group's before the agents'
}

// Variable is a variable of a group, or of agents.
type Variable struct {
	Name  string `json:"name"`
	Per   string `json:"per"`   // agent or group
	Width int    `json:"width"` // numbers of a row; the first MaxWidth are here
	// At and And are the values at the two moments: a row for each agent, or one for the group. A
	// value that is not finite is null.
	At  [][]any `json:"at"`
	And [][]any `json:"and,omitempty"`
	// Changed are the rows that differ between the moments.
	Changed []int `json:"changed,omitempty"`
}

// MaxWidth is the largest number of values of a row of a Variable.
const MaxWidth = 64

// rowsOf returns the rows of a variable. Numbers keep their type, so that JSON has all digits.
func rowsOf(v batch.Variable) [][]any {
	switch values := v.Values.(type) {
	case []float32:
		return split(values, v.Width)
	case []uint32:
		return split(values, v.Width)
	case []uint64:
		return split(values, v.Width)
	case []int64:
		return split(values, v.Width)
	case []uint8:
		return split(values, v.Width)
	}
	return [][]any{}
}

func split[T float32 | uint32 | uint64 | int64 | uint8](values []T, width int) [][]any {
	rows := [][]any{}
	for ; len(values) >= width && width > 0; values = values[width:] {
		row := make([]any, 0, min(width, MaxWidth))
		for _, v := range values[:min(width, MaxWidth)] {
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
				row = append(row, nil)
			} else {
				row = append(row, v)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Entry is an entry of the log of a shard.
type Entry struct {
	Seq  uint64    `json:"seq"`
	Kind string    `json:"kind,omitempty"`
	Ref  uint64    `json:"ref,omitempty"` // the number of the batch in its source
	At   time.Time `json:"at,omitzero"`   // by the clock of the NATS server
	// Bytes is the size of the entry, and Count how many rows it has.
	Bytes int `json:"bytes,omitempty"`
	Count int `json:"count,omitempty"`
	// Groups are the first groups that its rows are for, in the order of the rows.
	Groups []int `json:"groups,omitempty"`
	// Answer is the kind of its answer, which has the same number in the log of answers; empty:
	// there is none yet, or it was trimmed.
	Answer string `json:"answer,omitempty"`
	// Job is the job that writes the log; empty: the swarm lasts until it is deleted.
	Job string `json:"job,omitempty"`
	// Timestamp and Columns are the names of the columns of the time and of the features.
	Timestamp string   `json:"timestamp,omitempty"`
	Columns   []string `json:"columns,omitempty"`
	// Rows are the first rows, or the rows of the group that was asked for.
	Rows []Row `json:"rows,omitempty"`
}

// Row is an observation.
type Row struct {
	Group int     `json:"group"`
	Agent *uint32 `json:"agent,omitempty"` // of swarms whose agents are addressed
	// Row is its number in its source, from 1. Timestamp is the text of the source, and Read when the
	// source was read by its clock.
	Row       uint64    `json:"row,omitempty"`
	Timestamp string    `json:"timestamp,omitempty"`
	Time      time.Time `json:"time,omitzero"`
	Read      time.Time `json:"read,omitzero"`
	// Values are by Columns. A value that is not finite is null.
	Values []*float64 `json:"values"`
	// Series and Source are the name and the URI of the source of the group, without logins. They are
	// empty where the job is over, or its list of sources cannot be read with this login.
	Series string `json:"series,omitempty"`
	Source string `json:"source,omitempty"`
}
