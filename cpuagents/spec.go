package cpuagents

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// KindStream is the kind of job that feeds sources through a swarm: each row of a series becomes an
// observation of one group, and each decision a line of the output.
const KindStream = "stream"

// StreamSpec is the specification of a job of kind KindStream.
type StreamSpec struct {
	// Name and Spec belong to the swarm, whose id is the id of the job.
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
	// Candidates name the decisions, the most unusual last.
	Candidates []string        `json:"candidates"`
	Columns    rows.ColumnSpec `json:"columns"`
	// Explain adds an explanation to each decision: expected values, and the cause of a surprise.
	Explain bool `json:"explain,omitempty"`
	// Fleet limits the incidents of all series that are shown; nil for no limit.
	Fleet *explain.FleetLimits `json:"fleet,omitempty"`
	// Drops: the swarm drops observations that come late or twice. Outputs with columns then have
	// the column dropped, with the reason.
	Drops bool `json:"drops,omitempty"`
	// Learning is the last round in which an entity is learning: its decisions rest in part on what is
	// usual elsewhere. 0 for cells that know no such round.
	Learning uint64 `json:"learning,omitempty"`
	// Manifest is the URI of a JSON list of SeriesSource in the order of the output. The group of a
	// series is its place.
	Manifest string `json:"manifest"`
	// Sinks get decisions as they are made, up to 8. If there is one, Output may be empty.
	Sinks []sink.Spec `json:"sinks,omitempty"`
	// Output, Rejects and Summary are the URIs of the files that the job writes: decisions,
	// rejected rows as NDJSON, and a JSON list of SeriesSummary.
	Output string `json:"output"`
	// Anomalies is the URI of a file with one record for each incident; empty for none. With it,
	// Output may be empty. AnomaliesFormat is csv or, by default, ndjson.
	Anomalies       string      `json:"anomalies,omitempty"`
	AnomaliesFormat rows.Format `json:"anomalies_format,omitempty"`
	Rejects         string      `json:"rejects"`
	Summary         string      `json:"summary"`
	// OutputFormat of the decisions. If it is empty, the extension of Output decides, and NDJSON if
	// that stands for no format.
	OutputFormat rows.Format `json:"output_format,omitempty"`
	// Webhook gets decisions as they are made; nil for none.
	Webhook *sink.WebhookSpec `json:"webhook,omitempty"`
	// Live sends every decision to the submitter of the job, as it is made. A slow submitter slows
	// the job; one that is gone does not.
	Live bool `json:"live,omitempty"`
	// BatchRows is the most rows of a batch, 1 to 4096; 0 means 4096. It changes no output.
	BatchRows int `json:"batch_rows,omitempty"`
	// Evict lets entities give their groups to others; nil: rows of entities beyond the number of
	// groups are rejected.
	Evict *EvictSpec `json:"evict,omitempty"`
	// Strict fails the job at the first row that is not valid.
	Strict bool `json:"strict,omitempty"`
}

// complete sets the defaults, and returns an error that says what is wrong with the specification.
func (s *StreamSpec) complete(job string) error {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: %s", job, fmt.Sprintf(format, args...))
	}
	s.BatchRows = cmp.Or(s.BatchRows, batch.MaxRows)
	if s.BatchRows < 1 || s.BatchRows > batch.MaxRows || len(s.Candidates) == 0 || len(s.Columns.Features) == 0 {
		return bad("batch_rows must be 1 to %d, candidates and columns.features must not be empty", batch.MaxRows)
	}
	if _, err := s.Columns.CSV.Validate(); err != nil {
		return bad("columns.%v", err)
	}
	if err := s.Columns.CheckKey(swarms.MaxGroups); err != nil {
		return bad("columns: %v", err)
	}
	if s.Evict != nil {
		if err := s.Evict.check(s.Columns); err != nil {
			return bad("evict: %v", err)
		}
	}
	if s.OutputFormat == "" {
		s.OutputFormat, _ = rows.FormatOf(s.Output, "ndjson")
	}
	if err := s.OutputFormat.Check(); err != nil {
		return fmt.Errorf("job %s: output: %w", job, err)
	}
	return nil
}

// layout returns the columns of the decisions of the job, whose series are given. Entities of a job
// with a key have no names yet: the caller sets Entities.
func (s *StreamSpec) layout(series []source.Series) rows.Layout {
	l := rows.Layout{
		Candidates: s.Candidates, Features: s.Columns.Features, Drops: s.Drops, Keys: s.Columns.Key,
		Explain: s.Explain, Learning: s.Learning,
	}
	if len(l.Keys) > 0 {
		return l
	}
	for _, src := range series {
		l.Series = append(l.Series, src.Name)
	}
	return l
}

