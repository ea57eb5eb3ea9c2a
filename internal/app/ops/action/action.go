// Package action does what operators do to a cluster, for the commands of exoswarm and for the
// dashboard. It shows what an action affects before the action is done, and writes each action to
// the audit.
package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Request names an action and its object. Fields that an action does not have are ignored.
type Request struct {
	// Action is one of Names.
	Action string `json:"action"`
	// Object is the id of a job or dead letter, a pool, a tenant, a swarm or an agent. It is empty for
	// dead letters that the other fields select.
	Object string `json:"object,omitempty"`
	// Pool, Kind and Tenant filter dead letters. For a pause, Kind is the kind to pause.
	Pool   string `json:"pool,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Finish lets a cancelled job complete the work in hand.
	Finish bool `json:"finish,omitempty"`
	// Limits are the limits of a tenant to change; nil fields stay.
	Limits *jobs.Limits `json:"limits,omitempty"`
	// Name is the name of a snapshot; a preview fills in an empty one.
	Name string `json:"name,omitempty"`
	// Wait waits until a snapshot is complete.
	Wait bool `json:"wait,omitempty"`
}

func (r Request) filter() jobs.DeadFilter {
	return jobs.DeadFilter{ID: r.Object, Pool: jobs.Pool(r.Pool), Kind: r.Kind, Tenant: r.Tenant}
}

// Target returns the object of a request as the audit has it.
func (r Request) Target() string {
	parts := []string{}
	if r.Object != "" {
		parts = append(parts, r.Object)
	}
	for _, f := range [][2]string{{"pool", r.Pool}, {"kind", r.Kind}, {"tenant", r.Tenant}, {"name", r.Name}} {
		if f[1] != "" {
			parts = append(parts, f[0]+"="+f[1])
		}
	}
	if r.Finish {
		parts = append(parts, "finish")
	}
	if r.Limits != nil {
		if data, err := json.Marshal(r.Limits); err == nil {
			parts = append(parts, string(data))
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

// Effect is a kind of thing that an action affects.
type Effect struct {
	What  string `json:"what"` // such as "jobs that wait for it"
	Count int    `json:"count"`
	// Names are the first of them, at most 20.
	Names []string `json:"names,omitempty"`
	// Live marks numbers of a busy cluster that change all the time. They are shown, and their
	// change does not change the preview.
	Live bool `json:"live,omitempty"`
}

const maxNames = 20

func effect(what string, names []string, live bool) Effect {
	return Effect{What: what, Count: len(names), Names: slices.Clone(names[:min(len(names), maxNames)]), Live: live}
}

// Preview is what an action affects, as the cluster is now.
type Preview struct {
	// Request is the request to confirm, with its empty fields filled in.
	Request  Request  `json:"request"`
	Sentence string   `json:"sentence"` // what happens
	Affects  []Effect `json:"affects"`
	// Final says that the action cannot be undone.
	Final bool `json:"final"`
	// Digest identifies the preview. It changes with everything that is not Live.
	Digest string `json:"digest"`

	mark string // of what else must be the same, such as the identity of a swarm
}

// Outcome is what an action has done.
type Outcome struct {
	Sentence string `json:"sentence"`
	Count    uint64 `json:"count"` // of things that were changed
	// Entries and Snapshots are of a snapshot: the entries that ask for it by shard and, after a wait,
	// its parts.
	Entries   []uint64             `json:"entries,omitempty"`
	Snapshots []swarms.Snapshotted `json:"-"`
}

type kind struct {
	// preview fills in the empty fields of the request and returns what the action affects. It changes
	// nothing.
	preview func(ctx context.Context, o *Operator, r *Request) (Preview, error)
	do      func(ctx context.Context, o *Operator, r Request) (Outcome, error)
}

// kinds are all actions, by name. Each has a command of exoswarm.
var kinds = map[string]kind{
	"job.cancel":     {previewCancel, doCancel},
	"dlq.redrive":    {previewRedrive, doRedrive},
	"dlq.purge":      {previewPurge, doPurge},
	"queue.pause":    {previewPause, doPause},
	"queue.resume":   {previewPause, doPause},
	"tenant.limit":   {previewLimit, doLimit},
	"tenant.unlimit": {previewLimit, doUnlimit},
	"swarm.delete":   {previewDelete, doDelete},
	"swarm.snapshot": {previewSnapshot, doSnapshot},
	"agent.drain":    {previewDrain, doDrain},
}

// Names returns the names of all actions, sorted.
func Names() []string { return slices.Sorted(maps.Keys(kinds)) }

// Options configure an Operator.
type Options struct {
	// Conn is a connection with the login of an operator. It stays the caller's, who closes it after
	// the last call. Required.
	Conn *natsq.Conn
	// Timeout bounds the wait for the answers of a swarm; 0: the default of swarmclient.
	Timeout time.Duration
}

// Operator does actions on a cluster. Its methods may be called from several goroutines; confirmed
// actions run one at a time.
type Operator struct {
	conn   *natsq.Conn
	swarms *swarmclient.Client

	turn chan struct{} // held from the check of a preview until its action has ended
}

// New returns an operator.
func New(o Options) (*Operator, error) {
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: o.Conn.Swarms, Agents: o.Conn.Registry, Jobs: o.Conn.Queue, Timeout: o.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	return &Operator{conn: o.Conn, swarms: client, turn: make(chan struct{}, 1)}, nil
}

// Check asks the server whether this is the login of an operator: it writes to the audit, which no
// other role may. It fails with ErrNoOperator.
func (o *Operator) Check(ctx context.Context, by control.Actor) error {
	err := o.conn.Audit.Check(ctx, by, control.Action{
		Action: "actions.open", Object: by.Via, Detail: "actions may be done here from now on",
	})
	if errors.Is(err, jobs.ErrDenied) {
		return fmt.Errorf("%w: %w", ErrNoOperator, err)
	}
	return err
}

// Preview returns what an action affects. It changes nothing. An invalid request is a jobs.Error of
// jobs.CodeInvalid; an object that does not exist is jobs.ErrNotFound.
func (o *Operator) Preview(ctx context.Context, r Request) (Preview, error) {
	k, ok := kinds[r.Action]
	if !ok {
		return Preview{}, jobs.Errorf(jobs.CodeInvalid, "there is no action %q: use one of %s", r.Action,
			strings.Join(Names(), ", "))
	}
	p, err := k.preview(ctx, o, &r)
	if err != nil {
		return Preview{}, err
	}
	p.Request = r
	if p.Affects == nil {
		p.Affects = []Effect{}
	}
	p.Digest, err = p.digest()
	return p, err
}

// digest returns the hash of all that must be the same at the confirmation.
func (p Preview) digest() (string, error) {
	steady := slices.DeleteFunc(slices.Clone(p.Affects), func(e Effect) bool { return e.Live })
	data, err := json.Marshal([]any{p.Request, p.Sentence, steady, p.Final, p.mark})
	if err != nil {
		return "", fmt.Errorf("digest of a preview: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// Confirm does an action whose preview the user has seen. If the preview has changed, nothing is
// done, and the error is a *ChangedError with the new preview. r must be the request of the
// preview.
func (o *Operator) Confirm(ctx context.Context, by control.Actor, r Request, digest string) (Outcome, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return Outcome{}, context.Cause(ctx)
	}
	p, err := o.Preview(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	if p.Digest != digest {
		return Outcome{}, &ChangedError{Preview: p}
	}
	var out Outcome
	err = o.conn.Audit.Do(ctx, by, control.Action{
		Action: r.Action, Object: p.Request.Target(), Detail: p.text(), Digest: digest,
	}, func(ctx context.Context) (err error) {
		out, err = o.Run(ctx, p.Request)
		return err
	})
	return out, err
}

// text is the preview as one line.
func (p Preview) text() string {
	parts := []string{p.Sentence}
	for _, e := range p.Affects {
		parts = append(parts, fmt.Sprintf("%s: %d", e.What, e.Count))
	}
	return strings.Join(parts, "; ")
}

// Run does an action without a preview, for a command line that names all of it. The caller writes
// the audit.
func (o *Operator) Run(ctx context.Context, r Request) (Outcome, error) {
	k, ok := kinds[r.Action]
	if !ok {
		return Outcome{}, jobs.Errorf(jobs.CodeInvalid, "there is no action %q", r.Action)
	}
	return k.do(ctx, o, r)
}
