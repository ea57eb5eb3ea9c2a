// Package jobs is the contract of the work queue: jobs and their results, schedules, dependencies,
// limits, and the errors that cross the queue. Package swarms is the contract of running swarms.
// Package natsq implements both over NATS JetStream.
//
// A job is stateless: any agent of its pool that serves its kind may execute it. Its effect is
// idempotent, because a job may run more than once, and its first result is final.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Version is the version of the protocol that this code speaks. Every message carries it.
const Version = 1

// Pool is a kind of agent process that work is queued for.
type Pool string

// The pools.
const (
	PoolCPU Pool = "cpu"
	PoolGPU Pool = "gpu"
)

// Job is a self-contained unit of stateless work.
type Job struct {
	Version int             `json:"v,omitempty"`
	ID      string          `json:"id,omitempty"`   // unique among jobs, [A-Za-z0-9_][A-Za-z0-9_-]{0,63}
	Pool    Pool            `json:"pool"`           // who may do it
	Kind    string          `json:"kind"`           // what to do; each kind has its own spec
	Spec    json.RawMessage `json:"spec,omitempty"` // by kind
	// Submitted is when the job was handed in, by the submitter's clock.
	Submitted time.Time `json:"submitted,omitzero"`
	// Lane is its priority; empty means Normal.
	Lane Lane `json:"lane,omitempty"`
	// Tenant is whose share of the workers it uses, as an id; empty means DefaultTenant.
	Tenant string `json:"tenant,omitempty"`
	// NotBefore holds the job back until then, by the server's clock; zero for none.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Deadline ends the job as failed with CodeDeadline when it is not done by then, by the
	// worker's clock; zero for none.
	Deadline time.Time `json:"deadline,omitzero"`
	// MaxAttempts is how often it may be tried, 1 to 100; 0 means 5.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// ResultTTL is how many seconds its result is kept, 1 to 604800 (7 days); 0 means 86400.
	ResultTTL int `json:"result_ttl_s,omitempty"`
	// Replicas is the number of servers that store the job while it is queued: 1, 3 or 5; 0 means
	// the number that the streams of the cluster have, which is also the maximum.
	Replicas int `json:"replicas,omitempty"`
	// Durability is DurabilitySynced or DurabilityMemory; empty means DurabilitySynced.
	Durability string `json:"durability,omitempty"`
	// After lists the jobs that must be over before this one begins, at most MaxParents. They must
	// be known when it is submitted, or be submitted with it.
	After []string `json:"after,omitempty"`
	// OnFailedParent is the policy for a parent that is not done; empty means FailChild.
	OnFailedParent ParentPolicy `json:"on_failed_parent,omitempty"`
	// SpecRef stands for a spec too large for a message (more than MaxInline bytes). The queue sets
	// it, and puts the spec back before a handler sees the job.
	SpecRef *ObjectRef `json:"spec_ref,omitempty"`
	// LastAttempt tells a handler that the queue will not give the job out again, whatever error it
	// returns.
	LastAttempt bool `json:"-"`
	// Waited says that the submitter waits for the result. If the job fails with CodeInvalid or
	// CodeInput, the submitter is told, and there is no dead letter. The queue keeps it beside the
	// job, and a gateway does not.
	Waited bool `json:"-"`
}

// ObjectRef names bytes in the object store by content. Reading other bytes fails.
type ObjectRef struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
	Size   int64  `json:"size"`   // bytes
}

// Attempts is how often a job is tried unless it says otherwise.
const Attempts = 5

// WithDefaults fills in what a job may leave out: lane, tenant and the number of attempts.
func (j Job) WithDefaults() Job {
	if j.Lane == "" {
		j.Lane = Normal
	}
	if j.Tenant == "" {
		j.Tenant = DefaultTenant
	}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = Attempts
	}
	return j
}

// Status is how a job ended.
type Status string

// The ways a job ends.
const (
	Done   Status = "done"
	Failed Status = "failed"
	// Skipped is a job that never began, because a parent was not done.
	Skipped Status = "skipped"
)

// Result is the outcome of a job. The first result written for a job is the only one.
type Result struct {
	Version  int             `json:"v"`
	JobID    string          `json:"job"`
	Kind     string          `json:"kind"`
	Status   Status          `json:"status"`
	Output   json.RawMessage `json:"output,omitempty"` // by kind, for a job that is done
	Error    *Error          `json:"error,omitempty"`  // for a job that failed or was skipped
	Attempts int             `json:"attempts"`
	Worker   string          `json:"worker"`
	Finished time.Time       `json:"finished"`
}

