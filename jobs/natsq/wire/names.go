// Package wire has the names and the rules of the protocol that need no server. It names streams,
// buckets and subjects; docs/protocol.md lists the names with their meaning, and they are stable.
//
// A Quota is what a tenant may use, and a QuotaRecord is how the workers of a pool share it. The
// caller stores the record with compare-and-set. FairQueue chooses the next source of jobs.
// PublishMode decides from measured times how groups of messages are stored. The package does no
// I/O.
package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// Streams and buckets. The subjects of logs are exo.log.SWARM.SHARD.DIR.
const (
	ResultStream   = "EXO_RESULTS"
	DeadStream     = "EXO_DEAD"
	SchedStream    = "EXO_SCHED"
	WaitStream     = "EXO_WAIT"
	JobLogStream   = "EXO_JOBLOGS"
	PushStream     = "EXO_PUSH"
	AuditStream    = "EXO_AUDIT"
	EmissionStream = "EXO_DECISIONS"
	LeaseBucket    = "EXO_LEASES"
	SwarmBucket    = "EXO_SWARMS"
	CancelBucket   = "EXO_CANCEL"
	ControlBucket  = "EXO_CONTROL"
	AgentBucket    = "EXO_AGENTS"
	CronBucket     = "EXO_CRON"
	TenantBucket   = "EXO_TENANTS"
	ObjectBucket   = "EXO_OBJECTS"
)

// HeaderLevel of a job's message, and of its dead letter, is the level for which the job asks. The
// body has no level, so that a process that knows no levels can read it.
const HeaderLevel = "Exo-Level"

// HeaderWaited of a job's message says that its submitter waits for the result (jobs.Job.Waited).
const HeaderWaited = "Exo-Waited"

// HeaderSubmission of the first message of a batch is an id of the call that submits it. It tells a
// batch whose acknowledgement was lost from the batch of another call.
const HeaderSubmission = "Exo-Submission"

// AuditSubject is the subject of all records of the audit.
const AuditSubject = "exo.audit"

// EmissionSubject returns the subject of the decisions that the swarm with a key emits under a
// name, or "*" for all names.
func EmissionSubject(key, name string) string { return "exo.decision." + key + "." + name }

// JobStream returns the name of the stream that holds the queued jobs of a pool of the default
// level.
func JobStream(p jobs.Pool) string { return Source{Pool: p}.Stream() }

// Stream returns the name of the stream that holds the queued jobs of the source.
func (s Source) Stream() string {
	name := "EXO_JOBS_" + strings.ToUpper(string(s.Pool))
	if s.Level != "" {
		name += "_" + strings.ToUpper(string(s.Level))
	}
	return name
}

// LevelOf returns the level of the jobs that a stream holds; ok is false for the default, and for a
// stream of something else.
func LevelOf(stream string) (l jobs.Level, ok bool) {
	for _, p := range Pools() {
		for _, l := range jobs.Levels() {
			if stream == (Source{Pool: p, Level: l}).Stream() {
				return l, true
			}
		}
	}
	return "", false
}

// Pools returns all pools, in a new slice.
func Pools() []jobs.Pool { return []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} }

// Source is one queue within a pool. Each source has one durable consumer on the server, because
// the filters of a work queue may not overlap.
type Source struct {
	Pool   jobs.Pool
	Kind   string
	Lane   jobs.Lane
	Tenant string
	// Level chooses the stream; empty for the stream of the cluster's default. Subjects of waiting,
	// delayed and dead jobs have none.
	Level jobs.Level
}

// SourceOf returns the source of a job at the default level. Empty fields of the job count as their
// defaults. Which level the cluster has granted is not a part of the job (queue.Queue.Place).
func SourceOf(j jobs.Job) Source {
	j = j.WithDefaults()
	return Source{Pool: j.Pool, Kind: j.Kind, Lane: j.Lane, Tenant: j.Tenant}
}

// At returns the source with another level.
func (s Source) At(l jobs.Level) Source { s.Level = l; return s }

// Tail returns the part that the subjects of all streams share: POOL.KIND.LANE.TENANT.
func (s Source) Tail() string {
	return string(s.Pool) + "." + s.Kind + "." + string(s.Lane) + "." + s.Tenant
}

// Job returns the subject of a queued job. The level, if it has one, is the last token, so a
// process that knows no levels takes the subject for none of a job.
func (s Source) Job(id string) string {
	subject := "exo.job." + s.Tail() + "." + id
	if s.Level != "" {
		subject += "." + string(s.Level)
	}
	return subject
}

// AnyJob returns the subjects of the jobs of a pool and level with an id and a tenant; both may be
// "*".
func AnyJob(p jobs.Pool, l jobs.Level, tenant, id string) string {
	return Source{p, "*", "*", tenant, l}.Job(id)
}

// Sched returns the subject of a delayed job before its time.
func (s Source) Sched(id string) string { return "exo.sched." + s.Tail() + "." + id }

