package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs/natsq/audit"
)

// Actions changes the cluster. *action.Operator implements it. Its methods are safe for concurrent
// use.
type Actions interface {
	// Preview returns what an action affects, and changes nothing.
	Preview(ctx context.Context, r action.Request) (action.Preview, error)
	// Confirm does the action of a preview between two records of the audit, or fails with an
	// *action.ChangedError when the preview is another one now.
	Confirm(ctx context.Context, by audit.By, r action.Request, digest string) (action.Outcome, error)
}

// Bounds of actions.
const (
	actFor     = 25 * time.Second // less than the time that Serve gives an answer
	ticketFor  = 10 * time.Minute
	maxTickets = 1000
)

// actionHeader is the header that a request with an effect needs, with the token of getLogin. A page
// of another origin can neither read the token nor send the header.
const actionHeader = "X-Exoswarm-Action"

// ActionPreview is an answer to a request for a preview.
type ActionPreview struct {
	action.Preview
	// Ticket is for one confirmation, within ten minutes, of the same user.
	Ticket string `json:"ticket"`
}

// ActionConfirm is the body of a confirmation: what the preview has.
type ActionConfirm struct {
	Request action.Request `json:"request"`
	Digest  string         `json:"digest"`
	Ticket  string         `json:"ticket"`
}

// ActionRefused is the body of an answer with status 409: nothing was done, and the preview is a new
// one.
type ActionRefused struct {
	Failure
	Preview *ActionPreview `json:"preview,omitempty"`
}

// actionTable has the routes of actions and of the audit.
var actionTable = []route{
	{
		method: http.MethodPost, path: "actions/preview", name: "previewAction", acts: true,
		summary: "What an action affects; it changes nothing. Only with --actions.",
		body:    action.Request{}, answer: ActionPreview{}, serve: (*Server).preview,
	},
	{
		method: http.MethodPost, path: "actions/confirm", name: "confirmAction", acts: true,
		summary: "Does the action of a preview; 409 with a new preview if that has changed. Only with --actions.",
		body:    ActionConfirm{}, answer: action.Outcome{}, serve: (*Server).confirm,
	},
	{
		method: http.MethodGet, path: "audit", name: "listAudit",
		summary: "What operators did, newest first.",
		params: []param{
			{
				name: "seconds", in: "query", kind: "integer", doc: "length of the past", initial: "604800", least: 1,
				most: 90 * 86400,
			},
			limit("200", 1000),
		},
		answer: []audit.Entry{}, lasts: 2 * time.Second, ask: listAudit,
	},
}

// listAudit answers with the newest actions.
func listAudit(ctx context.Context, o *Options, p params) (any, error) {
	if o.Audit == nil {
		return []audit.Entry{}, nil
	}
	all, err := o.Audit(ctx, time.Now().Add(-time.Duration(p.num("seconds"))*time.Second), p.num("limit"))
	return list(all), err
}

// readOnly answers requests for actions of a server that only reads.
func readOnly(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "this dashboard only reads: start it with --actions and the login of an operator")
}

// actionToken returns the token that requests with effects of a login must have. It depends on the
// user and on the cookie, so a token of another login is refused.
func (s *Server) actionToken(r *http.Request) string {
	name, _ := s.user(r)
	value := r.Header.Get("Authorization") // decides alone where it is present, see user
	if c, err := r.Cookie(s.cookie(r, "", 0).Name); value == "" && err == nil {
		value = c.Value
	}
	mac := hmac.New(sha256.New, s.tickets.key)
	_, _ = mac.Write([]byte(name + "\x00" + value)) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// mayAct reports whether a request with an effect may go on, and answers it otherwise: the header and
// the type of the body are such that no form and no page of another origin can send them.
func (s *Server) mayAct(w http.ResponseWriter, r *http.Request) bool {
	if !isJSON(w, r) {
		return false
	}
	if !same(r.Header.Get(actionHeader), s.actionToken(r)) {
		fail(w, http.StatusForbidden, "the header "+actionHeader+" is missing or of another login: GET login has it")
		return false
	}
	return true
}

// isJSON reports whether the type of a body is JSON, and answers the request otherwise.
func isJSON(w http.ResponseWriter, r *http.Request) bool {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "the body of this request is application/json")
		return false
	}
	return true
}