// Handler does jobs of one kind. progress may be called at any time with a value, which is sent to
// watchers; it never blocks for long and may drop values. A returned error ends the job as failed
// unless it is Retryable. A handler whose ctx is cancelled with cause ErrFinish finishes what it
// holds and returns what it has done; with another cause it returns at once.
type Handler func(ctx context.Context, job Job, progress func(any)) (output any, err error)

// Outcome is what became of one job of a batch.
type Outcome struct {
	Output any   // as JSON, for a job that is done
	Err    error // as a Handler's error
}

// BatchHandler does jobs of one kind together, such as in one launch on a device. It returns an
// outcome for each job, in order. An error of the batch as a whole is laid to one of its jobs,
// which is found by halving, so a handler sees the other jobs up to 1 + log2(n) times; an error
// that is Retryable is not: all jobs are given back. progress sends progress of job i. A batch
// continues when one of its jobs is cancelled.
type BatchHandler func(ctx context.Context, batch []Job, progress func(i int, v any)) ([]Outcome, error)

// CheckID returns an error unless id may stand in a subject, a stream name and a command line,
// where a first '-' begins a flag.
func CheckID(what, id string) error {
	if !validID(id) {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s %q: use 1 to 64 letters, digits, '-' or '_', the "+
			"first no '-'", what, id)}
	}
	return nil
}

// validID is not a regular expression: that took a twentieth of the time of a small job, which
// calls it ten times.
func validID(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(id) >= 1 && len(id) <= 64 && id[0] != '-'
}

var shaPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate checks what jobs of every kind must have. The error names the field, its value and the
// cure.
func (j Job) Validate() error {
	if j.Version != Version {
		return &Error{Code: CodeVersion, Message: fmt.Sprintf("job %s speaks protocol version %d, this agent %d: "+
			"update the older side", j.ID, j.Version, Version)}
	}
	if err := CheckID("job id", j.ID); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("job %s: ", j.ID) + fmt.Sprintf(format, args...)}
	}
	switch {
	case j.Pool != PoolCPU && j.Pool != PoolGPU:
		return bad("pool %q: use %q or %q", j.Pool, PoolCPU, PoolGPU)
	case !validID(j.Kind):
		return bad("kind %q: use 1 to 64 letters, digits, '-' or '_', the first no '-'", j.Kind)
	case j.Lane != "" && !j.Lane.valid():
		return bad("lane %q: use %q, %q or %q", j.Lane, High, Normal, Low)
	case j.Tenant != "" && !validID(j.Tenant):
		return bad("tenant %q: use 1 to 64 letters, digits, '-' or '_', the first no '-'", j.Tenant)
	case j.MaxAttempts < 0 || j.MaxAttempts > 100:
		return bad("max_attempts %d: use 1 to 100", j.MaxAttempts)
	case j.ResultTTL < 0 || j.ResultTTL > 7*24*3600:
		return bad("result_ttl_s %d: use 1 to 604800", j.ResultTTL)
	case !j.Deadline.IsZero() && j.Deadline.Before(j.NotBefore):
		return bad("deadline %s is before not_before %s", j.Deadline.Format(time.RFC3339),
			j.NotBefore.Format(time.RFC3339))
	case j.SpecRef != nil && len(j.Spec) != 0:
		return bad("it has a spec and a spec_ref: use one")
	case j.SpecRef != nil && (j.SpecRef.Size < 0 || j.SpecRef.Size > MaxSpec):
		return bad("spec_ref.size %d: use 0 to %d", j.SpecRef.Size, MaxSpec)
	case j.SpecRef != nil && (j.SpecRef.Name == "" || !shaPattern.MatchString(j.SpecRef.SHA256)):
		return bad("spec_ref: it needs a name and a sha256 of 64 hexadecimal digits")
	case j.SpecRef == nil && len(j.Spec) > MaxSpec:
		return bad("a spec of %d bytes: at most %d: put bulk data into the object store", len(j.Spec), MaxSpec)
	case j.SpecRef == nil && !json.Valid(j.Spec):
		return bad("its spec is not JSON")
	}
	if what := j.checkLevel(); what != "" {
		return bad("%s", what)
	}
	if what := j.checkParents(); what != "" {
		return bad("%s", what)
	}
	return nil
}

// MaxSpec is the largest spec in bytes. Bulk data has objects of its own.
const MaxSpec = 64 << 20
