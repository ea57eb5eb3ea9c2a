package jobs

import (
	"fmt"
	"slices"
	"time"
)

// Schedule submits a job at each of its times, once in the whole cluster.
type Schedule struct {
	Version int    `json:"v"`
	Name    string `json:"name"` // an id of at most MaxScheduleName
	// Cron is five fields: minute, hour, day of month, month, day of week, as in "*/15 8-18 * *
	// mon-fri". Always keeps one job at all times.
	Cron string `json:"cron"`
	// Zone is where those are read, such as Europe/Berlin; empty means UTC.
	Zone string `json:"zone,omitempty"`
	// Missed is the policy for times at which no agent ran; empty means SkipMissed.
	Missed MissedPolicy `json:"missed,omitempty"`
	Paused bool         `json:"paused,omitempty"`
	// From is the time up to which times do not count; zero means when the schedule is added.
	From time.Time `json:"from,omitzero"`
	// Job is what is submitted, without id, times, and parents. Its id becomes RunID of the time.
	Job Job `json:"job"`
}

// Always is the Cron of a schedule that keeps one job at all times: when a job of it has ended, the
// next one is submitted. A job that failed for a cause that may pass is followed after
// AlwaysPause. After another failure the schedule waits until it is paused and resumed. A pause
// asks the job to finish.
const Always = "@always"

// AlwaysPause is the time from a failure to the next job of a schedule with Always.
const AlwaysPause = 30 * time.Second

// MissedPolicy is the policy for a time that no agent has seen within 30 seconds.
type MissedPolicy string

// The policies.
const (
	SkipMissed MissedPolicy = "skip" // nothing
	OnceMissed MissedPolicy = "once" // the last of them is made up for, the others are not
)

// MaxScheduleName is the longest name of a schedule in bytes: it and a time are a job's id.
const MaxScheduleName = 64 - len("-20060102T1504Z")

// ScheduleState is a schedule and where it stands.
type ScheduleState struct {
	Schedule
	Next time.Time `json:"next,omitzero"` // zero while it is paused
	Last time.Time `json:"last,omitzero"` // zero when it has not come yet
	// LastJob is the id of the last job of a schedule with Always.
	LastJob string `json:"last_job,omitempty"`
	// Error is why its record, which another program wrote, is not followed.
	Error string `json:"error,omitempty"`
}

// RunID is the id of the job that a schedule submits at a time.
func RunID(schedule string, at time.Time) string { return schedule + "-" + Stamp(at) }

// NumberedID is the id of job number n of a schedule with Always. The first number is the time at
// which the schedule was added, in seconds since 1970.
func NumberedID(schedule string, n uint64) string { return fmt.Sprintf("%s-r%d", schedule, n) }

// Numbered is job number n of a schedule with Always.
func (s Schedule) Numbered(n uint64, at time.Time) Job {
	j := s.Run(at)
	j.ID = NumberedID(s.Name, n)
	return j
}

// EndsSchedule reports whether a schedule with Always submits no job after one with this result
// until it is paused and resumed: the job failed, and would fail again.
func EndsSchedule(r Result) bool {
	if r.Status == Done || r.Error == nil {
		return false
	}
	return slices.Contains([]Code{CodeInvalid, CodeInput, CodeVersion, CodeCanceled}, r.Error.Code)
}

const stampLayout = "20060102T1504Z"

// Stamp writes a time of a schedule, which is a whole minute, as it stands in ids and subjects.
func Stamp(at time.Time) string { return at.UTC().Format(stampLayout) }

// ParseStamp is the inverse of Stamp.
func ParseStamp(text string) (time.Time, error) { return time.Parse(stampLayout, text) }

// Validate checks everything but Cron and Zone. The error names the field, its value and the cure.
func (s Schedule) Validate() error {
	if s.Version != Version {
		return Errorf(CodeVersion, "schedule %s speaks protocol version %d, this agent %d: update the older side",
			s.Name, s.Version, Version)
	}
	if err := CheckID("schedule", s.Name); err != nil {
		return err
	}
	j := s.Job
	bad := func(what string) error { return Errorf(CodeInvalid, "schedule %s: %s", s.Name, what) }
	switch {
	case len(s.Name) > MaxScheduleName:
		return Errorf(CodeInvalid, "schedule %s: a name of %d bytes: at most %d, because it and a time are a job's "+
			"id", s.Name, len(s.Name), MaxScheduleName)
	case !slices.Contains([]MissedPolicy{"", SkipMissed, OnceMissed}, s.Missed):
		return bad(`missed "` + string(s.Missed) + `": use "skip" or "once"`)
	case j.ID != "":
		return bad("its job has an id: leave it out, each run gets its own")
	case !j.Submitted.IsZero() || !j.NotBefore.IsZero() || !j.Deadline.IsZero():
		return bad("its job has submitted, not_before or deadline: leave them out, they are of one run")
	case len(j.After) > 0 || j.OnFailedParent != "":
		return bad("its job waits for others: leave out after and on_failed_parent")
	case j.SpecRef != nil || len(j.Spec) > MaxInline:
		return Errorf(CodeInvalid, "schedule %s: the spec of its job is at most %d bytes: put bulk data into the "+
			"object store", s.Name, MaxInline)
	}
	return s.Run(time.Time{}).Validate()
}

// Run is the job of a time.
func (s Schedule) Run(at time.Time) Job {
	j := s.Job.WithDefaults()
	j.Version, j.ID, j.Submitted = Version, RunID(s.Name, at), at.UTC()
	return j
}
