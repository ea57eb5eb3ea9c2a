package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
)

// Actions changes the cluster. *action.Operator implements it. Its methods are safe for concurrent
// use.
type Actions interface {
	// Preview returns what an action affects, and changes nothing.
	Preview(ctx context.Context, r action.Request) (action.Preview, error)
	// Confirm does the action of a preview between two records of the audit, or fails with an
	// *action.ChangedError if the preview has changed.
	Confirm(ctx context.Context, by control.Actor, r action.Request, digest string) (action.Outcome, error)
}

// Bounds of actions.
const (
	actFor     = 25 * time.Second // less than the time that Serve gives an answer
	ticketFor  = 10 * time.Minute
	maxTickets = 1000
)

// actionHeader is the header that a request with an effect needs, with the token of getLogin. A
// page of another origin can neither read the token nor send the header.
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

// ActionRefused is the body of an answer with status 409: nothing was done, and the preview is a
// new one.
type ActionRefused struct {
	httpapi.Failure
	Preview *ActionPreview `json:"preview,omitempty"`
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

// mayAct admits requests with an effect. The header and the type of the body are such that no form
// and no page of another origin can send them.
func (s *Server) mayAct(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayLook(w, r); err != nil {
		return err
	}
	if err := isJSON(r); err != nil {
		return err
	}
	if !httpapi.SameSecret(r.Header.Get(actionHeader), s.actionToken(r)) {
		return httpapi.Errorf(http.StatusForbidden, "the header %s is missing or of another login: GET login has it",
			actionHeader)
	}
	return nil
}

func isJSON(r *http.Request) error {
	if httpapi.Media(r) != httpapi.JSON {
		return httpapi.Errorf(http.StatusUnsupportedMediaType, "the body of this request is application/json")
	}
	return nil
}

func (s *Server) preview(w http.ResponseWriter, r *httpapi.Request) error {
	var in action.Request
	if err := decodeBody(w, r, maxBody, &in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askFor)
	defer cancel()
	p, err := s.o.Actions.Preview(ctx, in)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, s.ticketed(r.Request, p))
	return nil
}

func (s *Server) ticketed(r *http.Request, p action.Preview) *ActionPreview {
	name, _ := s.user(r)
	return &ActionPreview{Preview: p, Ticket: s.tickets.issue(name+"\x00"+p.Digest, time.Now())}
}

// confirm does the action of a preview. It continues when the browser leaves: the audit has its
// intent.
func (s *Server) confirm(w http.ResponseWriter, r *httpapi.Request) error {
	var in ActionConfirm
	if err := decodeBody(w, r, maxBody, &in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actFor)
	defer cancel()
	name, _ := s.user(r.Request)
	if !s.tickets.use(in.Ticket, name+"\x00"+in.Digest, time.Now()) {
		out := ActionRefused{Failure: httpapi.Failure{Error: errTicket.Error()}}
		if p, err := s.o.Actions.Preview(ctx, in.Request); err == nil {
			out.Preview = s.ticketed(r.Request, p)
		}
		httpapi.WriteJSON(w, http.StatusConflict, out)
		return nil
	}
	got, err := s.o.Actions.Confirm(ctx, s.by(r.Request), in.Request, in.Digest)
	var changed *action.ChangedError
	switch {
	case errors.As(err, &changed):
		httpapi.WriteJSON(w, http.StatusConflict, ActionRefused{
			Failure: httpapi.Failure{Error: err.Error()}, Preview: s.ticketed(r.Request, changed.Preview),
		})
	case err != nil:
		s.log.Warn("dashboard: an action failed", "action", in.Request.Action, "user", name, "error", err)
		return err
	default:
		s.log.Info("dashboard: an action", "action", in.Request.Action, "object", in.Request.Object, "user", name)
		httpapi.WriteJSON(w, http.StatusOK, got)
	}
	return nil
}

// by returns who sends a request, for the audit. The address of a trusted proxy comes with the one
// that the proxy names.
func (s *Server) by(r *http.Request) control.Actor {
	name, _ := s.user(r)
	from := r.RemoteAddr
	if client := r.Header.Get("X-Forwarded-For"); client != "" && s.fromProxy(r) {
		from = client + " by " + from
	}
	return control.Actor{User: name, From: from, Via: "dashboard"}
}

func decodeBody(w http.ResponseWriter, r *httpapi.Request, limit int64, v any) error {
	if err := httpapi.Decode(http.MaxBytesReader(w, r.Body, limit), v); err != nil {
		return httpapi.Errorf(http.StatusBadRequest, "the body is not what this request takes: %v", err)
	}
	return nil
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