// preview answers with what an action affects.
func (s *Server) preview(w http.ResponseWriter, r *http.Request) {
	var in action.Request
	if !decodeBody(w, r, maxBody, &in) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askFor)
	defer cancel()
	p, err := s.o.Actions.Preview(ctx, in)
	if err != nil {
		fail(w, statusOf(err), err.Error())
		return
	}
	writeJSON(w, s.ticketed(r, p))
}

// ticketed returns a preview with a ticket.
func (s *Server) ticketed(r *http.Request, p action.Preview) *ActionPreview {
	name, _ := s.user(r)
	return &ActionPreview{Preview: p, Ticket: s.tickets.issue(name+"\x00"+p.Digest, time.Now())}
}

// confirm does the action of a preview. It goes on when the browser leaves: the audit has its intent.
func (s *Server) confirm(w http.ResponseWriter, r *http.Request) {
	var in ActionConfirm
	if !decodeBody(w, r, maxBody, &in) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actFor)
	defer cancel()
	name, _ := s.user(r)
	if !s.tickets.use(in.Ticket, name+"\x00"+in.Digest, time.Now()) {
		out := ActionRefused{Failure: Failure{Error: errTicket.Error()}}
		if p, err := s.o.Actions.Preview(ctx, in.Request); err == nil {
			out.Preview = s.ticketed(r, p)
		}
		refuse(w, out)
		return
	}
	got, err := s.o.Actions.Confirm(ctx, s.by(r), in.Request, in.Digest)
	var changed *action.ChangedError
	switch {
	case errors.As(err, &changed):
		refuse(w, ActionRefused{Failure: Failure{Error: err.Error()}, Preview: s.ticketed(r, changed.Preview)})
	case err != nil:
		s.log.Warn("dashboard: an action failed", "action", in.Request.Action, "user", name, "error", err)
		fail(w, statusOf(err), err.Error())
	default:
		s.log.Info("dashboard: an action", "action", in.Request.Action, "object", in.Request.Object, "user", name)
		writeJSON(w, got)
	}
}

// by returns who sends a request, for the audit. The address of a trusted proxy comes with the one
// that the proxy names.
func (s *Server) by(r *http.Request) audit.By {
	name, _ := s.user(r)
	from := r.RemoteAddr
	if client := r.Header.Get("X-Forwarded-For"); client != "" && s.fromProxy(r) {
		from = client + " by " + from
	}
	return audit.By{User: name, From: from, Via: "dashboard"}
}

// decodeBody reads the JSON of a request, of at most so many bytes, or answers it.
func decodeBody(w http.ResponseWriter, r *http.Request, most int64, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields() // a field of a later version must not be ignored by an action
	if err := d.Decode(v); err != nil {
		fail(w, http.StatusBadRequest, "the body is not what this request takes: "+err.Error())
		return false
	}
	return true
}

// refuse answers with status 409.
func refuse(w http.ResponseWriter, out ActionRefused) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(out)
}

// tickets are the previews that may be confirmed, once each. A restart of the process ends all.
type tickets struct {
	key []byte // of the tokens of logins

	mu   sync.Mutex
	open map[string]ticket
}

type ticket struct {
	of   string // the user and the digest
	ends time.Time
}

func newTickets() *tickets { return &tickets{key: []byte(secret()), open: map[string]ticket{}} }

// issue returns a new ticket. The oldest one ends when there are maxTickets.
func (t *tickets) issue(of string, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	oldest := ""
	for id, o := range t.open {
		if now.After(o.ends) {
			delete(t.open, id)
		} else if oldest == "" || o.ends.Before(t.open[oldest].ends) {
			oldest = id
		}
	}
	if len(t.open) >= maxTickets {
		delete(t.open, oldest)
	}
	id := secret()
	t.open[id] = ticket{of, now.Add(ticketFor)}
	return id
}

// use reports whether a ticket is open for a user and a digest, and closes it.
func (t *tickets) use(id, of string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, found := t.open[id]
	delete(t.open, id)
	return found && o.of == of && !now.After(o.ends)
}