// Due returns the subject to which the server moves a delayed job at its time.
func (s Source) Due(id string) string { return "exo.due." + s.Tail() + "." + id }

// Wait returns the subject of a job that waits for its parents.
func (s Source) Wait(id string) string { return "exo.wait." + s.Tail() + "." + id }

// Dead returns the subject of a dead letter. Dead letters have no lane.
func (s Source) Dead(id string) string {
	return "exo.dead." + string(s.Pool) + "." + s.Kind + "." + s.Tenant + "." + id
}

// Consumer returns the name of the source's consumer. An id cannot contain '+', so the names of two
// sources differ.
func (s Source) Consumer() string {
	return s.Kind + "+" + string(s.Lane) + "+" + s.Tenant
}

// ParseConsumer is the inverse of Source.Consumer, for a consumer of the stream of a pool and
// level. ok is false for a consumer that is not the queue's.
func ParseConsumer(p jobs.Pool, l jobs.Level, name string) (s Source, ok bool) {
	parts := strings.Split(name, "+")
	if len(parts) != 3 {
		return s, false
	}
	s = Source{p, parts[0], jobs.Lane(parts[1]), parts[2], l}
	return s, s.Valid()
}

// ParseSubject splits exo.WORD.POOL.KIND.LANE.TENANT[.ID[.LEVEL]]. Anybody may publish to a stream,
// so it checks every part except the id.
func ParseSubject(subject string) (s Source, id string, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 6 || len(parts) > 8 || parts[0] != "exo" {
		return s, "", false
	}
	s = Source{Pool: jobs.Pool(parts[2]), Kind: parts[3], Lane: jobs.Lane(parts[4]), Tenant: parts[5]}
	if len(parts) > 6 {
		id = parts[6]
	}
	if len(parts) == 8 {
		// An empty level would be a second subject of the same source.
		if s.Level = jobs.Level(parts[7]); s.Level == "" || parts[1] != "job" {
			return s, id, false
		}
	}
	return s, id, s.Valid()
}

// ParseWake splits exo.wake.POOL.KIND.LANE.TENANT[.LEVEL].
func ParseWake(subject string) (s Source, ok bool) {
	s, level, ok := ParseSubject(subject)
	s.Level = jobs.Level(level)
	return s, ok && s.Valid()
}

// Valid reports whether the pool, the lane and the level exist and kind and tenant are ids.
func (s Source) Valid() bool {
	return slices.Contains(jobs.Lanes(), s.Lane) && slices.Contains(Pools(), s.Pool) &&
		(s.Level == "" || slices.Contains(jobs.Levels(), s.Level)) &&
		jobs.CheckID("", s.Kind) == nil && jobs.CheckID("", s.Tenant) == nil
}

// ResultSubject returns the subject of a job's result.
func ResultSubject(id string) string { return "exo.res." + id }

// DoneSubject returns the subject on which the server announces a stored result, without its body.
func DoneSubject(id string) string { return "exo.done." + id }

// JobLogSubject returns the subject of the log lines of a job.
func JobLogSubject(id string) string { return "exo.joblog." + id }

// EdgeSubject returns the subject of the edge between a parent and a waiting child. The body of an
// edge is the subject of the waiting job.
func EdgeSubject(parent, child string) string { return "exo.edge." + parent + "." + child }

// FiredSubject returns the subject of the mark that a time of a schedule has come. stamp is a
// jobs.Stamp, or "*" for all times.
func FiredSubject(name, stamp string) string { return "exo.fired." + name + "." + stamp }

// SubmittedSubject returns the subject of the mark that a rule of the swarm with a key has
// submitted the job with a name. place is ENTRY-RULE, or "*" for all. A key and a name have no '=',
// which tells these marks from the marks of schedules.
func SubmittedSubject(key, name, place string) string {
	return "exo.fired." + key + "=" + name + "." + place
}

// RunningSubject returns the subject on which the workers of a pool answer which jobs they execute.
// A question costs the disk of the server nothing.
func RunningSubject(p jobs.Pool) string { return "exo.running." + string(p) }

// PauseKey returns the key of a pause in the bucket of controls: of a kind, or of a whole pool when
// kind is empty.
func PauseKey(p jobs.Pool, kind string) string {
	if kind == "" {
		return "pause." + string(p)
	}
	return "pause." + string(p) + "." + kind
}

// Unserved returns why no agent takes jobs of a kind: no agent of the pool serves it. served is the
// number of agents of the pool by kind.
func Unserved(p jobs.Pool, kind string, served map[string]int) string {
	if len(served) == 0 {
		return fmt.Sprintf("no agent of kind %s: pool %s has no agent", kind, p)
	}
	return fmt.Sprintf("no agent of kind %s: the agents of pool %s serve %s", kind, p,
		strings.Join(slices.Sorted(maps.Keys(served)), ", "))
}
