package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Phases of an action, one record for each.
const (
	PhaseIntent  = "intent"  // stored before the action
	PhaseOutcome = "outcome" // stored after it
)

// Outcomes of an action. An intent without an outcome is OutcomeUnknown: the process ended, or lost
// the server, after it stored the intent.
const (
	OutcomeDone    = "done"
	OutcomeFailed  = "failed"
	OutcomeUnknown = "unknown"
)

// maxAuditText bounds each text of a record, in bytes.
const maxAuditText = 2 << 10

// AuditRecord is a message of the stream. Its fields are part of the protocol.
type AuditRecord struct {
	Version int    `json:"v"`
	ID      string `json:"id"` // of the action: its intent and its outcome have the same
	Phase   string `json:"phase"`
	User    string `json:"user"`           // see Actor.User
	From    string `json:"from,omitempty"` // see Actor.From
	Via     string `json:"via"`            // see Actor.Via
	Action  string `json:"action"`         // such as job.cancel
	Object  string `json:"object"`         // what it is done to
	// Detail is a sentence about what the action affects.
	Detail string `json:"detail,omitempty"`
	// Digest is the digest of the preview that the user confirmed; empty without one.
	Digest string `json:"digest,omitempty"`
	// Outcome and Error are of the outcome alone.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Actor is who acts, and from where.
type Actor struct {
	User string // the name of the login
	From string // the address of the browser or the name of the host
	Via  string // dashboard or exoswarm
}

// Action is what an operator does, and to what.
type Action struct{ Action, Object, Detail, Digest string }

// AuditEntry is an action as it is shown: its intent with its outcome.
type AuditEntry struct {
	At      time.Time `json:"at"` // when the intent was stored, by the clock of the server
	Ended   time.Time `json:"ended,omitzero"`
	ID      string    `json:"id"`
	User    string    `json:"user"`
	From    string    `json:"from,omitempty"`
	Via     string    `json:"via"`
	Action  string    `json:"action"`
	Object  string    `json:"object"`
	Detail  string    `json:"detail,omitempty"`
	Digest  string    `json:"digest,omitempty"`
	Outcome string    `json:"outcome"` // done, failed or unknown
	Error   string    `json:"error,omitempty"`
}

// Audit writes and reads the records. Its methods may be called from several goroutines.
type Audit struct{ conn *natsconn.Conn }

// NewAudit returns the audit that a connection reaches. The connection stays the caller's.
func NewAudit(c *natsconn.Conn) *Audit { return &Audit{c} }

// auditPatience bounds the storing of an outcome, which happens even if the context of the action
// has ended.
const auditPatience = time.Second

// Intent is a stored intent. End is called once.
type Intent struct {
	l *Audit
	r AuditRecord
}

// Begin stores the intent of an action, which the caller does next. If that fails, the caller must
// not do it: the error wraps ErrNotWritten, and jobs.ErrDenied for a login that may not write.
func (l *Audit) Begin(ctx context.Context, by Actor, w Action) (*Intent, error) {
	r := AuditRecord{
		Version: jobs.Version, ID: natsconn.NewID(), Phase: PhaseIntent, User: cut(by.User), From: cut(by.From),
		Via: cut(by.Via), Action: cut(w.Action), Object: cut(w.Object), Detail: cut(w.Detail), Digest: cut(w.Digest),
	}
	if err := l.put(ctx, r); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", w.Action, w.Object, ErrNotWritten, err)
	}
	return &Intent{l, r}, nil
}

// End stores the outcome of an action that returned err, even if ctx has ended. Its own error wraps
// ErrOutcome.
func (a *Intent) End(ctx context.Context, err error) error {
	a.r.Phase, a.r.Outcome = PhaseOutcome, OutcomeDone
	if err != nil {
		a.r.Outcome, a.r.Error = OutcomeFailed, cut(redact.Secrets(err.Error()))
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	if err := a.l.put(end, a.r); err != nil {
		return fmt.Errorf("%s %s: %w: %w", a.r.Action, a.r.Object, ErrOutcome, err)
	}
	return nil
}

// Do stores the intent, calls act, and stores the outcome with the error of act. The error is the
// error of Begin, or the joined errors of act and End.
func (l *Audit) Do(ctx context.Context, by Actor, w Action, act func(ctx context.Context) error) error {
	a, err := l.Begin(ctx, by, w)
	if err != nil {
		return err
	}
	err = act(ctx)
	return errors.Join(err, a.End(ctx, err))
}

// Check stores that the actor may act from now on. It fails with jobs.ErrDenied for every login
// that is not an operator's, because no other role may write to the audit.
func (l *Audit) Check(ctx context.Context, by Actor, w Action) error {
	return l.Do(ctx, by, w, func(context.Context) error { return nil })
}

func cut(s string) string {
	if len(s) > maxAuditText {
		return s[:maxAuditText] + " …"
	}
	return s
}

// put stores a record once, however often it is sent.
func (l *Audit) put(ctx context.Context, r AuditRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	if !l.conn.NC.IsConnected() {
		return fmt.Errorf("there is no connection to NATS: %w", jobs.ErrUnavailable)
	}
	m := &nats.Msg{Subject: wire.AuditSubject, Data: data}
	natsconn.SetHeader(m, "Nats-Expected-Stream", wire.AuditStream)
	return l.conn.PublishMsg(ctx, l.conn.RetryUnlessFull, "write to the audit", m)
}

// List calls fn with the actions whose intent was stored at or after since, newest first, until fn
// returns false. It reads one message at a time. Messages that are not records are skipped. An
// action that is in progress has OutcomeUnknown.
func (l *Audit) List(ctx context.Context, since time.Time, fn func(AuditEntry) bool) error {
	first, last, err := l.conn.Bounds(ctx, "list the audit", wire.AuditStream)
	if err != nil {
		return fmt.Errorf("list the audit: %w", err)
	}
	type end struct {
		at             time.Time
		outcome, error string
	}
	ended := map[string]end{}
	for seq := last; seq >= max(first, 1); seq-- {
		m, err := l.message(ctx, seq)
		if errors.Is(err, jobs.ErrNotFound) { // it has expired
			continue
		}
		if err != nil {
			return err
		}
		if m.Time.Before(since) {
			return nil
		}
		var r AuditRecord
		if json.Unmarshal(m.Data, &r) != nil || r.Version != jobs.Version || r.ID == "" {
			continue
		}
		if r.Phase == PhaseOutcome {
			ended[r.ID] = end{m.Time, r.Outcome, r.Error}
			continue
		}
		e := AuditEntry{
			At: m.Time, ID: r.ID, User: r.User, From: r.From, Via: r.Via, Action: r.Action, Object: r.Object,
			Detail: r.Detail, Digest: r.Digest, Outcome: OutcomeUnknown,
		}
		if o, ok := ended[r.ID]; ok {
			e.Ended, e.Outcome, e.Error = o.at, o.outcome, o.error
			delete(ended, r.ID)
		}
		if !fn(e) {
			return nil
		}
	}
	return nil
}

// message reads one message of the stream.
func (l *Audit) message(ctx context.Context, seq uint64) (m *natsconn.Message, err error) {
	err = l.conn.Retry(ctx, "read the audit", func(ctx context.Context) error {
		m, err = l.conn.GetOnce(ctx, wire.AuditStream, map[string]any{"seq": seq})
		return err
	})
	return m, err
}