// FeatureColumns returns the names that the features of a stream job have in its output. They are
// in the order of Columns.Features.
func (s *StreamSpec) FeatureColumns() []string { return s.layout(nil).FeatureColumns() }

// KeyColumns returns the names that the columns of the key have in the output of a stream job;
// nil without a key.
func (s *StreamSpec) KeyColumns() []string {
	if len(s.Columns.Key) == 0 {
		return nil
	}
	return s.layout(nil).NameColumns()
}

// SeriesSummary counts the rows and decisions of one series, or of one entity of a job with a key.
// Rows that were rejected before their entity was known are in no summary of an entity.
type SeriesSummary struct {
	Name         string `json:"name"`
	Observations uint64 `json:"observations"` // valid rows
	Rejected     uint64 `json:"rejected"`
	Decisions    uint64 `json:"decisions"`
	Anomalies    uint64 `json:"anomalies"` // decisions for the last candidate
	Dropped
}

// Dropped counts observations that the swarm answered without a decision, as its specification
// demands.
type Dropped struct {
	Late       uint64 `json:"dropped_late,omitempty"`
	Duplicates uint64 `json:"dropped_duplicate,omitempty"`
}

// Sum returns the number of dropped observations.
func (d Dropped) Sum() uint64 { return d.Late + d.Duplicates }

// Note returns the text about dropped observations for a table or a line of progress; empty if
// there are none.
func (d Dropped) Note() string {
	if d.Sum() == 0 {
		return ""
	}
	return fmt.Sprintf(", %d dropped (%d late, %d duplicate)", d.Sum(), d.Late, d.Duplicates)
}

// count counts observation i if it was dropped, and reports whether it was.
func (d *Dropped) count(of *batch.Decisions, i int) bool {
	if of.Dropped == nil || of.Dropped[i] == batch.Applied {
		return false
	}
	if of.Dropped[i] == batch.DroppedLate {
		d.Late++
	} else {
		d.Duplicates++
	}
	return true
}

// StreamResult is the output of a stream job: the sums of all series, the time of the last attempt
// in seconds, and the latencies of its decisions. Interrupted reports that the input was ended
// early.
type StreamResult struct {
	Observations uint64 `json:"observations"`
	Rejected     uint64 `json:"rejected"`
	Decisions    uint64 `json:"decisions"`
	Anomalies    uint64 `json:"anomalies"`
	Dropped
	Keyless feed.Keyless `json:"keyless,omitzero"`
	// Entities is the number of entities of a job with a key.
	Entities int     `json:"entities,omitempty"`
	Seconds  float64 `json:"seconds"`
	// LatencyP50 and LatencyP99 are milliseconds from reading a row to having its decision.
	LatencyP50  float64 `json:"latency_p50_ms"`
	LatencyP99  float64 `json:"latency_p99_ms"`
	Interrupted bool    `json:"interrupted,omitempty"`
	// Early counts rows whose timestamp is a number that was taken for a time before 1990.
	Early uint64 `json:"early,omitempty"`
	// MostRejected is the source with the largest share of rejected rows.
	MostRejected RejectedRows `json:"most_rejected,omitzero"`
}

// RejectedRows are the rejected rows of a source, of all its rows, with the most frequent reason.
type RejectedRows struct {
	Source   string      `json:"source"`
	Rows     uint64      `json:"rows"`
	Rejected uint64      `json:"rejected"`
	Reason   rows.Reason `json:"most_frequent"`
}

// StreamProgress is the progress that a stream job reports while it runs. The numbers only grow
// within an attempt, and a new attempt begins at 0 again.
type StreamProgress struct {
	Series       int    `json:"series"`
	Observations uint64 `json:"observations"`
	Rejected     uint64 `json:"rejected"`
	Decisions    uint64 `json:"decisions"`
	Dropped
	Keyless feed.Keyless `json:"keyless,omitzero"`
	// Entities is the number of entities of a job with a key so far.
	Entities int  `json:"entities,omitempty"`
	Done     bool `json:"done,omitempty"` // everything is decided, the output is being written
	// Found is what this attempt has found.
	Found *explain.Found `json:"found,omitempty"`
}
